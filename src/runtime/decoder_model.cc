#include "runtime/decoder_model.h"

#include <vector>

#include "tensor/dtype.h"

namespace needle {
namespace {

/// Quantises groups of the last axis, or of the one before it (kernels are [..., in, out] and
/// grouped over in).
void QuantiseLeaf(const ParamSpec& spec, Bits bits, std::vector<float>& values) {
  const auto cols = static_cast<size_t>(spec.shape.back());
  if (spec.grouped_on_rows) {
    for (size_t at = 0; at < values.size(); at += cols)
      FakeQuantizeRow({&values[at], cols}, {&values[at], cols}, bits, kGroup);
    return;
  }
  const auto rows = static_cast<size_t>(spec.shape[spec.shape.size() - 2]);
  std::vector<float> column(rows);
  for (size_t at = 0; at < values.size(); at += rows * cols) {
    for (size_t c = 0; c < cols; ++c) {
      for (size_t r = 0; r < rows; ++r) column[r] = values[at + r * cols + c];
      FakeQuantizeRow(column, column, bits, kGroup);
      for (size_t r = 0; r < rows; ++r) values[at + r * cols + c] = column[r];
    }
  }
}

std::shared_ptr<const RunModel> Load(const ModelConfig& config, ParamArrays<float> params,
                                     const RunNumerics& numerics, int threads) {
  ThreadPool pool(threads);
  return std::make_shared<const RunModel>(config, std::move(params), numerics, pool);
}

RunNumerics TrainedNumerics(const ModelConfig& config, int window) {
  RunNumerics run;
  run.numerics.act_bits = config.act_bits;
  if (config.kv_bits >= 2 && config.kv_bits <= 4)
    run.numerics.kv_bits = static_cast<Bits>(config.kv_bits);
  run.window = window;
  return run;
}

}  // namespace

std::shared_ptr<const RunModel> RunInFloat(const Checkpoint& checkpoint, int threads) {
  return Load(checkpoint.config, ParamArrays<float>(checkpoint.params), {}, threads);
}

std::shared_ptr<const RunModel> RunQuantised(const Checkpoint& checkpoint, const BitMap& bits,
                                             int window, int threads) {
  ParamArrays<float> params(checkpoint.params);
  for (const ParamSpec& spec : ModelParams(checkpoint.config)) {
    if (!spec.in_training || !params.Has(spec.path)) continue;
    std::vector<float>& values = params.At(spec.path);
    if (spec.quantised) {
      QuantiseLeaf(spec, bits.For(spec.path), values);
    } else {
      for (float& value : values) value = F16ToF32(F32ToF16(value));
    }
  }
  return Load(checkpoint.config, std::move(params), TrainedNumerics(checkpoint.config, window),
              threads);
}

std::shared_ptr<const RunModel> RunArchive(const CactModel& archive, int threads) {
  return Load(archive.config, ParamArrays<float>(archive.ToParams()),
              TrainedNumerics(archive.config, archive.kv_window), threads);
}

}  // namespace needle
