// The training loop: resuming, interruption, numbers that are not finite, odd batches, threads.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/file.h"
#include "data/split.h"
#include "support/scratch.h"
#include "train/run_support.h"
#include "train/state.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

bool Same(const TrainState& a, const TrainState& b) {
  return a.values == b.values && a.first_moment == b.first_moment &&
         a.second_moment == b.second_moment;
}

TrainOptions Quick() {
  TrainOptions o = ReferenceRun();
  o.epochs = 2;
  o.batch_size = 4;
  return o;
}

/// Trains `base` and stops after that step; what the run reported.
Recorder Stopped(const Checkpoint& base, const std::vector<EncodedExample>& examples,
                 const TrainOptions& options, int64_t step) {
  Recorder recorder;
  recorder.stop_after = step;
  const auto outcome = Train(*Cpu(base, SmallLora()), examples, {}, options, recorder);
  EXPECT_TRUE(outcome.ok() && outcome->interrupted);
  return recorder;
}

TEST(Training, AnInterruptedRunThatIsResumedEndsAtTheSameBits) {
  const Checkpoint base = ReferenceModel("tiny");
  const auto examples = ShortExamples(12, 24);
  const auto whole = Cpu(base, SmallLora());
  Recorder uninterrupted;
  const auto first = Train(*whole, examples, {}, Quick(), uninterrupted);
  ASSERT_TRUE(first.ok()) << first.error().message();
  const int64_t total = first->plan.total_steps;
  ASSERT_EQ(total, 6);
  for (int64_t stop = 1; stop < total; ++stop) {
    const ScratchFolder folder;
    TrainOptions options = Quick();
    options.state_path = folder.File("state.safetensors");
    Recorder before, after;
    before.stop_after = stop;
    const auto part = Cpu(base, SmallLora());
    const auto stopped = Train(*part, examples, {}, options, before);
    ASSERT_TRUE(stopped.ok()) << stopped.error().message();
    EXPECT_TRUE(stopped->interrupted);
    EXPECT_EQ(stopped->steps_done, stop);
    options.resume = true;
    const auto rest = Cpu(base, SmallLora());
    const auto resumed = Train(*rest, examples, {}, options, after);
    ASSERT_TRUE(resumed.ok()) << resumed.error().message();
    EXPECT_EQ(resumed->plan.first_step, stop);
    EXPECT_EQ(resumed->steps_done, total);
    EXPECT_TRUE(Same(*rest->State(), *whole->State())) << "stopped after step " << stop;
    ASSERT_EQ(before.steps.size() + after.steps.size(), uninterrupted.steps.size());
    for (size_t k = 0; k < after.steps.size(); ++k) {
      EXPECT_EQ(after.steps[k].loss, uninterrupted.steps[k + before.steps.size()].loss);
      EXPECT_EQ(after.rows[k], uninterrupted.rows[k + before.rows.size()]);
    }
    EXPECT_EQ(*resumed->last_val_loss, *first->last_val_loss);
  }
}

TEST(Training, AStateOfAnotherRunIsRefusedAndChangesNothing) {
  const Checkpoint base = ReferenceModel("tiny");
  const auto examples = ShortExamples(8, 16);
  const ScratchFolder folder;
  TrainOptions options = Quick();
  options.state_path = folder.File("state.safetensors");
  Stopped(base, examples, options, 1);
  options.resume = true;
  for (const bool data : {true, false}) {
    TrainOptions other = options;
    if (!data) other.seed = 4;
    const auto backend = Cpu(base, SmallLora());
    const TrainState untouched = *backend->State();
    Recorder none;
    const auto refused = Train(*backend, data ? ShortExamples(9, 16) : examples, {}, other, none);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message().find("other data or settings"), std::string::npos);
    EXPECT_TRUE(none.steps.empty());
    EXPECT_TRUE(Same(*backend->State(), untouched));
  }
}

