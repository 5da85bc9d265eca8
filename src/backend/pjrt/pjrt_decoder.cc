#include "backend/pjrt/pjrt_decoder.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "ops/engram.h"
#include "ops/rope.h"

namespace needle {
namespace {

using pjrt::AppendShape;
using pjrt::ArraySpec;
using pjrt::Buffer;
using pjrt::Client;
using ElementType = pjrt::DType;

constexpr int64_t kPromptRows = 128;  // rows of a call that reads a prompt
constexpr int64_t kFirstCapacity = 512;

pjrt::ProgramOptions OptionsOf(bool unroll) {
  pjrt::ProgramOptions o;
  o.trained = TrainedSet::kAll;  // the weights are taken as they are
  o.unroll = unroll;
  return o;
}

class Decoder final : public PjrtDecoder {
 public:
  Decoder(std::shared_ptr<Client> client, const ModelConfig& config, bool unroll)
      : client_(std::move(client)),
        config_(config),
        programs_(config, TrainingParams(config), OptionsOf(unroll)) {}

  Status Start(const Checkpoint& checkpoint) {
    for (const ParamSpec& spec : TrainingParams(config_))
      NEEDLE_TRY(Put("value/" + spec.path, checkpoint.params.at(spec.path).ToFloats().data(),
                     {ElementType::kF32, spec.shape}));
    NEEDLE_ASSIGN(Compiled merge, Compile(programs_.Merge(/*all=*/true)));
    NEEDLE_TRY(Run(merge));
    for (auto at = arrays_.begin(); at != arrays_.end();)
      at = at->first.rfind("value/", 0) == 0 ? arrays_.erase(at) : std::next(at);
    return {};
  }

  size_t vocab_size() const override { return static_cast<size_t>(config_.vocab_size); }
  size_t max_length() const override { return static_cast<size_t>(config_.max_seq_len); }
  size_t length() const override { return tokens_.size(); }
  void Truncate(size_t length) override {
    assert(length <= tokens_.size());
    tokens_.resize(length);
  }

  Result<std::span<const float>> Append(std::span<const int32_t> ids) override {
    assert(!ids.empty() && ids.size() <= max_length() - length());
    while (!ids.empty()) {
      const size_t n = ids.size() == 1 ? 1 : std::min<size_t>(ids.size(), kPromptRows);
      NEEDLE_TRY(AppendRows(ids.first(n), n == 1 ? 1 : kPromptRows));
      ids = ids.subspan(n);
    }
    NEEDLE_ASSIGN(logits_, arrays_.at("logits").Floats());
    return std::span<const float>(logits_);
  }

 private:
  struct Compiled {
    pjrt::Executable executable;
    std::vector<std::string> inputs, outputs;
  };

  Status Put(const std::string& name, const void* data, const ArraySpec& spec) {
    NEEDLE_ASSIGN(arrays_[name], client_->Upload(data, spec));
    return {};
  }

  Result<Compiled> Compile(hlo::NamedProgram program) {
    NEEDLE_ASSIGN(pjrt::Executable executable, client_->Compile(program.program, {}));
    return Compiled{std::move(executable), std::move(program.inputs), std::move(program.outputs)};
  }

  Status Run(Compiled& program) {
    std::vector<Buffer*> args;
    for (const std::string& name : program.inputs) args.push_back(&arrays_.at(name));
    NEEDLE_ASSIGN(std::vector<std::vector<Buffer>> results, program.executable.Run({args}));
    for (size_t k = 0; k < program.outputs.size(); ++k)
      arrays_[program.outputs[k]] = std::move(results[0][k]);
    return {};
  }

  /// Room for `rows` rows. Larger caches start empty, so what was there is appended again.
  Status Reserve(size_t rows) {
    if (static_cast<int64_t>(rows) <= capacity_) return {};
    capacity_ = std::max(kFirstCapacity, static_cast<int64_t>(std::bit_ceil(rows)));
    const int64_t L = config_.num_layers, K = config_.num_kv_heads, E = config_.HeadDim();
    const ArraySpec keys{ElementType::kF32, {L, K, capacity_, E}};
    const std::vector<float> zeros(static_cast<size_t>(keys.elements()));
    NEEDLE_TRY(Put("cache/k", zeros.data(), keys));
    NEEDLE_TRY(Put("cache/v", zeros.data(), keys));
    if (const auto sites = static_cast<int64_t>(config_.engram_layers.size()); sites > 0) {
      const ArraySpec values{ElementType::kF32, {sites, capacity_, config_.d_model}};
      const std::vector<float> none(static_cast<size_t>(values.elements()));
      NEEDLE_TRY(Put("cache/val", none.data(), values));
    }
    const RopeTable<float> table(static_cast<size_t>(capacity_), static_cast<size_t>(E),
                                 config_.rope_theta);
    const ArraySpec spec{ElementType::kF32, {capacity_, E / 2}};
    NEEDLE_TRY(Put("rope/cos", table.cos.data(), spec));
    NEEDLE_TRY(Put("rope/sin", table.sin.data(), spec));
    const std::vector<int32_t> again = std::move(tokens_);
    tokens_.clear();
    if (again.empty()) return {};
    const Result<std::span<const float>> done = Append(again);
    return done.ok() ? Status() : Status(done.error());
  }

