#include "runtime/decoder_model.h"

namespace needle {
namespace {

std::shared_ptr<const RunModel> Load(const ModelConfig& config, const TensorMap& params,
                                     const RunNumerics& numerics, int threads) {
  ThreadPool pool(threads);
  return std::make_shared<const RunModel>(config, ParamArrays<float>(params), numerics, pool);
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
  return Load(checkpoint.config, checkpoint.params, {}, threads);
}

std::shared_ptr<const RunModel> RunQuantised(const Checkpoint& checkpoint, const BitMap& bits,
                                             int window, int threads) {
  RunNumerics run = TrainedNumerics(checkpoint.config, window);
  run.numerics.quantise_weights = true;
  run.numerics.bits = bits;
  return Load(checkpoint.config, checkpoint.params, run, threads);
}

std::shared_ptr<const RunModel> RunArchive(const CactModel& archive, int threads) {
  return Load(archive.config, archive.ToParams(),
              TrainedNumerics(archive.config, archive.kv_window), threads);
}

}  // namespace needle