TEST(Training, AStateOfAnotherBaseIsRefused) {
  const Checkpoint base = ReferenceModel("tiny");
  Checkpoint other = base, wider = base;
  Tensor& last = other.params.rbegin()->second;
  last.Put(last.size() - 1, last.At(last.size() - 1) + 1);
  wider.config.rope_theta *= 2;
  const auto examples = ShortExamples(8, 16);
  const ScratchFolder folder;
  TrainOptions options = Quick();
  options.base = &base;
  options.state_path = folder.File("state.safetensors");
  Stopped(base, examples, options, 1);
  options.resume = true;
  for (const Checkpoint* wrong : {&other, &wider}) {
    options.base = wrong;
    Recorder none;
    const auto refused = Train(*Cpu(*wrong, SmallLora()), examples, {}, options, none);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
    EXPECT_NE(refused.error().message().find("another base"), std::string::npos);
    EXPECT_TRUE(none.steps.empty());
  }
  options.base = &base;
  Recorder rest;
  EXPECT_TRUE(Train(*Cpu(base, SmallLora()), examples, {}, options, rest).ok());
}

TEST(Training, AnEpochThatAStopCutOffIsValidatedByTheResumedRun) {
  const Checkpoint base = ReferenceModel("tiny");
  const auto examples = ShortExamples(12, 24);
  Recorder whole;
  ASSERT_TRUE(Train(*Cpu(base, SmallLora()), examples, {}, Quick(), whole).ok());
  const ScratchFolder folder;
  TrainOptions options = Quick();
  options.state_path = folder.File("state.safetensors");
  // After the last step of the first epoch.
  EXPECT_TRUE(Stopped(base, examples, options, 3).epochs.empty());
  Recorder after;
  options.resume = true;
  ASSERT_TRUE(Train(*Cpu(base, SmallLora()), examples, {}, options, after).ok());
  ASSERT_EQ(after.epochs.size(), 2u);
  for (size_t e = 0; e < 2; ++e) {
    EXPECT_EQ(after.epochs[e].epoch, whole.epochs[e].epoch);
    EXPECT_EQ(after.epochs[e].loss, whole.epochs[e].loss);
    EXPECT_EQ(*after.epochs[e].val_loss, *whole.epochs[e].val_loss);
  }
}

TEST(Training, AStoppedRunThatIsNotResumedIsKeptUnderAnotherName) {
  const Checkpoint base = ReferenceModel("tiny");
  const auto examples = ShortExamples(12, 24);
  const ScratchFolder folder;
  TrainOptions options = Quick();
  options.state_path = folder.File("state");
  EXPECT_EQ(Stopped(base, examples, options, 4).plan.set_aside, "");
  const Recorder second = Stopped(base, examples, options, 2);
  Recorder third;
  EXPECT_NE(second.plan.set_aside.find("after step 4"), std::string::npos);
  EXPECT_NE(second.plan.set_aside.find(options.state_path + ".old"), std::string::npos);
  EXPECT_EQ(LoadTrainState(options.state_path)->step, 2);
  EXPECT_EQ(LoadTrainState(options.state_path + ".old")->step, 4);
  ASSERT_TRUE(Train(*Cpu(base, SmallLora()), examples, {}, options, third).ok());
  EXPECT_NE(third.plan.set_aside.find("in place of one that was stopped after step 4"),
            std::string::npos);
  EXPECT_EQ(LoadTrainState(options.state_path + ".old")->step, 2);
}

TEST(Training, AFileThatIsNoStateIsNeverWrittenOver) {
  const Checkpoint base = ReferenceModel("tiny");
  const auto examples = ShortExamples(8, 16);
  for (const bool old : {false, true}) {
    const ScratchFolder folder;
    TrainOptions options = Quick();
    options.state_path = folder.File("state");
    if (old) Stopped(base, examples, options, 1);
    const std::string mine = options.state_path + (old ? ".old" : "");
    ASSERT_TRUE(WriteFileAtomically(mine, std::string_view("my notes")).ok());
    Recorder none;
    const auto refused = Train(*Cpu(base, SmallLora()), examples, {}, options, none);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
    EXPECT_NE(refused.error().message().find(mine), std::string::npos);
    EXPECT_TRUE(none.steps.empty());
    EXPECT_EQ(*ReadTextFile(mine), "my notes");
  }
}

