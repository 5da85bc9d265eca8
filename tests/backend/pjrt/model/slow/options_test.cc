// What the options change on the device: memory as planned by the compiler, devices that share a
// batch, and states that travel between backends.
#include <gtest/gtest.h>

#include "backend/pjrt/model/on_plugin.h"
#include "support/mismatch.h"
#include "train/run_support.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

class PjrtOptions : public testing::Test {
 protected:
  void SetUp() override { NEEDLE_NEED_PLUGIN(CpuPlugin()); }

  /// Bytes that the gradient program of `tiny` plans beside its inputs and outputs.
  static int64_t TempBytes(const std::function<void(PjrtBackendOptions&)>& change) {
    PjrtBackendOptions options = SmallPjrtLora();
    options.limits.group_rows = {1024};  // long rows, where attention's own memory shows
    change(options);
    const auto backend = MakeOn(CpuClient(CpuPlugin()), ReferenceModel("tiny"), options);
    const std::vector<EncodedExample> examples = ShortExamples(2, 40);
    const std::vector<int32_t> rows = {0, 1};
    EXPECT_TRUE(backend->GradientsOf(ForestOf(examples, rows)).ok());
    return backend->Stats().temp_bytes;
  }
};

TEST_F(PjrtOptions, RematAndBlockedAttentionPlanLessMemory) {
  const int64_t saved_plain =
      TempBytes([](PjrtBackendOptions& o) { o.attention = pjrt::Attention::kPlain; });
  const int64_t saved_blocked = TempBytes([](PjrtBackendOptions&) {});
  const int64_t remat_plain = TempBytes([](PjrtBackendOptions& o) {
    o.attention = pjrt::Attention::kPlain;
    o.remat = true;
  });
  const int64_t remat_blocked = TempBytes([](PjrtBackendOptions& o) { o.remat = true; });
  EXPECT_GT(remat_blocked, 0);
  EXPECT_LT(saved_blocked, saved_plain);
  EXPECT_LT(remat_blocked, saved_blocked);
  EXPECT_LT(remat_plain, saved_plain);
  EXPECT_LT(remat_blocked, remat_plain);
  RecordProperty("megabytes", std::to_string(saved_plain >> 20) + " " +
                                  std::to_string(saved_blocked >> 20) + " " +
                                  std::to_string(remat_plain >> 20) + " " +
                                  std::to_string(remat_blocked >> 20));
}

TEST_F(PjrtOptions, DevicesThatShareABatchTakeTheSameSteps) {
  const std::vector<EncodedExample> examples = ShortExamples(8, 100);
  const std::vector<int32_t> rows = {0, 1, 2, 3, 4, 5, 6, 7};
  const Forest forest = ForestOf(examples, rows, Packing::kChain);
  const AdamWOptions adamw;
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> values;
  for (const int devices : {1, 2, 4}) {
    PjrtBackendOptions options = SmallPjrtLora();
    options.devices = devices;
    const auto backend = MakeOn(CpuClient(CpuPlugin(), devices), ReferenceModel("tiny"), options);
    ASSERT_NE(backend, nullptr);
    for (int t = 1; t <= 3; ++t) {
      const Result<StepResult> step = backend->Step(forest, ScalarsOf(adamw, 2e-3f, t));
      ASSERT_TRUE(step.ok()) << step.error().message();
      losses.push_back(step->loss);
      norms.push_back(step->grad_norm);
      if (devices == 1) continue;
      const auto at = static_cast<size_t>(t - 1);
      EXPECT_NEAR(step->loss, losses[at], 1e-6 * losses[at]) << devices << " devices";
      EXPECT_NEAR(step->grad_norm, norms[at], 1e-5 * norms[at]) << devices << " devices";
    }
    const Result<double> loss = backend->Evaluate(forest);
    ASSERT_TRUE(loss.ok());
    losses.push_back(*loss);
    if (devices == 1) {
      values = backend->State()->values;
      losses.pop_back();
    }
    const TrainState reached = *backend->State();
    for (const auto& [name, got] : reached.values)
      EXPECT_LE(RelativeL2(got, values.at(name)), 1e-4) << name << ", " << devices << " devices";
  }
}