  Status AppendRows(std::span<const int32_t> ids, int64_t rows) {
    NEEDLE_TRY(Reserve(tokens_.size() + static_cast<size_t>(rows)));
    const size_t start = tokens_.size();
    tokens_.insert(tokens_.end(), ids.begin(), ids.end());
    NEEDLE_TRY(PutRows(start, rows));
    std::optional<Compiled>& program = compiled_[{rows, capacity_}];
    if (!program) {
      NEEDLE_ASSIGN(program, Compile(programs_.Append({rows, capacity_})));
    }
    return Run(*program);
  }

  /// The rows from `start` on, and free ones behind them.
  Status PutRows(size_t start, int64_t rows) {
    const auto n = static_cast<size_t>(rows);
    std::vector<int32_t> tokens(n, config_.pad_token_id);
    std::copy(tokens_.begin() + static_cast<std::ptrdiff_t>(start), tokens_.end(), tokens.begin());
    const auto first = static_cast<int32_t>(start);
    const auto last = static_cast<int32_t>(tokens_.size() - start) - 1;
    NEEDLE_TRY(Put("block/tokens", tokens.data(), {ElementType::kS32, {rows}}));
    NEEDLE_TRY(Put("block/start", &first, {ElementType::kS32, {}}));
    NEEDLE_TRY(Put("block/last", &last, {ElementType::kS32, {1}}));
    if (config_.engram_layers.empty()) return {};
    std::vector<int32_t> parent(tokens_.size());
    for (size_t t = 0; t < parent.size(); ++t) parent[t] = static_cast<int32_t>(t) - 1;
    const auto tables = static_cast<size_t>(config_.EngramTables());
    std::vector<int32_t> slots(n * tables, -1), conv(n * (kConvTaps - 1), -1);
    for (size_t t = start; t < tokens_.size(); ++t) {
      const std::span<int32_t> row{&slots[(t - start) * tables], tables};
      EngramSlots(tokens_, parent, static_cast<int32_t>(t), config_.engram_orders,
                  config_.EngramHeads(), static_cast<uint32_t>(config_.engram_slots), row);
      for (size_t j = 0; j < tables; ++j)
        if (row[j] >= 0) row[j] += static_cast<int32_t>(j) * config_.engram_slots;
      for (size_t k = 0; k + 1 < kConvTaps; ++k) {
        const int back = (static_cast<int>(k) + 1) * config_.ConvDilation();
        conv[k * n + t - start] = std::max(static_cast<int32_t>(t) - back, -1);
      }
    }
    NEEDLE_TRY(Put("block/slots", slots.data(),
                   {ElementType::kS32, {static_cast<int64_t>(slots.size())}}));
    return Put("block/conv_rows", conv.data(), {ElementType::kS32, {kConvTaps - 1, rows}});
  }

  std::shared_ptr<Client> client_;
  ModelConfig config_;
  pjrt::Programs programs_;
  std::map<std::string, Buffer> arrays_;
  std::map<AppendShape, std::optional<Compiled>> compiled_;
  int64_t capacity_ = 0;
  std::vector<int32_t> tokens_;
  std::vector<float> logits_;
};

}  // namespace

Result<std::unique_ptr<PjrtDecoder>> MakePjrtDecoder(std::shared_ptr<pjrt::Client> client,
                                                     const Checkpoint& checkpoint, bool unroll) {
  auto decoder = std::make_unique<Decoder>(std::move(client), checkpoint.config, unroll);
  NEEDLE_TRY(decoder->Start(checkpoint));
  return std::unique_ptr<PjrtDecoder>(std::move(decoder));
}

Result<std::vector<int32_t>> DecodeGreedily(PjrtDecoder& decoder, std::span<const int32_t> prompt,
                                            int32_t end, size_t most) {
  std::vector<int32_t> out;
  std::span<const int32_t> next = prompt;
  while (out.size() < most && decoder.length() + next.size() <= decoder.max_length()) {
    NEEDLE_ASSIGN(const std::span<const float> logits, decoder.Append(next));
    const auto best = std::max_element(logits.begin(), logits.end());
    const auto token = static_cast<int32_t>(best - logits.begin());
    if (token == end) break;
    out.push_back(token);
    next = std::span<const int32_t>(out).last(1);
  }
  return out;
}

}  // namespace needle