TEST(Training, AnInfiniteWeightIsAnErrorThatNamesStepLinesAndOperation) {
  Checkpoint base = ReferenceModel("tiny");
  const std::string path = "stack/layers/block/self_attn/v_proj/kernel";
  Tensor& v = base.params.at(path);
  v.Put(2 * v.size() / 5 + 7, INFINITY);  // in layer 2 of five
  const auto examples = ShortExamples(6, 16);
  const auto backend = Cpu(base, SmallLora());
  const TrainState before = *backend->State();
  TrainOptions options = Quick();
  options.val_split = 0;
  Recorder recorder;
  const auto outcome = Train(*backend, examples, {}, options, recorder);
  ASSERT_FALSE(outcome.ok());
  const std::string said = outcome.error().message();
  EXPECT_NE(said.find("step 1"), std::string::npos) << said;
  EXPECT_NE(said.find("the q, k, v and gate projections of layer 2"), std::string::npos) << said;
  NumpyGenerator generator(3);
  const std::vector<int32_t> order = EpochOrder(examples.size(), generator);
  std::string lines = "on the data lines ";
  for (size_t i = 0; i < 4; ++i) lines += (i ? ", " : "") + std::to_string(order[i] + 1);
  EXPECT_NE(said.find(lines), std::string::npos) << said << " has no " << lines;
  EXPECT_TRUE(Same(*backend->State(), before)) << "values and moments are as they were";
  EXPECT_TRUE(recorder.steps.empty());
}

/// Passes everything on, but reports a loss that is not finite at one step, as a device would.
class Poisoned : public Backend {
 public:
  Poisoned(Backend& real, int step) : real_(real), step_(step) {}
  std::string Name() const override { return real_.Name(); }
  std::string Description() const override { return real_.Description(); }
  Result<StepResult> Step(const Forest& batch, const UpdateScalars& scalars) override {
    if (++steps_ == step_) return StepResult{NAN, 1};
    return real_.Step(batch, scalars);
  }
  Result<double> Evaluate(const Forest& batch) override { return real_.Evaluate(batch); }
  std::string ExplainNonFinite(const Forest&) override { return ""; }
  Result<TrainState> State() const override { return real_.State(); }
  Status SetState(const TrainState& state) override { return real_.SetState(state); }
  Result<std::map<std::string, LoraPair>> Lora() const override { return real_.Lora(); }
  Result<TensorMap> Params() const override { return real_.Params(); }

 private:
  Backend& real_;
  int step_, steps_ = 0;
};

/// Trains as always, but validates to NaN.
class Blind final : public Poisoned {
 public:
  explicit Blind(Backend& real) : Poisoned(real, -1) {}
  Result<double> Evaluate(const Forest&) override { return NAN; }
};

TEST(Training, AValidationLossThatIsNotFiniteStopsTheRun) {
  const ScratchFolder folder;
  TrainOptions options = Quick();
  options.state_path = folder.File("state.safetensors");
  const auto real = Cpu(ReferenceModel("tiny"), SmallLora());
  Blind blind(*real);
  Recorder recorder;
  const auto outcome = Train(blind, ShortExamples(12, 24), {}, options, recorder);
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code(), Code::kInternal);
  EXPECT_NE(outcome.error().message().find("epoch 1: the validation loss after step 3"),
            std::string::npos);
  EXPECT_TRUE(recorder.epochs.empty());
  EXPECT_FALSE(FileExists(options.state_path));
}

TEST(TrainState, ValuesThatAreNotFiniteAreNotWritten) {
  const ScratchFolder folder;
  for (const float bad : {NAN, INFINITY}) {
    SavedRun run;
    run.state.values["a"] = {1, 2};
    run.state.first_moment["a"] = {0, bad};
    const Status saved = SaveTrainState(folder.File("state"), run);
    ASSERT_FALSE(saved.ok());
    EXPECT_NE(saved.error().message().find("first_moment/a"), std::string::npos);
    EXPECT_FALSE(FileExists(folder.File("state")));
  }
}

/// A device that has gone: it can give its state no more.
class Gone final : public Backend {
 public:
  explicit Gone(Backend& real) : real_(real) {}
  std::string Name() const override { return real_.Name(); }
  std::string Description() const override { return real_.Description(); }
  Result<StepResult> Step(const Forest& batch, const UpdateScalars& scalars) override {
    return real_.Step(batch, scalars);
  }
  Result<double> Evaluate(const Forest& batch) override { return real_.Evaluate(batch); }
  std::string ExplainNonFinite(const Forest&) override { return ""; }
  Result<TrainState> State() const override { return Lost(); }
  Status SetState(const TrainState& state) override { return real_.SetState(state); }
  Result<std::map<std::string, LoraPair>> Lora() const override { return Lost(); }
  Result<TensorMap> Params() const override { return Lost(); }

 private:
  static Error Lost() { return Error(Code::kUnavailable, "the device is lost"); }
  Backend& real_;
};

