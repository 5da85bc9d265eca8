// Lanes (manifold hyper-connections) and Sinkhorn: both witnesses, and upstream's values.
#include "ops/lanes.h"

#include <gtest/gtest.h>

#include "ops/linear.h"
#include "support/npz.h"
#include "support/witness.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

constexpr size_t T = 3, D = 4;

TEST(Sinkhorn, ForwardIsUpstreamsForOneToFourLanes) {
  const Npz golden = ReadNpz(Golden("ops/pieces.npz"));
  for (size_t S = 1; S <= 4; ++S) {
    const std::vector<float> in = golden.at("sinkhorn_in_" + std::to_string(S)).As<float>();
    const std::vector<float> want = golden.at("sinkhorn_out_" + std::to_string(S)).As<float>();
    std::vector<float> got(in.size());
    for (size_t i = 0; i < in.size(); i += S * S)
      SinkhornForward<float>({&in[i], S * S}, S, {&got[i], S * S});
    // 40 logsumexps in float32, each with a vectorised exp and log of 1-2 units in the last place.
    EXPECT_LE(RelativeMax(got, want), 2e-6) << S;
  }
}

TEST(Sinkhorn, GradientMatchesBothWitnessesForOneToFourLanes) {
  for (size_t S = 1; S <= 4; ++S) {
    const auto dp = Normal(S * S, 1), at = Normal(S * S, 2, 2.0);
    const auto loss = [&]<class N>(std::span<const N> in) {
      Output<N> p(S, S);
      SinkhornForward<N>(in, S, p.values);
      return p.Dot(dp);
    };
    Gradients g(at.size());
    SinkhornBackward<double>(at, S, dp, g.AssignedVector(S * S));
    EXPECT_EQ("", Witnesses(loss, at, g.Finish())) << S;
  }
}

TEST(Sinkhorn, ColumnsSumToOneExactlyAndRowsNearly) {
  const size_t S = 4;
  const auto z = Normal(S * S, 3);
  std::vector<double> p(S * S);
  SinkhornForward<double>(z, S, p);
  for (size_t j = 0; j < S; ++j) {
    double column = 0, row = 0;
    for (size_t i = 0; i < S; ++i) column += p[i * S + j], row += p[j * S + i];
    EXPECT_NEAR(column, 1, 1e-14);  // the column step is the last
    EXPECT_NEAR(row, 1, 1e-4);      // 20 rounds, no more
  }
}

struct Scalars {
  template <class N>
  static LaneScalars<N> Read(Cursor<const N>& c, size_t S, size_t own) {
    LaneScalars<N> p;
    p.a_pre = c.Scalar();
    p.a_post = c.Scalar();
    p.a_res = c.Scalar();
    p.b_pre = c.Vector(S);
    p.b_post = c.Vector(S);
    p.b_res = c.Vector(S * S);
    p.own = own;
    return p;
  }
};

TEST(LaneCoefficients, GradientsOfProjectionsAndScalarsMatchBothWitnesses) {
  for (const size_t S : {1u, 2u, 4u})
    for (size_t own = 0; own < S; ++own) {
      const size_t C = LaneColumns(S);
      const auto direction = Normal(T * C, 1), at = Normal(T * C + 3 + C, 2);
      const auto loss = [&]<class N>(std::span<const N> in) {
        Cursor<const N> c(in);
        const MatView<const N> r = c.Matrix(T, C);
        Output<N> out(T, C);
        LaneCoefficientsForward<N>(r, Scalars::Read<N>(c, S, own), out.view());
        return out.Dot(direction);
      };
      Cursor<const double> in(at);
      const MatView<const double> r = in.Matrix(T, C);
      const LaneScalars<double> p = Scalars::Read<double>(in, S, own);
      std::vector<double> c(T * C);
      LaneCoefficientsForward<double>(r, p, {c.data(), T, C});
      Gradients g(at.size());
      const MatView<double> dr = g.Assigned(T, C);
      LaneScalarGrads<double> grads;
      grads.a_pre = g.AddedScalar();
      grads.a_post = g.AddedScalar();
      grads.a_res = g.AddedScalar();
      grads.b_pre = g.AddedVector(S);
      grads.b_post = g.AddedVector(S);
      grads.b_res = g.AddedVector(S * S);
      LaneCoefficientsBackward<double>(r, View(c, T, C), p, View(direction, T, C), dr, grads);
      EXPECT_EQ("", Witnesses(loss, at, g.Finish())) << S << " lanes, own " << own;
      std::vector<double> in_place = direction;  // and without the scalars' gradients
      LaneCoefficientsBackward<double>(r, View(c, T, C), p, View(in_place, T, C),
                                       {in_place.data(), T, C}, {});
      EXPECT_EQ("", Mismatch(in_place, std::span<const double>(dr.data(), T * C), 0, 0));
    }
}

