// Every operation that has a gradient, and every piece with one of its own, in float64 on the CPU
// plugin: against central differences, and (pieces) against what src/ops says they mean.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/pjrt/model/differentiated.h"
#include "backend/pjrt/pieces.h"
#include "ops/attention.h"
#include "ops/hadamard_mlp.h"
#include "ops/head.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "ops/sinkhorn.h"
#include "support/mismatch.h"

namespace needle::hlo {
namespace {

using namespace test;  // NOLINT

TEST_F(HloGradient, OfArithmeticAgreesWithDifferences) {
  const Point at = Point::Of({{2, 3}, {2, 3}});
  const Function f = [](Graph&, const Values& x) {
    return x[0] * x[1] - x[0] / (x[1] * x[1] + 2.0) + Exp(x[0]) - (-x[1]);
  };
  EXPECT_EQ("", Differentiated(at, f).Compare());
}

TEST_F(HloGradient, OfFunctionsAgreesWithDifferences) {
  const Function f = [](Graph&, const Values& x) {
    const Value positive = x[0] * x[0] + 0.5;
    return Log(positive) + Rsqrt(positive) + Sqrt(positive) + Logistic(x[0]);
  };
  EXPECT_EQ("", Differentiated(Point::Of({{7}}), f).Compare());
}

TEST_F(HloGradient, OfMovedElementsAgreesWithDifferences) {
  const Function f = [](Graph& g, const Values& x) {  // [2, 3, 4] and [3]
    const Value turned = Reshape(Transpose(x[0], {2, 0, 1}), {4, 6});
    const Value part = Slice(turned, {1, 0}, {3, 5});                // [2, 5]
    const Value padded = Pad(part, {1, 0}, {1, 1});                  // [4, 6]
    const Value joined = Concatenate({padded, turned * turned}, 0);  // [8, 6]
    const Value spread = Broadcast(x[1], {8, 3}, {1});
    const Value halves = Concatenate({spread, spread}, 1);
    const Value chosen = Select(
        Compare(Iota(g, {DType::kS32, {8, 6}}, 0), "LT", Constant(g, 3, {DType::kS32, {8, 6}})),
        joined, halves * joined);
    const Values parts = Split(chosen, 1, {2, 4});
    return ReduceAdd(parts[0], {1}) * ReduceAdd(parts[1], {1});
  };
  EXPECT_EQ("", Differentiated(Point::Of({{2, 3, 4}, {3}}), f).Compare());
}

TEST_F(HloGradient, OfGatheredAndScatteredRowsAgreesWithDifferences) {
  const Function f = [](Graph& g, const Values& x) {  // table [5, 2], rows [4, 2]
    const Value index = Constant(g, {3, 0, 3, 1}, {DType::kS32, {4}});
    const Value rows = GatherRows(x[0], index) * x[1];
    const Value two = Scalar(g, 2, DType::kS32), zero = Scalar(g, 0, DType::kS32);
    return ScatterRows(x[0], index, rows * rows) +
           Broadcast(Reshape(DynamicSlice(x[0], {two, zero}, {1, 2}), {2}), {5, 2}, {1});
  };
  EXPECT_EQ("", Differentiated(Point::Of({{5, 2}, {4, 2}}), f).Compare());
}

TEST_F(HloGradient, OfProductsInEveryOrderOfDimensionsAgreesWithDifferences) {
  const Function plain = [](Graph&, const Values& x) { return MatMul(x[0], x[1]); };
  EXPECT_EQ("", Differentiated(Point::Of({{2, 3}, {3, 4}}), plain).Compare());
  const Function turned = [](Graph&, const Values& x) { return Dot(x[0], x[1], {}, {}, {0}, {1}); };
  EXPECT_EQ("", Differentiated(Point::Of({{3, 2}, {4, 3}}), turned).Compare());
  const Function batched = [](Graph&, const Values& x) {  // contracts two, in another order
    return Dot(x[0], x[1], {1}, {2}, {0, 3}, {3, 0});
  };
  EXPECT_EQ("", Differentiated(Point::Of({{2, 3, 4, 5}, {5, 2, 3, 2}}), batched).Compare());
}

TEST_F(HloGradient, StopsWhereItIsToldTo) {
  const Function f = [](Graph&, const Values& x) { return x[0] * StopGradient(x[0]); };
  EXPECT_NE("", Differentiated(Point::Of({{3}}), f).Compare());
}

TEST_F(HloGradient, OfNormsAndRotationsAgreesAndTheyMeanWhatOpsSays) {
  const size_t N = 3, H = 2, E = 4;
  const Point at = Point::Of({{3, 2, 4}, {4}});
  const RopeTable<double> table(N, E, 100.0);
  const Function f = [&](Graph& g, const Values& x) {
    const Type half{kReal, {3, 2}};
    return pjrt::Rope(pjrt::RmsNorm(x[0], x[1]), Constant(g, table.cos, half),
                      Constant(g, table.sin, half));
  };
  Differentiated d(at, f);
  EXPECT_EQ("", d.Compare());
  std::vector<double> want(N * H * E);
  RmsNormForward<double>({at.values[0].data(), N, H * E}, at.values[1], {want.data(), N, H * E});
  const std::vector<int32_t> position = {0, 1, 2};
  RopeInPlace<double>(MatView<double>{want.data(), N, H * E}, position, table, 1);
  EXPECT_EQ("", Mismatch(d.value(), want, 1e-13, 0));
}

TEST_F(HloGradient, OfSinkhornAgreesAndItMeansWhatOpsSays) {
  const size_t S = 3, N = 2;
  const Point at = Point::Of({{3, 3, 2}});
  Differentiated d(at, [](Graph&, const Values& x) { return pjrt::Sinkhorn(x[0], true); });
  EXPECT_EQ("", d.Compare());
  std::vector<double> want(S * S * N);
  for (size_t n = 0; n < N; ++n) {
    std::vector<double> z(S * S), p(S * S);
    for (size_t e = 0; e < S * S; ++e) z[e] = at.values[0][e * N + n];
    SinkhornForward<double>(z, S, p);
    for (size_t e = 0; e < S * S; ++e) want[e * N + n] = p[e];
  }
  EXPECT_EQ("", Mismatch(d.value(), want, 1e-13, 0));
}

TEST_F(HloGradient, OfTheHadamardMlpAgreesAndItMeansWhatOpsSays) {
  const size_t N = 2, D = 6, M = 8;
  const Point at = Point::Of({{2, 6}, {8}, {8}, {8}});
  Differentiated d(at, [](Graph& g, const Values& x) {
    return pjrt::HadamardMlp(x[0], x[1], x[2], x[3], pjrt::HadamardMatrix(g, 8, kReal));
  });
  EXPECT_EQ("", d.Compare());
  std::vector<double> want(N * D);
  HadamardMlpForward<double>({at.values[0].data(), N, D}, at.values[1], at.values[2], at.values[3],
                             {want.data(), N, D});
  EXPECT_EQ("", Mismatch(d.value(), want, 1e-13, 0));
  EXPECT_EQ(at.values[1].size(), M);
}

/// Two groups of four rows: a chain with a branch, and two chains.
const std::vector<double> kEnds = {4, 4, 3, 4, 2, 2, 4, 4};

std::vector<double> AttentionByOps(const Point& at) {  // [G=2, K=2, M=2, T=4, E=3]
  const size_t G = 2, K = 2, M = 2, T = 4, E = 3, H = K * M;
  std::vector<double> out(G * H * T * E);
  for (size_t g = 0; g < G; ++g) {
    std::vector<double> q(T * H * E), k(T * K * E), v(T * K * E), o(T * H * E);
    for (size_t h = 0; h < H; ++h)
      for (size_t t = 0; t < T; ++t)
        for (size_t e = 0; e < E; ++e)  // ops scale by 1 / sqrt(E)
          q[(t * H + h) * E + e] =
              at.values[0][((g * H + h) * T + t) * E + e] * std::sqrt(double{E});
    for (size_t h = 0; h < K; ++h)
      for (size_t t = 0; t < T; ++t)
        for (size_t e = 0; e < E; ++e) {
          k[(t * K + h) * E + e] = at.values[1][((g * K + h) * T + t) * E + e];
          v[(t * K + h) * E + e] = at.values[2][((g * K + h) * T + t) * E + e];
        }
    std::vector<int32_t> ends(kEnds.begin() + static_cast<std::ptrdiff_t>(g * T),
                              kEnds.begin() + static_cast<std::ptrdiff_t>((g + 1) * T));
    AttentionForward<double>({H, K, E}, {q.data(), T, H * E}, {k.data(), T, K * E},
                             {v.data(), T, K * E}, ends, 0, {o.data(), T, H * E});
    for (size_t h = 0; h < H; ++h)
      for (size_t t = 0; t < T; ++t)
        for (size_t e = 0; e < E; ++e) out[((g * H + h) * T + t) * E + e] = o[(t * H + h) * E + e];
  }
  return out;
}

TEST_F(HloGradient, OfBothAttentionsAgreesAndTheyMeanWhatOpsSays) {
  const Point at = Point::Of({{2, 2, 2, 4, 3}, {2, 2, 4, 3}, {2, 2, 4, 3}});
  const std::vector<double> want = AttentionByOps(at);
  for (const int64_t block : {0, 1, 2, 4}) {  // 0: plain
    Differentiated d(at, [&](Graph& g, const Values& x) {
      const Value ends = Constant(g, kEnds, {DType::kS32, {2, 4}});
      return block == 0 ? pjrt::PlainAttention(x[0], x[1], x[2], pjrt::VisibilityMask(ends, kReal))
                        : pjrt::BlockedAttention(x[0], x[1], x[2], ends, block);
    });
    EXPECT_EQ("", d.Compare()) << "blocks of " << block;
    EXPECT_EQ("", Mismatch(d.value(), want, 1e-13, 0)) << "blocks of " << block;
  }
}

TEST_F(HloGradient, OfLowRankFactorsIsThatOfTheMergedWeight) {
  // Two of three parts of the weight are adapted: columns [0, 2) and [3, 5).
  const Point at = Point::Of({{4, 3}, {3, 5}, {3, 2}, {2, 2}, {3, 2}, {2, 2}});
  Differentiated d(at, [](Graph& g, const Values& x) {
    const Value between = Zeros(g, {kReal, {3, 1}});
    const Value added = Concatenate({MatMul(x[2], x[3]), between, MatMul(x[4], x[5])}, 1) * 0.5;
    // The frozen weight takes part as a plain product, so that it has a gradient to compare too.
    const Value merged = StopGradient(x[1] + added);
    return pjrt::LoraProduct(x[0], merged, {{x[2], x[3], 0, 2}, {x[4], x[5], 3, 2}}, 0.5) +
           MatMul(StopGradient(x[0]), x[1] - StopGradient(x[1]));
  });
  EXPECT_EQ("", d.Compare());
}

TEST_F(HloGradient, OfCrossEntropyAgreesAndItMeansWhatOpsSays) {
  const Point at = Point::Of({{3, 5}});
  const std::vector<int32_t> ids = {4, 0, 2};
  const std::vector<float> weights = {0.5f, 0.25f, 0.0f};
  Differentiated d(at, [&](Graph& g, const Values& x) {
    return pjrt::CrossEntropy(x[0], Constant(g, {4, 0, 2}, {DType::kS32, {3}}),
                              Constant(g, {0.5, 0.25, 0}, {kReal, {3}}));
  });
  EXPECT_EQ("", d.Compare());
  double want = 0;
  std::vector<double> logits = at.values[0];
  for (size_t n = 0; n < 3; ++n)
    want += CrossEntropyRow<double>({&logits[n * 5], 5}, std::span(&ids[n], 1),
                                    std::span(&weights[n], 1));
  EXPECT_EQ("", Mismatch(d.value(), std::vector<double>{want}, 1e-13, 0));
}

}  // namespace
}  // namespace needle::hlo
