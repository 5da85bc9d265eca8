#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "api/base_model_impl.h"
#include "api/device_impl.h"
#include "api/device_tuning.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/pjrt/pjrt_backend.h"
#include "base/file.h"
#include "base/str_cat.h"
#include "data/examples.h"
#include "data/jsonl.h"
#include "format/adapter.h"
#include "format/sniff.h"
#include "train/state.h"
#include "train/trainer.h"

namespace needle {
namespace {

LongLines LongLinesOf(LongExamples choice) {
  switch (choice) {
    case LongExamples::kCut:
      return LongLines::kCut;
    case LongExamples::kDrop:
      return LongLines::kDrop;
    case LongExamples::kError:
      break;
  }
  return LongLines::kError;
}

Packing PackingOf(BatchPacking choice) {
  switch (choice) {
    case BatchPacking::kChain:
      return Packing::kChain;
    case BatchPacking::kPadded:
      return Packing::kPadded;
    case BatchPacking::kTree:
      break;
  }
  return Packing::kTree;
}

/// What training computes in, and how the adapter file records it.
struct Quantisation {
  Numerics numerics;
  std::string scheme;  // "W4", "mixed[...]"; "" in full precision
  int bits = 0;        // as in Adapter
  std::string map;
};

Result<Quantisation> QuantisationOf(Qat qat, const ModelConfig& config) {
  Quantisation q;
  if (qat == Qat::kNone) return q;
  q.numerics.quantise_weights = true;
  q.numerics.act_bits = config.act_bits;
  if (config.kv_bits < 8) {
    NEEDLE_ASSIGN(q.numerics.kv_bits, ParseBits(StrCat(config.kv_bits)));
  }
  if (qat == Qat::kAuto && !config.weight_bits.empty()) {
    NEEDLE_ASSIGN(q.numerics.bits, BitMap::Parse(config.weight_bits));
    q.map = config.weight_bits;
    q.scheme = StrCat("mixed[", q.map, "]");
    return q;
  }
  q.bits = qat == Qat::k2 ? 2 : 4;
  q.numerics.bits = BitMap::Uniform(qat == Qat::k2 ? Bits::k2 : Bits::k4);
  q.scheme = StrCat("W", q.bits);
  return q;
}

/// Hands the trainer's events to the caller's observer.
class Relay final : public TrainObserver {
 public:
  Relay(FinetuneObserver& to, FinetuneStart start) : to_(to), start_(std::move(start)) {}
  void OnStart(const TrainPlan& plan) override {
    start_.train_examples = plan.train_examples;
    start_.validation_examples = plan.validation_examples;
    start_.total_steps = plan.total_steps;
    start_.warmup_steps = plan.warmup_steps;
    start_.first_step = plan.first_step;
    start_.set_aside = plan.set_aside;
    to_.OnStart(start_);
  }
  void OnStep(const StepEvent& e) override {
    FinetuneStep step;
    step.step = e.step;
    step.total = e.total;
    step.epoch = e.epoch;
    step.epochs = e.epochs;
    step.loss = e.loss;
    step.grad_norm = e.grad_norm;
    step.lr = e.lr;
    step.rows = e.rows;
    step.target_tokens = e.target_tokens;
    step.tokens_computed = e.tokens_computed;
    step.seconds = e.seconds;
    to_.OnStep(step);
  }
  void OnEpoch(const EpochEvent& e) override {
    to_.OnEpoch({e.epoch, e.epochs, e.loss, e.val_loss});
  }
  bool ShouldStop() override { return to_.ShouldStop(); }