TEST(LaneCoefficients, OwnLaneReadsAndWritesAlmostAloneAtInitialisation) {
  const size_t S = 3, C = LaneColumns(S), own = 1;
  const std::vector<double> r(C), zeros(S * S);
  std::vector<double> c(C);
  LaneScalars<double> p;
  p.b_pre = p.b_post = {zeros.data(), S};
  p.b_res = zeros;
  p.own = own;
  LaneCoefficientsForward<double>(View(r, 1, C), p, {c.data(), 1, C});
  EXPECT_DOUBLE_EQ(c[own], Sigmoid(4.0));
  EXPECT_DOUBLE_EQ(c[0], Sigmoid(-4.0));
  EXPECT_DOUBLE_EQ(c[S + own], 1);
  EXPECT_DOUBLE_EQ(c[S], 2 * Sigmoid(-4.0));
  for (size_t e = 0; e < S * S; ++e) EXPECT_DOUBLE_EQ(c[2 * S + e], 1.0 / 3);
}

TEST(LanesIn, GradientsOfLanesAndCoefficientsMatchBothWitnesses) {
  const size_t S = 3, C = LaneColumns(S);
  const auto du = Normal(T * D, 1), at = Normal(T * S * D + T * C, 2);
  const auto loss = [&]<class N>(std::span<const N> in) {
    Cursor<const N> c(in);
    const MatView<const N> x = c.Matrix(T, S * D);
    Output<N> u(T, D);
    LanesInForward<N>(x, c.Matrix(T, C), u.view());
    return u.Dot(du);
  };
  Cursor<const double> in(at);
  const MatView<const double> x = in.Matrix(T, S * D), c = in.Matrix(T, C);
  Gradients g(at.size());
  const MatView<double> dx = g.Added(T, S * D), dc = g.Assigned(T, C);
  for (size_t t = 0; t < T; ++t)  // only the pre part is assigned: the rest is LanesOut's
    for (size_t e = S; e < C; ++e) dc(t, e) = 0;
  LanesInBackward<double>(x, c, View(du, T, D), dx, dc);
  EXPECT_EQ("", Witnesses(loss, at, g.Finish()));
}

TEST(LanesOut, GradientsOfLanesCoefficientsAndBlockMatchBothWitnesses) {
  for (const size_t S : {1u, 3u}) {
    const size_t C = LaneColumns(S);
    const auto dnext = Normal(T * S * D, 1), at = Normal(T * S * D + T * C + T * D, 2);
    const auto loss = [&]<class N>(std::span<const N> in) {
      Cursor<const N> cursor(in);
      const MatView<const N> x = cursor.Matrix(T, S * D), c = cursor.Matrix(T, C);
      Output<N> next(T, S * D);
      LanesOutForward<N>(x, c, cursor.Matrix(T, D), next.view());
      return next.Dot(dnext);
    };
    Cursor<const double> in(at);
    const MatView<const double> x = in.Matrix(T, S * D), c = in.Matrix(T, C), y = in.Matrix(T, D);
    Gradients g(at.size());
    const MatView<double> dx = g.Assigned(T, S * D), dc = g.Assigned(T, C), dy = g.Assigned(T, D);
    for (size_t t = 0; t < T; ++t)  // the pre part is LanesIn's
      for (size_t i = 0; i < S; ++i) dc(t, i) = 0;
    LanesOutBackward<double>(x, c, y, View(dnext, T, S * D), dx, dy, dc);
    EXPECT_EQ("", Witnesses(loss, at, g.Finish())) << S;
    std::vector<double> dc_alone(T * C), dy_alone(T * D);
    LanesOutBackward<double>(x, c, y, View(dnext, T, S * D), {}, {dy_alone.data(), T, D},
                             {dc_alone.data(), T, C});
    EXPECT_EQ("", Mismatch(dy_alone, std::span<const double>(dy.data(), T * D), 0, 0));
    EXPECT_EQ("", Mismatch(dc_alone, std::span<const double>(dc.data(), T * C), 0, 0));
  }
}

TEST(UnitScale, WithTheProjectionAfterItTheGradientsMatchBothWitnesses) {
  const size_t W = 6, C = 5;  // r = unit(x) phi, computed as (x phi) / rms(x)
  const auto direction = Normal(T * C, 1), at = Normal(T * W + W * C, 2);
  const auto loss = [&]<class N>(std::span<const N> in) {
    Cursor<const N> c(in);
    const MatView<const N> x = c.Matrix(T, W);
    Output<N> r(T, C);
    LinearForward<N>(x, c.Matrix(W, C), r.view());
    UnitScaleForward<N>(x, r.view());
    return r.Dot(direction);
  };
  Cursor<const double> in(at);
  const MatView<const double> x = in.Matrix(T, W), phi = in.Matrix(W, C);
  Output<double> r(T, C);
  LinearForward<double>(x, phi, r.view());
  UnitScaleForward<double>(x, r.view());
  Gradients g(at.size());
  const MatView<double> dx = g.Added(T, W), dphi = g.Added(W, C);
  std::vector<double> dr = direction, through(T * W);
  UnitScaleBackward<double>(x, r.view(), {dr.data(), T, C}, dx);
  LinearBackwardInput<double>(phi, View(dr, T, C), {through.data(), T, W});
  for (size_t i = 0; i < T * W; ++i) dx.data()[i] += through[i];
  LinearBackwardWeight<double>(x, View(dr, T, C), dphi);
  EXPECT_EQ("", Witnesses(loss, at, g.Finish()));
}

}  // namespace
}  // namespace needle
