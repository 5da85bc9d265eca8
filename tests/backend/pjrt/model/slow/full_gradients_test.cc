// Gradients of every parameter on the CPU plugin against the reference model's in float64, with
// the native engine's tolerances.
#include "support/full_gradients.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/pjrt/model/on_plugin.h"
#include "ops/adamw.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

class PjrtFullGradients : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { NEEDLE_NEED_PLUGIN(CpuPlugin()); }
};

TEST_P(PjrtFullGradients, OfEveryParameterAreTheReferenceModels) {
  const FullReference reference(GetParam());
  PjrtBackendOptions options = SmallPjrtLora();
  options.trained = TrainedSet::kAll;
  const auto backend = MakeOn(CpuClient(CpuPlugin()), reference.base, options);
  ASSERT_NE(backend, nullptr);
  EXPECT_NEAR(*backend->Evaluate(reference.forest), reference.loss, 2e-6 * reference.loss);
  const AdamWOptions adamw;
  const Result<StepResult> step = backend->Step(reference.forest, ScalarsOf(adamw, 1e-3f, 1));
  ASSERT_TRUE(step.ok()) << step.error().message();
  // After the first step the first moment is a tenth of the clipped gradient, a parameter at a
  // time; the program itself has some of them side by side in one array.
  const float scale =
      (1.0f - adamw.b1) * std::min(1.0f, adamw.clip / static_cast<float>(step->grad_norm));
  const TrainState state = *backend->State();
  size_t seen = 0;
  for (const ParamSpec& spec : ModelParams(reference.base.config)) {
    if (!spec.in_training) continue;
    ++seen;
    ASSERT_EQ(state.first_moment.count(spec.path), 1u) << spec.path;
    std::vector<float> got = state.first_moment.at(spec.path);
    for (float& g : got) g /= scale;
    EXPECT_LE(RelativeL2(got, reference.want.At(spec.path)), reference.Allowed(spec.path))
        << spec.path;
  }
  EXPECT_GT(seen, 20u);
  EXPECT_EQ(state.first_moment.size(), seen);
}

INSTANTIATE_TEST_SUITE_P(Reference, PjrtFullGradients,
                         testing::Values("tiny", "alt", "plain", "d128"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace needle