 private:
  FinetuneObserver& to_;
  FinetuneStart start_;
};

constexpr size_t kMostExamples = 1 << 20;  // of one update

/// A rank above the width of every adapted matrix says nothing more than that width.
Status CheckRank(int rank, const Checkpoint& base) {
  int64_t widest = 0;
  for (const ParamSpec& target : LoraTargets(base))
    widest = std::max({widest, target.shape[1], target.shape[2]});
  if (widest == 0 || rank <= widest) return {};
  return Error(Code::kInvalidArgument, StrCat("the LoRA rank is ", rank,
                                              ", but no adapted matrix of this base is wider than ",
                                              widest, "; 8 to 64 are usual"));
}

/// What holds a value that is not finite could be neither built nor run.
Status CheckFinite(const Adapter& adapter) {
  for (const auto& [path, pair] : adapter.lora)
    if (!AllFinite(pair.a) || !AllFinite(pair.b))
      return Error(Code::kInternal,
                   StrCat("the adapter is not written, because its factors of ", path,
                          " hold a value that is not a finite number; try a smaller --lr"));
  return {};
}

Status CheckOptions(const FinetuneOptions& o) {
  const auto bad = [](const std::string& what) { return Error(Code::kInvalidArgument, what); };
  if (o.lora_rank < 1)
    return bad(StrCat("the LoRA rank is ", o.lora_rank, "; it must be at least 1"));
  if (!std::isfinite(o.lora_alpha) || o.lora_alpha <= 0)
    return bad(StrCat("alpha is ", o.lora_alpha, "; it must be a finite number above 0"));
  if (!std::isfinite(o.lr) || o.lr < 0)
    return bad(StrCat("the learning rate is ", o.lr, "; it must be a finite number from 0 up"));
  if (o.batch_size < 1 || o.batch_size > kMostExamples)
    return bad(StrCat("the batch size is ", o.batch_size, "; it must be 1 to ", kMostExamples));
  if (o.max_len < 2) return bad(StrCat("--max-len is ", o.max_len, "; it must be at least 2"));
  if (o.out.empty()) return bad("the adapter has no name; give --out FILE");
  NEEDLE_TRY(CheckCanWrite(o.out));
  NEEDLE_TRY(WriteFormatOf(o.out));
  return CheckCanWrite(StatePathOf(o.out));
}

class FinetuneRun {
 public:
  FinetuneRun(const BaseModel& base, const FinetuneOptions& options, FinetuneObserver& observer)
      : base_(base.impl()), o_(options), observer_(observer) {}

  Result<FinetuneReport> Execute(const std::string& data_path) {
    const auto start = std::chrono::steady_clock::now();
    NEEDLE_TRY(CheckOptions(o_));
    NEEDLE_TRY(CheckRank(o_.lora_rank, base_.checkpoint));
    observer_.OnBackend(o_.device ? o_.device->backend() : "cpu");
    FinetuneData seen;
    NEEDLE_ASSIGN(const EncodedData data, Read(data_path, &seen));
    EncodedData held;
    if (!o_.validation.empty()) {
      NEEDLE_ASSIGN(held, Read(o_.validation, nullptr));
    }
    observer_.OnData(seen);
    NEEDLE_ASSIGN(const Quantisation quantisation, QuantisationOf(o_.qat, base_.checkpoint.config));
    NEEDLE_ASSIGN(const std::unique_ptr<Backend> backend, MakeBackend(quantisation));
    const TrainOptions train = TrainOptionsFor(std::max(data.longest, held.longest), quantisation);
    Relay relay(observer_, StartOf(quantisation));
    NEEDLE_ASSIGN(const TrainOutcome outcome,
                  Train(*backend, data.examples, held.examples, train, relay));
    FinetuneReport report;
    report.state_file = train.state_path;
    report.interrupted = outcome.interrupted;
    report.steps_done = outcome.steps_done;
    report.total_steps = outcome.plan.total_steps;
    report.last_loss = outcome.last_loss;
    report.last_val_loss = outcome.last_val_loss;
    if (!outcome.interrupted) {
      NEEDLE_ASSIGN(const Adapter adapter, AdapterOf(*backend, quantisation));
      NEEDLE_TRY(CheckFinite(adapter));
      NEEDLE_TRY(SaveAdapter(o_.out, adapter));
      NEEDLE_TRY(RemoveFile(train.state_path));
      report.adapter = o_.out;
    }
    report.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return report;
  }

 private:
  Result<EncodedData> Read(const std::string& path, FinetuneData* seen) const {
    NEEDLE_ASSIGN(const DataReport data,
                  LoadData(path, o_.skip_bad ? BadLines::kSkip : BadLines::kStop));
    EncodeOptions options;
    options.max_len = o_.max_len;
    options.long_lines = LongLinesOf(o_.long_examples);
    NEEDLE_ASSIGN(EncodedData encoded,
                  EncodeExamples(data.examples, base_.tokenizer, options, path));
    if (seen != nullptr) *seen = Describe(data, encoded);
    return encoded;
  }