TEST(Training, AStateThatTheDeviceCannotGiveIsAnErrorAndNothingIsWritten) {
  const ScratchFolder folder;
  TrainOptions options = Quick();
  options.state_path = folder.File("state.safetensors");
  options.state_seconds = -1;  // after every step
  const auto real = Cpu(ReferenceModel("tiny"), SmallLora());
  Gone gone(*real);
  Recorder recorder;
  const auto outcome = Train(gone, ShortExamples(12, 24), {}, options, recorder);
  ASSERT_FALSE(outcome.ok());
  EXPECT_NE(outcome.error().message().find("the device is lost"), std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(options.state_path));
}

TEST(Training, ALossThatIsNotFiniteKeepsTheLastGoodStateOnDisk) {
  const Checkpoint base = ReferenceModel("tiny");
  const auto examples = ShortExamples(12, 24);
  const ScratchFolder folder;
  TrainOptions options = Quick();
  options.state_path = folder.File("state.safetensors");
  const auto real = Cpu(base, SmallLora());
  Poisoned poisoned(*real, 4);
  Recorder recorder;
  const auto outcome = Train(poisoned, examples, {}, options, recorder);
  ASSERT_FALSE(outcome.ok());
  const std::string said = outcome.error().message();
  EXPECT_NE(said.find("step 4: the loss is not a finite number"), std::string::npos) << said;
  EXPECT_NE(said.find(options.state_path), std::string::npos) << said;
  const auto saved = LoadTrainState(options.state_path);
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ(saved->step, 3);
  EXPECT_TRUE(Same(saved->state, *real->State()));
  // Nothing is lost: the run goes on from there and ends as if nothing had happened.
  options.resume = true;
  const auto rest = Cpu(base, SmallLora()), whole = Cpu(base, SmallLora());
  Recorder a, b;
  ASSERT_TRUE(Train(*rest, examples, {}, options, a).ok());
  ASSERT_TRUE(Train(*whole, examples, {}, Quick(), b).ok());
  EXPECT_TRUE(Same(*rest->State(), *whole->State()));
}

