// The executor's gradients of every parameter against the reference model's in float64.
#include <gtest/gtest.h>

#include "exec/loaded.h"
#include "model/reference.h"
#include "support/mismatch.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

class FullGradients : public testing::TestWithParam<std::string> {};

TEST_P(FullGradients, OfEveryParameterAreTheReferenceModelsOnEveryIsa) {
  const Npz batch_of = ReferenceNpz(GetParam() + "/grads.npz");
  const Batch batch = BatchOf(batch_of.at("ids"), batch_of.at("mask"));
  const Forest forest = batch.Build(Packing::kTree);
  const Checkpoint base = ReferenceModel(GetParam());
  const ParamArrays<double> params(base.params);
  ParamArrays<double> want = ParamArrays<double>::ZerosLike(params);
  const ModelView<double> view = want.View(base.config);
  const double loss = ReferenceLoss<double>(base.config, params.View(base.config), forest, &view);
  // What float32 itself can do, by the same plain loops. It matters for the residual mixing of
  // d128: Sinkhorn's gradient is a small remainder of large terms there, and the plain loops are
  // 1e-3 off.
  const ParamArrays<float> params32(base.params);
  ParamArrays<float> rounded = ParamArrays<float>::ZerosLike(params32);
  const ModelView<float> view32 = rounded.View(base.config);
  ReferenceLoss<float>(base.config, params32.View(base.config), forest, &view32);
  for (const Isa isa : SupportedIsas()) {
    Loaded m(GetParam(), isa, {}, /*all=*/true);
    for (const size_t chunk_rows : {1024u, 50u}) {  // whole, and with a prefix and chunks
      m.executor.set_chunk_rows(chunk_rows);
      ParamArrays<float> got;
      EXPECT_NEAR(m.FullLoss(forest, &got), loss, 2e-6 * loss) << Name(isa);
      size_t seen = 0;
      for (const ParamSpec& spec : ModelParams(base.config)) {
        if (!spec.in_training) continue;
        ++seen;
        // Sums of a few thousand float32 products.
        const double float32 = RelativeL2(rounded.At(spec.path), want.At(spec.path));
        const double allowed = spec.path.find("_res") != std::string::npos ? 4 * float32 : 0;
        if (isa == SupportedIsas()[0] && float32 > 1e-5)
          RecordProperty(spec.path, std::to_string(float32));
        EXPECT_LE(RelativeL2(got.At(spec.path), want.At(spec.path)), std::max(1e-5, allowed))
            << spec.path << " " << Name(isa) << " chunks of " << chunk_rows;
      }
      EXPECT_GT(seen, 20u);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, FullGradients, testing::Values("tiny", "alt", "plain", "d128"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace needle