  FinetuneData Describe(const DataReport& data, const EncodedData& encoded) const {
    FinetuneData d;
    d.examples = encoded.examples.size();
    d.skipped_lines = data.skipped;
    for (const DataProblem& problem : data.problems) d.problems.push_back(problem.message);
    d.longest = encoded.longest;
    d.seq_len = LengthBucket(encoded.longest, o_.max_len);
    (o_.long_examples == LongExamples::kDrop ? d.dropped : d.cut) = encoded.long_lines.size();
    d.lost_target = encoded.lost_target;
    const auto window = static_cast<size_t>(base_.checkpoint.config.EffectiveWindow());
    for (const EncodedExample& e : encoded.examples) d.beyond_window += e.ids.size() > window;
    return d;
  }

  TrainingSetup SetupOf(const Quantisation& quantisation) const {
    TrainingSetup setup;
    setup.lora.rank = o_.lora_rank;
    setup.lora.alpha = o_.lora_alpha;
    setup.lora.seed = o_.seed;
    setup.numerics = quantisation.numerics;
    return setup;
  }

  Result<std::unique_ptr<Backend>> MakeBackend(const Quantisation& quantisation) const {
    if (o_.device && o_.device->impl().client) return MakeDeviceBackend(quantisation);
    CpuBackendOptions options;
    static_cast<TrainingSetup&>(options) = SetupOf(quantisation);
    options.threads = o_.threads;
    return MakeCpuBackend(base_.checkpoint, options);
  }

  Result<std::unique_ptr<Backend>> MakeDeviceBackend(const Quantisation& quantisation) const {
    const Device::Impl& device = o_.device->impl();
    const int found = static_cast<int>(device.client->Devices().size());
    PjrtBackendOptions options = PjrtOptionsFor(device.kind, found, o_.tuning);
    static_cast<TrainingSetup&>(options) = SetupOf(quantisation);
    NEEDLE_ASSIGN(std::unique_ptr<PjrtBackend> backend,
                  MakePjrtBackend(device.client, base_.checkpoint, options));
    return std::unique_ptr<Backend>(std::move(backend));
  }

  TrainOptions TrainOptionsFor(size_t longest, const Quantisation& quantisation) const {
    TrainOptions train;
    train.epochs = o_.epochs;
    train.batch_size = o_.batch_size;
    train.lr = o_.lr;
    train.val_split = o_.val_split;
    train.seed = o_.seed;
    train.packing = PackingOf(o_.packing);
    train.padded_length = LengthBucket(longest, o_.max_len);
    train.state_path = StatePathOf(o_.out);
    train.resume = o_.resume;
    train.base = &base_.checkpoint;
    train.settings = StrCat(quantisation.scheme, " ", o_.lora_rank, " ", o_.lora_alpha);
    return train;
  }

  FinetuneStart StartOf(const Quantisation& quantisation) const {
    FinetuneStart start;
    start.numerics = quantisation.scheme;
    start.lora_rank = o_.lora_rank;
    start.lora_alpha = o_.lora_alpha;
    start.weight_groups = LoraTargets(base_.checkpoint).size();
    return start;
  }

  Result<Adapter> AdapterOf(const Backend& backend, const Quantisation& quantisation) const {
    Adapter adapter;
    NEEDLE_ASSIGN(adapter.lora, backend.Lora());
    adapter.scale = double{o_.lora_alpha} / o_.lora_rank;
    adapter.base = base_.name;
    adapter.rank = o_.lora_rank;
    adapter.qat_bits = quantisation.bits;
    adapter.qat_bits_map = quantisation.map;
    adapter.seed = o_.seed;
    return adapter;
  }

  const BaseModel::Impl& base_;
  const FinetuneOptions& o_;
  FinetuneObserver& observer_;
};

}  // namespace

Result<FinetuneReport> Finetune(const BaseModel& base, const std::string& data_path,
                                const FinetuneOptions& options, FinetuneObserver* observer) {
  FinetuneObserver silent;
  return FinetuneRun(base, options, observer != nullptr ? *observer : silent).Execute(data_path);
}

}  // namespace needle
