// The executor's gradients of every parameter against the reference model's in float64.
#include "support/full_gradients.h"

#include <gtest/gtest.h>

#include "exec/loaded.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

class FullGradients : public testing::TestWithParam<std::string> {};

TEST_P(FullGradients, OfEveryParameterAreTheReferenceModelsOnEveryIsa) {
  const FullReference reference(GetParam());
  for (const Isa isa : SupportedIsas()) {
    Loaded m(GetParam(), isa, {}, /*all=*/true);
    for (const size_t chunk_rows : {1024u, 50u}) {  // whole, and with a prefix and chunks
      m.executor.set_chunk_rows(chunk_rows);
      ParamArrays<float> got;
      EXPECT_NEAR(m.FullLoss(reference.forest, &got), reference.loss, 2e-6 * reference.loss)
          << Name(isa);
      size_t seen = 0;
      for (const ParamSpec& spec : ModelParams(reference.base.config)) {
        if (!spec.in_training) continue;
        ++seen;
        const double float32 = reference.Float32(spec.path);
        if (isa == SupportedIsas()[0] && float32 > 1e-5)
          RecordProperty(spec.path, std::to_string(float32));
        EXPECT_LE(RelativeL2(got.At(spec.path), reference.want.At(spec.path)),
                  reference.Allowed(spec.path))
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
