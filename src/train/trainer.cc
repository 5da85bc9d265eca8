#include "train/trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/link.h"
#include "base/random.h"
#include "base/str_cat.h"
#include "data/split.h"
#include "train/schedule.h"
#include "train/state.h"

namespace needle {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A batch of examples as the backend takes it.
struct Batch {
  Forest forest;
  std::vector<int32_t> rows;
  double target_tokens = 0;
};

class Run {
 public:
  Run(Backend& backend, std::span<const EncodedExample> examples,
      std::span<const EncodedExample> validation, const TrainOptions& options,
      TrainObserver& observer)
      : backend_(backend),
        examples_(examples),
        validation_(validation),
        o_(options),
        observer_(observer),
        generator_(options.seed) {}

  Result<TrainOutcome> Execute() {
    NEEDLE_TRY(CheckOptions());
    SplitExamples();
    MakePlan();
    fingerprint_ = Fingerprint();
    NEEDLE_TRY(o_.resume ? Resume() : SetStoppedRunAside());
    observer_.OnStart(outcome_.plan);
    saved_at_ = Clock::now();
    int64_t step = 0;
    for (int epoch = 1; epoch <= epochs_ && step < plan().total_steps; ++epoch) {
      const std::vector<int32_t> order = EpochRows();
      for (const std::span<const int32_t> batch : Batches(order, o_.batch_size)) {
        if (step == plan().total_steps) break;
        if (++step <= plan().first_step) continue;  // done before the run was resumed
        NEEDLE_TRY(Update(step, epoch, batch));
        if (observer_.ShouldStop() && step < plan().total_steps) {
          outcome_.interrupted = true;
          NEEDLE_TRY(SaveState());
          return outcome_;
        }
        if (SecondsSince(saved_at_) > o_.state_seconds) NEEDLE_TRY(SaveState());
      }
      if (step >= plan().first_step) NEEDLE_TRY(EndEpoch(epoch));
    }
    return outcome_;
  }

 private:
  TrainPlan& plan() { return outcome_.plan; }

  Status CheckOptions() const {
    const auto bad = [](const std::string& what) { return Error(Code::kInvalidArgument, what); };
    if (examples_.empty()) return bad("there is no example to train on");
    if (o_.epochs < 1) return bad(StrCat("epochs is ", o_.epochs, "; it must be at least 1"));
    if (o_.batch_size < 1) return bad("the batch size is 0; it must be at least 1");
    if (!(o_.lr >= 0) || !std::isfinite(o_.lr))
      return bad(StrCat("the learning rate is ", o_.lr, "; it must be a number >= 0"));
    if (!(o_.val_split >= 0 && o_.val_split < 1))
      return bad(StrCat("the validation share is ", o_.val_split, "; it must be in [0, 1)"));
    return {};
  }

  void SplitExamples() {
    DataSplit split;
    if (validation_.empty()) {
      split = Split(examples_.size(), o_.val_split, generator_);
    } else {
      for (size_t i = 0; i < examples_.size(); ++i) split.train.push_back(static_cast<int32_t>(i));
    }
    for (const int32_t i : split.train) train_.push_back(&examples_[static_cast<size_t>(i)]);
    for (const int32_t i : split.validation) held_.push_back(&examples_[static_cast<size_t>(i)]);
    for (const EncodedExample& e : validation_) held_.push_back(&e);
  }

  void MakePlan() {
    plan().train_examples = train_.size();
    plan().validation_examples = held_.size();
    plan().steps_per_epoch =
        static_cast<int64_t>((train_.size() + o_.batch_size - 1) / o_.batch_size);
    plan().total_steps = plan().steps_per_epoch * o_.epochs;
    if (o_.max_steps > 0) plan().total_steps = std::min(plan().total_steps, o_.max_steps);
    epochs_ = static_cast<int>((plan().total_steps + plan().steps_per_epoch - 1) /
                               plan().steps_per_epoch);
    plan().warmup_steps = WarmupSteps(plan().total_steps);
  }

