// After a loss that is not a number the executor names the operation that produced it first.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "exec/loaded.h"
#include "ops/forest.h"

namespace needle::test {
namespace {

Forest Batch() {
  const std::vector<int32_t> ids = {1, 17, 5, 9, 33, 2};
  const std::vector<float> weights = {0, 0, 0, 1, 1, 1};
  const Sequence row{ids, weights};
  return BuildForest({&row, 1}, Packing::kTree, 3);
}

/// What is said when one value of a parameter of `tiny` is NaN.
std::string Named(const std::string& path, size_t at) {
  Checkpoint base = ReferenceModel("tiny");
  base.params.at(path).Put(at, std::numeric_limits<float>::quiet_NaN());
  Loaded m(std::move(base), SupportedIsas().back(), {});
  return m.executor.FirstNonFinite(Batch());
}

TEST(NonFinite, IsNamedByTheOperationThatProducedItFirst) {
  const std::string block = "stack/layers/block/";
  const struct {
    std::string path, said;
  } cases[] = {
      {block + "self_attn/q_proj/kernel", "the q, k, v and gate projections of layer 0"},
      {block + "self_attn/out_proj/kernel", "the out projection of layer 0"},
      {"stack/mhc_phi_pre", "the lane coefficients of layer 0"},
      {"stack/final_norm/scale", "the final norm or the logits"},
  };
  for (const auto& c : cases) EXPECT_EQ(Named(c.path, 0).rfind(c.said, 0), 0) << Named(c.path, 0);
}

TEST(NonFinite, SaysNothingWhereTheForwardIsFinite) {
  Loaded m("tiny", SupportedIsas().back(), {});
  EXPECT_EQ(m.executor.FirstNonFinite(Batch()), "");
}

}  // namespace
}  // namespace needle::test