TEST_F(PjrtOptions, AStateTravelsToTheCpuEngineAndBack) {
  const Checkpoint base = ReferenceModel("tiny");
  const std::vector<EncodedExample> examples = ShortExamples(6, 60);
  const std::vector<int32_t> rows = {0, 1, 2, 3, 4, 5};
  const Forest forest = ForestOf(examples, rows);
  const AdamWOptions adamw;
  const auto device = MakeOn(CpuClient(CpuPlugin()), base, SmallPjrtLora());
  ASSERT_NE(device, nullptr);
  const std::unique_ptr<Backend> cpu = Cpu(base, SmallLora());
  EXPECT_EQ(device->State()->values, cpu->State()->values) << "the same initial values";
  ASSERT_TRUE(device->Step(forest, ScalarsOf(adamw, 1e-3f, 1)).ok());
  ASSERT_TRUE(cpu->SetState(*device->State()).ok());
  const Result<StepResult> there = cpu->Step(forest, ScalarsOf(adamw, 1e-3f, 2));
  const Result<StepResult> here = device->Step(forest, ScalarsOf(adamw, 1e-3f, 2));
  ASSERT_TRUE(there.ok() && here.ok());
  EXPECT_NEAR(here->loss, there->loss, 2e-6 * there->loss);
  EXPECT_NEAR(here->grad_norm, there->grad_norm, 2e-5 * there->grad_norm);
  ASSERT_TRUE(device->SetState(*cpu->State()).ok());
  EXPECT_NEAR(*device->Evaluate(forest), *cpu->Evaluate(forest), 2e-6 * there->loss);
  TrainState other = *cpu->State();
  other.values.begin()->second.pop_back();
  const Status refused = device->SetState(other);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("another size"), std::string::npos);
}

TEST_F(PjrtOptions, ALossThatIsNotFiniteChangesNothing) {
  Checkpoint base = ReferenceModel("tiny");
  const auto device = MakeOn(CpuClient(CpuPlugin()), base, SmallPjrtLora());
  ASSERT_NE(device, nullptr);
  TrainState state = *device->State();
  state.values.begin()->second[0] = INFINITY;
  ASSERT_TRUE(device->SetState(state).ok());
  const std::vector<EncodedExample> examples = ShortExamples(2, 40);
  const std::vector<int32_t> rows = {0, 1};
  const Forest forest = ForestOf(examples, rows);
  const Result<StepResult> step = device->Step(forest, {1e-3f, 0.1f, 0.001f});
  ASSERT_TRUE(step.ok());
  EXPECT_FALSE(std::isfinite(step->loss) && std::isfinite(step->grad_norm));
  EXPECT_EQ(device->State()->values, state.values);
  EXPECT_EQ(device->State()->first_moment, state.first_moment);
  EXPECT_NE(device->ExplainNonFinite(forest), "");
}

TEST_F(PjrtOptions, NarrowProductsAreNearAndOnlyWhenAskedFor) {
  const std::vector<EncodedExample> examples = ShortExamples(2, 40);
  const std::vector<int32_t> rows = {0, 1};
  const Forest forest = ForestOf(examples, rows);
  std::map<hlo::Precision, double> loss;
  for (const hlo::Precision precision :
       {hlo::Precision::kHighest, hlo::Precision::kTf32, hlo::Precision::kBf16}) {
    PjrtBackendOptions options = SmallPjrtLora();
    options.precision = precision;
    const auto backend = MakeOn(CpuClient(CpuPlugin()), ReferenceModel("tiny"), options);
    ASSERT_NE(backend, nullptr);
    const Result<double> got = backend->Evaluate(forest);
    ASSERT_TRUE(got.ok()) << got.error().message();
    loss[precision] = *got;
  }
  const double exact = loss[hlo::Precision::kHighest];
  EXPECT_NEAR(loss[hlo::Precision::kTf32], exact, 1e-3 * exact);
  EXPECT_NEAR(loss[hlo::Precision::kBf16], exact, 2e-2 * exact);
  EXPECT_NE(loss[hlo::Precision::kBf16], exact) << "products of bf16 round";
}

class PjrtOlderPlugin : public PjrtOptions, public testing::WithParamInterface<bool> {};

TEST_P(PjrtOlderPlugin, TakesTheSameSteps) {
  const std::string older = GetParam() ? OldestCpuPlugin() : OlderCpuPlugin();
  NEEDLE_NEED_PLUGIN(older);
  const auto newest = MakeOn(CpuClient(CpuPlugin()), ReferenceModel("tiny"), SmallPjrtLora());
  const auto backend = MakeOn(CpuClient(older), ReferenceModel("tiny"), SmallPjrtLora());
  ASSERT_TRUE(newest != nullptr && backend != nullptr);
  const std::vector<EncodedExample> examples = ShortExamples(4, 60);
  const std::vector<int32_t> rows = {0, 1, 2, 3};
  const Forest forest = ForestOf(examples, rows);
  for (int t = 1; t <= 3; ++t) {  // from the second on the updates count
    const UpdateScalars scalars = ScalarsOf(AdamWOptions(), 1e-3f, t);
    const Result<StepResult> want = newest->Step(forest, scalars);
    const Result<StepResult> got = backend->Step(forest, scalars);
    ASSERT_TRUE(want.ok() && got.ok()) << (got.ok() ? want : got).error().message();
    EXPECT_NEAR(got->loss, want->loss, 2e-6 * want->loss) << t;
    EXPECT_NEAR(got->grad_norm, want->grad_norm, 2e-5 * want->grad_norm) << t;
  }
}

INSTANTIATE_TEST_SUITE_P(Pjrt, PjrtOlderPlugin, testing::Bool(),
                         [](const auto& test) { return test.param ? "Oldest" : "Older"; });

}  // namespace
}  // namespace needle