  /// The order of one epoch; groups of neighbours stay together when asked.
  std::vector<int32_t> EpochRows() {
    if (o_.shuffle_group <= 1) return EpochOrder(train_.size(), generator_);
    const size_t group = o_.shuffle_group;
    std::vector<int32_t> order;
    for (const int32_t g : EpochOrder((train_.size() + group - 1) / group, generator_))
      for (size_t i = static_cast<size_t>(g) * group;
           i < std::min(train_.size(), (static_cast<size_t>(g) + 1) * group); ++i)
        order.push_back(static_cast<int32_t>(i));
    return order;
  }

  Batch MakeBatch(const std::vector<const EncodedExample*>& from,
                  std::span<const int32_t> indices) const {
    Batch batch;
    std::vector<Sequence> sequences;
    for (const int32_t i : indices) {
      const EncodedExample& e = *from[static_cast<size_t>(i)];
      sequences.push_back(e.sequence());
      batch.rows.push_back(e.row);
    }
    batch.target_tokens = CountedWeight(sequences);
    batch.forest =
        BuildForest(sequences, o_.packing, static_cast<float>(std::max(batch.target_tokens, 1.0)),
                    o_.padded_length);
    return batch;
  }

  Status Update(int64_t step, int epoch, std::span<const int32_t> indices) {
    const Clock::time_point start = Clock::now();
    const Batch batch = MakeBatch(train_, indices);
    const float lr = LearningRate(o_.lr, step - 1, plan().warmup_steps, plan().total_steps);
    NEEDLE_ASSIGN(const StepResult result,
                  backend_.Step(batch.forest, ScalarsOf(o_.adamw, lr, static_cast<int>(step))));
    if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm))
      return NotFinite(step, batch, result);
    outcome_.steps_done = step;
    outcome_.last_loss = result.loss;
    StepEvent event;
    event.step = step;
    event.total = plan().total_steps;
    event.epoch = epoch;
    event.epochs = epochs_;
    event.loss = result.loss;
    event.grad_norm = result.grad_norm;
    event.lr = lr;
    event.rows = batch.rows;
    event.target_tokens = batch.target_tokens;
    event.tokens_computed = batch.forest.rows();
    event.seconds = SecondsSince(start);
    observer_.OnStep(event);
    return {};
  }

  Error NotFinite(int64_t step, const Batch& batch, const StepResult& result) {
    std::string rows;
    for (const int32_t row : batch.rows) rows += StrCat(rows.empty() ? "" : ", ", row + 1);
    const std::string first = backend_.ExplainNonFinite(batch.forest);
    std::string saved;
    if (!o_.state_path.empty() && step > 1) {
      const Status status = SaveState();
      if (status.ok())
        saved = StrCat(" The state before this step is kept in ", o_.state_path, ".");
    }
    return Error(Code::kInternal,
                 StrCat("step ", step, ": the ", std::isfinite(result.loss) ? "gradient" : "loss",
                        " is not a finite number, on the data lines ", rows, "; ",
                        first.empty() ? "the forward is finite, so it arose in the backward"
                                      : StrCat("the first such value came from ", first),
                        ". Try a smaller --lr, or look at these lines.", saved));
  }

  Status EndEpoch(int epoch) {
    EpochEvent event;
    event.epoch = epoch;
    event.epochs = epochs_;
    event.loss = outcome_.last_loss;
    if (!held_.empty()) {
      std::vector<int32_t> all(held_.size());
      for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
      double sum = 0;
      const auto batches = Batches(all, o_.batch_size);
      for (const std::span<const int32_t> indices : batches) {
        NEEDLE_ASSIGN(const double loss, backend_.Evaluate(MakeBatch(held_, indices).forest));
        if (!std::isfinite(loss)) return ValidationNotFinite(epoch);
        sum += loss;
      }
      event.val_loss = sum / static_cast<double>(batches.size());
    }
    outcome_.last_val_loss = event.val_loss;
    observer_.OnEpoch(event);
    return {};
  }

  Error ValidationNotFinite(int epoch) const {
    return Error(Code::kInternal,
                 StrCat("epoch ", epoch, ": the validation loss after step ", outcome_.steps_done,
                        " is not a finite number, so what was trained is of no use. Try a smaller "
                        "--lr."));
  }

  /// A short text that tells this run from another: data, order and settings.
  std::string Fingerprint() const {
    RunFingerprint f;
    for (const auto* set : {&train_, &held_})
      for (const EncodedExample* e : *set) f.Add(*e);
    f.Add(StrCat(o_.epochs, " ", o_.batch_size, " ", o_.lr, " ", o_.seed, " ", o_.shuffle_group,
                 " ", o_.max_steps, " ", static_cast<int>(o_.packing), " ", o_.settings));
    return f.Finish();
  }

  Status SaveState() {
    saved_at_ = Clock::now();
    if (o_.state_path.empty()) return {};
    SavedRun run;
    NEEDLE_ASSIGN(run.state, backend_.State());
    run.step = outcome_.steps_done;
    run.last_loss = outcome_.last_loss;
    run.base = BaseDigest();
    run.fingerprint = fingerprint_;
    return SaveTrainState(o_.state_path, run);
  }

  /// Computed when it is first asked for: most runs neither stop nor go on.
  const std::string& BaseDigest() {
    if (base_digest_.empty() && o_.base != nullptr) base_digest_ = DigestOf(*o_.base);
    return base_digest_;
  }

  Status SetStoppedRunAside() {
    if (o_.state_path.empty()) return {};
    const std::string old = SetAsidePathOf(o_.state_path);
    NEEDLE_ASSIGN(const std::optional<int64_t> step, StepOfSavedRun(o_.state_path));
    if (!step) return {};
    NEEDLE_ASSIGN(const std::optional<int64_t> older, StepOfSavedRun(old));
    NEEDLE_TRY(RenameFile(o_.state_path, old));
    plan().set_aside =
        StrCat(o_.state_path, " held a run that was stopped after step ", *step,
               "; this run starts anew, and that one is kept as ", old,
               older ? StrCat(" (in place of one that was stopped after step ", *older, ")") : "",
               "; to go on with it, rename it back and give --resume");
    return {};
  }

  Status Resume() {
    NEEDLE_ASSIGN(const SavedRun saved, LoadTrainState(o_.state_path));
    if (saved.base != BaseDigest())
      return Error(Code::kInvalidArgument,
                   StrCat(o_.state_path,
                          ": this state belongs to a run on another base (its parameters differ); "
                          "give the same one, or start anew without --resume"));
    if (saved.fingerprint != fingerprint_)
      return Error(Code::kInvalidArgument,
                   StrCat(o_.state_path,
                          ": this state belongs to a run with other data or settings; "
                          "give the same ones, or start anew without --resume"));
    NEEDLE_TRY(backend_.SetState(saved.state));
    plan().first_step = outcome_.steps_done = saved.step;
    outcome_.last_loss = saved.last_loss;
    return {};
  }

  Backend& backend_;
  std::span<const EncodedExample> examples_, validation_;
  const TrainOptions& o_;
  TrainObserver& observer_;
  NumpyGenerator generator_;
  std::vector<const EncodedExample*> train_, held_;
  TrainOutcome outcome_;
  int epochs_ = 0;
  std::string fingerprint_, base_digest_;
  Clock::time_point saved_at_;
};

}  // namespace

Result<TrainOutcome> Train(Backend& backend, std::span<const EncodedExample> examples,
                           std::span<const EncodedExample> validation, const TrainOptions& options,
                           TrainObserver& observer) {
  return Run(backend, examples, validation, options, observer).Execute();
}

}  // namespace needle