TEST(Training, TheShortLastBatchIsWeighedByItsOwnTokens) {
  const Checkpoint base = ReferenceModel("tiny");
  const auto examples = ShortExamples(10, 24);
  const auto backend = Cpu(base, SmallLora()), other = Cpu(base, SmallLora());
  TrainOptions options = Quick();
  options.val_split = 0;
  options.epochs = 1;
  options.lr = 0;  // nothing moves, so every batch can be asked for again
  Recorder recorder;
  ASSERT_TRUE(Train(*backend, examples, {}, options, recorder).ok());
  ASSERT_EQ(recorder.steps.size(), 3u);
  EXPECT_EQ(recorder.plan.steps_per_epoch, 3);
  EXPECT_EQ(recorder.rows[2].size(), 2u);
  std::vector<int32_t> all;
  for (size_t k = 0; k < 3; ++k) {
    const Forest forest = ForestOf(examples, recorder.rows[k]);
    double weights = 0;
    for (const float w : forest.target_weight) weights += double{w};
    EXPECT_NEAR(weights, 1, 1e-5);
    EXPECT_DOUBLE_EQ(recorder.steps[k].loss, *other->Evaluate(forest));
    all.insert(all.end(), recorder.rows[k].begin(), recorder.rows[k].end());
  }
  std::sort(all.begin(), all.end());
  for (int32_t i = 0; i < 10; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
}

TEST(Training, ABatchWithoutTargetsHasLossZeroAndOnlyDecays) {
  const Checkpoint base = ReferenceModel("tiny");
  auto examples = ShortExamples(4, 24);
  for (EncodedExample& e : examples) std::fill(e.weights.begin(), e.weights.end(), 0.0f);
  const auto backend = Cpu(base, SmallLora());
  const TrainState before = *backend->State();
  TrainOptions options = Quick();
  options.val_split = 0;
  Recorder recorder;
  const auto outcome = Train(*backend, examples, {}, options, recorder);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message();
  ASSERT_EQ(recorder.steps.size(), 2u);
  for (const StepEvent& e : recorder.steps) {
    EXPECT_EQ(e.loss, 0);
    EXPECT_EQ(e.grad_norm, 0);
    EXPECT_EQ(e.target_tokens, 0);
  }
  const TrainState after = *backend->State();
  for (const auto& [name, values] : after.values)
    for (size_t i = 0; i < values.size(); ++i)  // lr 0, then 5e-3, times the decay of 1e-4
      ASSERT_NEAR(values[i], before.values.at(name)[i] * (1 - 5e-3f * 1e-4f), 1e-7);
}

TEST(Training, TheAdapterIsTheSameBitForBitOnAnyNumberOfThreads) {
  const Checkpoint base = ReferenceModel("tiny");
  const auto examples = ShortExamples(16, 64);
  for (const TrainedSet set : {TrainedSet::kLora, TrainedSet::kAll})
    for (const bool quantised : {false, true}) {
      TrainState want;
      for (const int threads : {1, 2, 3, 8}) {
        CpuBackendOptions o = SmallLora(threads);
        o.trained = set;
        o.numerics.quantise_weights = quantised;
        o.numerics.act_bits = quantised ? 8 : 0;
        const auto backend = Cpu(base, o);
        TrainOptions options = Quick();
        options.max_steps = 3;
        options.batch_size = 8;
        Recorder recorder;
        ASSERT_TRUE(Train(*backend, examples, {}, options, recorder).ok());
        if (threads == 1) want = *backend->State();
        EXPECT_TRUE(Same(*backend->State(), want))
            << threads << " threads" << (quantised ? ", quantised" : "");
      }
    }
}

TEST(Training, TheScheduleAndTheOrderFollowThePlan) {
  const Checkpoint base = ReferenceModel("tiny");
  const auto examples = ShortExamples(9, 16);
  const auto backend = Cpu(base, SmallLora());
  TrainOptions options = Quick();
  options.epochs = 3;
  options.val_split = 0.25;
  Recorder recorder;
  const auto outcome = Train(*backend, examples, {}, options, recorder);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message();
  EXPECT_EQ(recorder.plan.validation_examples, 2u);
  EXPECT_EQ(recorder.plan.train_examples, 7u);
  EXPECT_EQ(recorder.plan.total_steps, 6);
  EXPECT_EQ(recorder.plan.warmup_steps, 1);
  ASSERT_EQ(recorder.steps.size(), 6u);
  EXPECT_EQ(recorder.steps[0].lr, 0.0f);
  EXPECT_EQ(recorder.steps[1].lr, options.lr);
  for (size_t k = 2; k < 6; ++k) EXPECT_LT(recorder.steps[k].lr, recorder.steps[k - 1].lr);
  EXPECT_GT(recorder.steps[5].lr, 0.0f);
  ASSERT_EQ(recorder.epochs.size(), 3u);
  for (size_t e = 0; e < 3; ++e) {
    EXPECT_EQ(recorder.epochs[e].loss, recorder.steps[2 * e + 1].loss) << "of the last batch";
    std::vector<int32_t> rows = recorder.rows[2 * e];
    rows.insert(rows.end(), recorder.rows[2 * e + 1].begin(), recorder.rows[2 * e + 1].end());
    std::sort(rows.begin(), rows.end());
    EXPECT_EQ(std::unique(rows.begin(), rows.end()), rows.end()) << "each example once an epoch";
    EXPECT_EQ(rows.size(), 7u);
  }
}

TEST(Training, OptionsThatMakeNoSenseAreErrors) {
  const Checkpoint base = ReferenceModel("tiny");
  const auto examples = ShortExamples(4, 16);
  const auto backend = Cpu(base, SmallLora());
  Recorder recorder;
  const auto said = [&](const TrainOptions& o, std::span<const EncodedExample> data) {
    const auto outcome = Train(*backend, data, {}, o, recorder);
    return outcome.ok() ? std::string() : outcome.error().message();
  };
  TrainOptions o = Quick();
  o.epochs = 0;
  EXPECT_NE(said(o, examples).find("epochs"), std::string::npos);
  o = Quick();
  o.batch_size = 0;
  EXPECT_NE(said(o, examples).find("batch size"), std::string::npos);
  o = Quick();
  o.lr = NAN;
  EXPECT_NE(said(o, examples).find("learning rate"), std::string::npos);
  o = Quick();
  o.val_split = 1;
  EXPECT_NE(said(o, examples).find("validation share"), std::string::npos);
  EXPECT_NE(said(Quick(), {}).find("no example"), std::string::npos);
  EXPECT_TRUE(recorder.steps.empty());
}

}  // namespace
}  // namespace needle
