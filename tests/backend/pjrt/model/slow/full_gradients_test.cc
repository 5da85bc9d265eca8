// Gradients of every parameter on the CPU plugin against the reference model's in float64, with
// the native engine's tolerances (tests/exec/full_gradients_test.cc says where they come from).
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/pjrt/model/on_plugin.h"
#include "model/reference.h"
#include "ops/adamw.h"
#include "support/mismatch.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

class PjrtFullGradients : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { NEEDLE_NEED_PLUGIN(CpuPlugin()); }
};

TEST_P(PjrtFullGradients, OfEveryParameterAreTheReferenceModels) {
  const Npz batch_of = ReferenceNpz(GetParam() + "/grads.npz");
  const Forest forest = BatchOf(batch_of.at("ids"), batch_of.at("mask")).Build(Packing::kTree);
  const Checkpoint base = ReferenceModel(GetParam());
  const ParamArrays<double> params(base.params);
  ParamArrays<double> want = ParamArrays<double>::ZerosLike(params);
  const ModelView<double> view = want.View(base.config);
  const double loss = ReferenceLoss<double>(base.config, params.View(base.config), forest, &view);
  const ParamArrays<float> params32(base.params);
  ParamArrays<float> rounded = ParamArrays<float>::ZerosLike(params32);
  const ModelView<float> view32 = rounded.View(base.config);
  ReferenceLoss<float>(base.config, params32.View(base.config), forest, &view32);
  PjrtBackendOptions options = SmallPjrtLora();
  options.trained = TrainedSet::kAll;
  const auto backend = MakeOn(CpuClient(CpuPlugin()), base, options);
  ASSERT_NE(backend, nullptr);
  EXPECT_NEAR(*backend->Evaluate(forest), loss, 2e-6 * loss);
  const AdamWOptions adamw;
  const Result<StepResult> step = backend->Step(forest, ScalarsOf(adamw, 1e-3f, 1));
  ASSERT_TRUE(step.ok()) << step.error().message();
  // After the first step the first moment is a tenth of the clipped gradient, a parameter at a
  // time; the program itself has some of them side by side in one array.
  const float scale =
      (1.0f - adamw.b1) * std::min(1.0f, adamw.clip / static_cast<float>(step->grad_norm));
  const TrainState state = *backend->State();
  size_t seen = 0;
  for (const ParamSpec& spec : ModelParams(base.config)) {
    if (!spec.in_training) continue;
    ++seen;
    ASSERT_EQ(state.first_moment.count(spec.path), 1u) << spec.path;
    std::vector<float> got = state.first_moment.at(spec.path);
    for (float& g : got) g /= scale;
    // Sinkhorn's gradient is a small remainder of large terms, where float32 itself is far off.
    const double float32 = RelativeL2(rounded.At(spec.path), want.At(spec.path));
    const double allowed = spec.path.find("_res") != std::string::npos ? 4 * float32 : 0;
    EXPECT_LE(RelativeL2(got, want.At(spec.path)), std::max(1e-5, allowed)) << spec.path;
  }
  EXPECT_GT(seen, 20u);
  EXPECT_EQ(state.first_moment.size(), seen);
}

INSTANTIATE_TEST_SUITE_P(Reference, PjrtFullGradients,
                         testing::Values("tiny", "alt", "plain", "d128"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace needle
