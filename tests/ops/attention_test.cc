// Attention over ancestors: both witnesses on trees, windows, sinks and grouped heads.
#include "ops/attention.h"

#include <gtest/gtest.h>

#include "support/witness.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

struct Case {
  const char* name;
  AttentionShape shape;
  std::vector<int32_t> key_end;
  size_t first;
};

// 0-1-2 and 1-3-4, then a root 5-6; as the forest's subtree_end.
const std::vector<int32_t> kTree = {5, 5, 3, 5, 5, 7, 7};
const Case kCases[] = {
    {"a chain, one head", {1, 1, 3}, {5, 5, 5, 5, 5}, 0},
    {"a tree, two heads a key head", {4, 2, 2}, kTree, 0},
    {"a tree, one key head for all", {3, 1, 2}, kTree, 0},
    {"later rows of a tree", {2, 2, 2}, kTree, 3},
    {"a window of two with a sink", {2, 1, 2}, {6, 3, 4, 5, 6, 7}, 0},
    {"hidden keys, rows that see nothing", {2, 1, 2}, {0, 2, 0, 0, 5}, 0},
};

TEST(Attention, GradientsMatchBothWitnesses) {
  for (const Case& c : kCases) {
    const size_t rows = c.key_end.size(), count = rows - c.first;
    const size_t A = c.shape.H * c.shape.E, KE = c.shape.K * c.shape.E;
    const auto d_o = Normal(count * A, 1), at = Normal(count * A + 2 * rows * KE, 2);
    const auto loss = [&]<class N>(std::span<const N> in) {
      Cursor<const N> cursor(in);
      const MatView<const N> q = cursor.Matrix(count, A), k = cursor.Matrix(rows, KE);
      Output<N> o(count, A);
      AttentionForward<N>(c.shape, q, k, cursor.Matrix(rows, KE), c.key_end, c.first, o.view());
      return o.Dot(d_o);
    };
    Cursor<const double> in(at);
    const MatView<const double> q = in.Matrix(count, A), k = in.Matrix(rows, KE),
                                v = in.Matrix(rows, KE);
    Gradients g(at.size());
    const MatView<double> dq = g.Assigned(count, A), dk = g.Added(rows, KE), dv = g.Added(rows, KE);
    AttentionBackward<double>(c.shape, q, k, v, c.key_end, c.first, View(d_o, count, A), dq, dk,
                              dv);
    EXPECT_EQ("", Witnesses(loss, at, g.Finish())) << c.name;
  }
}

TEST(Attention, ARowSeesItsAncestorsOnly) {
  const size_t rows = kTree.size();
  const auto q = Normal(rows, 1), k = Normal(rows, 2);
  const std::vector<std::vector<size_t>> ancestors = {{0},          {0, 1}, {0, 1, 2}, {0, 1, 3},
                                                      {0, 1, 3, 4}, {5},    {5, 6}};
  for (size_t t = 0; t < rows; ++t) {
    const std::vector<double> p = AttentionRow<double>(&q[t], View(k, rows, 1), kTree, t, 0, 1);
    double sum = 0;
    for (size_t j = 0; j <= t; ++j) {
      const bool seen = std::count(ancestors[t].begin(), ancestors[t].end(), j) > 0;
      EXPECT_EQ(p[j] > 0, seen) << t << " " << j;
      sum += p[j];
    }
    EXPECT_NEAR(sum, 1, 1e-15);
  }
}

TEST(Attention, ARowThatSeesNothingGivesZero) {
  const std::vector<int32_t> key_end = {0, 0};
  const auto q = Normal(2, 1), k = Normal(2, 2), v = Normal(2, 3);
  std::vector<double> o(2, 1e30);
  AttentionForward<double>({1, 1, 1}, View(q, 2, 1), View(k, 2, 1), View(v, 2, 1), key_end, 0,
                           {o.data(), 2, 1});
  EXPECT_EQ(o, (std::vector<double>{0, 0}));
}

}  // namespace
}  // namespace needle
