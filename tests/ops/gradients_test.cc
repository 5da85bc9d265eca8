// Every differentiable backward of src/ops against both witnesses: the complex step and a finite
// difference. The loss is always the product of the output with a fixed direction.
#include <gtest/gtest.h>

#include <array>

#include "ops/engram.h"
#include "ops/gate.h"
#include "ops/hadamard_mlp.h"
#include "ops/head.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/probe.h"
#include "ops/rope.h"
#include "support/witness.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

constexpr size_t T = 3, D = 5;

TEST(RmsNorm, GradientsOfInputAndScaleMatchBothWitnesses) {
  for (const size_t heads : {1u, 2u}) {
    const size_t E = 4, width = heads * E;
    const auto dy = Normal(T * width, 1), at = Normal(T * width + E, 2);
    const auto loss = [&]<class N>(std::span<const N> in) {
      Cursor<const N> c(in);
      const MatView<const N> x = c.Matrix(T, width);
      Output<N> y(T, width);
      RmsNormForward<N>(x, c.Vector(E), y.view());
      return y.Dot(dy);
    };
    Cursor<const double> in(at);
    const MatView<const double> x = in.Matrix(T, width);
    const std::span<const double> scale = in.Vector(E);
    Gradients g(at.size());
    const MatView<double> dx = g.Assigned(T, width);
    RmsNormBackward<double>(x, scale, View(dy, T, width), dx, g.AddedVector(E));
    EXPECT_EQ("", Witnesses(loss, at, g.Finish())) << heads;
  }
}

TEST(RmsNorm, BackwardInPlaceAndWithoutScaleGradientIsTheSame) {
  const auto x = Normal(T * D, 1), scale = Normal(D, 2), dy = Normal(T * D, 3);
  std::vector<double> dx(T * D), dscale(D), in_place = dy;
  RmsNormBackward<double>(View(x, T, D), scale, View(dy, T, D), {dx.data(), T, D}, dscale);
  RmsNormBackward<double>(View(x, T, D), scale, View(in_place, T, D), {in_place.data(), T, D}, {});
  EXPECT_EQ(in_place, dx);
}

TEST(Linear, GradientsOfInputAndWeightMatchBothWitnesses) {
  const size_t I = 4, O = 6;
  const auto dy = Normal(T * O, 1), at = Normal(T * I + I * O, 2);
  const auto loss = [&]<class N>(std::span<const N> in) {
    Cursor<const N> c(in);
    const MatView<const N> x = c.Matrix(T, I);
    Output<N> y(T, O);
    LinearForward<N>(x, c.Matrix(I, O), y.view());
    return y.Dot(dy);
  };
  Cursor<const double> in(at);
  const MatView<const double> x = in.Matrix(T, I), w = in.Matrix(I, O);
  Gradients g(at.size());
  LinearBackwardInput<double>(w, View(dy, T, O), g.Assigned(T, I));
  LinearBackwardWeight<double>(x, View(dy, T, O), g.Added(I, O));
  EXPECT_EQ("", Witnesses(loss, at, g.Finish()));
}

TEST(Rope, BackwardIsTheRotationBackAndMatchesBothWitnesses) {
  const size_t heads = 2, E = 6, width = heads * E;
  const RopeTable<double> table(20, E, 100);
  const std::vector<int32_t> position = {0, 7, 19};
  const auto dy = Normal(T * width, 1), at = Normal(T * width, 2);
  const auto loss = [&]<class N>(std::span<const N> in) {
    Output<N> y(T, width);
    std::copy(in.begin(), in.end(), y.values.begin());
    RopeInPlace<N>(y.view(), position, table, 1);
    return y.Dot(dy);
  };
  std::vector<double> dx = dy, there_and_back = at;
  RopeInPlace<double>(MatView<double>(dx.data(), T, width), position, table, -1);
  EXPECT_EQ("", Witnesses(loss, at, dx));
  const MatView<double> view(there_and_back.data(), T, width);
  RopeInPlace<double>(view, position, table, 1);
  EXPECT_NE("", Mismatch(there_and_back, at, 1e-3, 0));
  RopeInPlace<double>(view, position, table, -1);
  EXPECT_EQ("", Mismatch(there_and_back, at, 1e-14, 0));
}

TEST(Gate, GradientsOfBothInputsMatchBothWitnesses) {
  const auto d_o = Normal(T * D, 1), at = Normal(2 * T * D, 2);
  const auto loss = [&]<class N>(std::span<const N> in) {
    Cursor<const N> c(in);
    const MatView<const N> a = c.Matrix(T, D), gate = c.Matrix(T, D);
    Output<N> o(T, D);
    GateForward<N>(a, gate, o.view());
    return o.Dot(d_o);
  };
  Cursor<const double> in(at);
  const MatView<const double> a = in.Matrix(T, D), gate = in.Matrix(T, D);
  Gradients g(at.size());
  const MatView<double> da = g.Assigned(T, D), dgate = g.Assigned(T, D);
  GateBackward<double>(a, gate, View(d_o, T, D), da, dgate);
  EXPECT_EQ("", Witnesses(loss, at, g.Finish()));
  std::vector<double> in_place = d_o, dg(T * D);
  GateBackward<double>(a, gate, View(in_place, T, D), {in_place.data(), T, D}, {dg.data(), T, D});
  EXPECT_EQ("", Mismatch(in_place, std::span<const double>(da.data(), T * D), 0, 0));
}

TEST(ScalarGate, GradientsOfGateAndInputsMatchBothWitnesses) {
  const auto dx1 = Normal(T * D, 1), at = Normal(2 * T * D + 1, 2);
  const auto loss = [&]<class N>(std::span<const N> in) {
    Cursor<const N> c(in);
    const MatView<const N> u1 = c.Matrix(T, D), n = c.Matrix(T, D);
    Output<N> x1(T, D);
    ScalarGateForward<N>(u1, n, c.Scalar(), x1.view());
    return x1.Dot(dx1);
  };
  Cursor<const double> in(at);
  in.Matrix(T, D);
  const MatView<const double> n = in.Matrix(T, D);
  Gradients g(at.size());
  const MatView<double> du1 = g.Assigned(T, D), dn = g.Assigned(T, D);
  std::copy(dx1.begin(), dx1.end(), du1.data());  // the caller's part
  ScalarGateBackward<double>(n, in.Scalar(), View(dx1, T, D), dn, g.AddedScalar());
  EXPECT_EQ("", Witnesses(loss, at, g.Finish()));
}

TEST(HadamardMlp, GradientsMatchBothWitnessesWhereDIsNoPowerOfTwo) {
  for (const size_t width : {5u, 8u, 1u}) {
    const size_t M = width == 5 ? 8 : width;
    const auto dy = Normal(T * width, 1), at = Normal(T * width + 3 * M, 2);
    const auto loss = [&]<class N>(std::span<const N> in) {
      Cursor<const N> c(in);
      const MatView<const N> x = c.Matrix(T, width);
      const std::span<const N> d1 = c.Vector(M), d2 = c.Vector(M), d3 = c.Vector(M);
      Output<N> y(T, width);
      HadamardMlpForward<N>(x, d1, d2, d3, y.view());
      return y.Dot(dy);
    };
    Cursor<const double> in(at);
    const MatView<const double> x = in.Matrix(T, width);
    const std::span<const double> d1 = in.Vector(M), d2 = in.Vector(M), d3 = in.Vector(M);
    Gradients g(at.size());
    const MatView<double> dx = g.Assigned(T, width);
    const std::span<double> dd1 = g.AddedVector(M), dd2 = g.AddedVector(M), dd3 = g.AddedVector(M);
    HadamardMlpBackward<double>(x, d1, d2, d3, View(dy, T, width), dx, dd1, dd2, dd3);
    EXPECT_EQ("", Witnesses(loss, at, g.Finish())) << width;
    std::vector<double> alone(T * width);
    HadamardMlpBackward<double>(x, d1, d2, d3, View(dy, T, width), {alone.data(), T, width}, {}, {},
                                {});
    EXPECT_EQ("", Mismatch(alone, std::span<const double>(dx.data(), T * width), 0, 0)) << width;
  }
}

TEST(Embedding, GradientOfTheTableAddsUpRepeatedTokens) {
  const size_t V = 4;
  const std::vector<int32_t> tokens = {2, 0, 2};
  const auto dx0 = Normal(T * D, 1), at = Normal(V * D, 2);
  const auto loss = [&]<class N>(std::span<const N> in) {
    Output<N> x0(T, D);
    EmbeddingForward<N>({in.data(), V, D}, tokens, x0.view());
    return x0.Dot(dx0);
  };
  Gradients g(at.size());
  EmbeddingBackward<double>(tokens, View(dx0, T, D), g.Added(V, D));
  EXPECT_EQ("", Witnesses(loss, at, g.Finish()));
}

TEST(LaneMean, GradientMatchesBothWitnesses) {
  for (const size_t S : {1u, 3u}) {
    const auto dh = Normal(T * D, 1), at = Normal(T * S * D, 2);
    const auto loss = [&]<class N>(std::span<const N> in) {
      Output<N> h(T, D);
      LaneMeanForward<N>({in.data(), T, S * D}, h.view());
      return h.Dot(dh);
    };
    Gradients g(at.size());
    LaneMeanBackward<double>(View(dh, T, D), g.Assigned(T, S * D));
    EXPECT_EQ("", Witnesses(loss, at, g.Finish())) << S;
  }
}

TEST(CrossEntropyRow, GradientMatchesBothWitnessesWithSeveralTargets) {
  const size_t V = 7;
  const std::vector<int32_t> ids = {3, 0, 6};
  const std::vector<float> weights = {0.5f, 2.0f, 0.125f};
  for (const double scale : {1.0, 300.0}) {  // 300: exp() of the logits themselves would overflow
    const auto at = Normal(V, 2, scale);
    for (const size_t n : {0u, 1u, 3u}) {
      const auto loss = [&]<class N>(std::span<const N> in) {
        std::vector<N> logits(in.begin(), in.end());
        return CrossEntropyRow<N>(logits, {ids.data(), n}, {weights.data(), n});
      };
      std::vector<double> dlogits = at;
      CrossEntropyRow<double>(dlogits, {ids.data(), n}, {weights.data(), n});
      EXPECT_EQ("", Witnesses(loss, at, dlogits)) << n << " targets, scale " << scale;
    }
  }
}

TEST(EngramGather, GradientOfTheTablesAddsUpSharedSlots) {
  const size_t tables = 2, per_table = 3, sub = 2;
  const std::vector<int32_t> slots = {1, -1, 1, 2, 0, 2};  // [T, tables]
  const auto de = Normal(T * tables * sub, 1), at = Normal(tables * per_table * sub, 2);
  const auto loss = [&]<class N>(std::span<const N> in) {
    Output<N> e(T, tables * sub);
    EngramGatherForward<N>({in.data(), tables * per_table, sub}, slots, tables, e.view());
    return e.Dot(de);
  };
  Gradients g(at.size());
  EngramGatherBackward<double>(slots, tables, View(de, T, tables * sub),
                               g.Added(tables * per_table, sub));
  EXPECT_EQ("", Witnesses(loss, at, g.Finish()));
}

TEST(EngramConv, GradientsMatchBothWitnessesOverATree) {
  // 0-1-2-3-4 and, from row 1, 5-6-7-8; then a second root 9-10.
  const std::vector<int32_t> parent = {-1, 0, 1, 2, 3, 1, 5, 6, 7, -1, 9};
  const size_t rows = parent.size(), taps = 4;
  for (const int dilation : {1, 2})
    for (const size_t first : {0u, 6u}) {
      const size_t count = rows - first;
      const auto dout = Normal(count * D, 1), at = Normal(rows * D + taps * D, 2);
      const auto loss = [&]<class N>(std::span<const N> in) {
        Cursor<const N> c(in);
        const MatView<const N> val = c.Matrix(rows, D);
        Output<N> out(count, D);
        EngramConvForward<N>(val, parent, c.Matrix(taps, D), dilation, first, out.view());
        return out.Dot(dout);
      };
      Cursor<const double> in(at);
      const MatView<const double> val = in.Matrix(rows, D), tap = in.Matrix(taps, D);
      Gradients g(at.size());
      const MatView<double> dval = g.Added(rows, D), dtaps = g.Added(taps, D);
      EngramConvBackward<double>(val, parent, tap, dilation, first, View(dout, count, D), dval,
                                 dtaps);
      EXPECT_EQ("", Witnesses(loss, at, g.Finish())) << dilation << " " << first;
    }
}

TEST(EngramMix, GradientsOfStateKeyAndValueMatchBothWitnesses) {
  const auto du1 = Normal(T * D, 1), at = Normal(3 * T * D, 2);
  const auto loss = [&]<class N>(std::span<const N> in) {
    Cursor<const N> c(in);
    const MatView<const N> u = c.Matrix(T, D), key = c.Matrix(T, D), val = c.Matrix(T, D);
    Output<N> u1(T, D);
    EngramMixForward<N>(u, key, val, u1.view());
    return u1.Dot(du1);
  };
  Cursor<const double> in(at);
  const MatView<const double> u = in.Matrix(T, D), key = in.Matrix(T, D), val = in.Matrix(T, D);
  Gradients g(at.size());
  const MatView<double> du = g.Added(T, D), dkey = g.Added(T, D), dval = g.Added(T, D);
  for (size_t i = 0; i < T * D; ++i) du.data()[i] += du1[i];  // the caller's part
  EngramMixBackward<double>(u, key, val, View(du1, T, D), du, dkey, dval);
  EXPECT_EQ("", Witnesses(loss, at, g.Finish()));
}

TEST(ProbePool, GradientsOfCellsAndProbesMatchBothWitnesses) {
  const size_t C = 6, P = 2;
  const std::array<bool, C> keep = {true, false, true, true, false, true};
  const auto dpooled = Normal(P * D, 1), at = Normal((C + P) * D, 2);
  const auto loss = [&]<class N>(std::span<const N> in) {
    Cursor<const N> c(in);
    const MatView<const N> cells = c.Matrix(C, D);
    Output<N> pooled(1, P * D);
    ProbePoolForward<N>(cells, keep, c.Matrix(P, D), pooled.values);
    return pooled.Dot(dpooled);
  };
  Cursor<const double> in(at);
  const MatView<const double> cells = in.Matrix(C, D), probes = in.Matrix(P, D);
  Gradients g(at.size());
  const MatView<double> dcells = g.Added(C, D), dprobes = g.Added(P, D);
  ProbePoolBackward<double>(cells, keep, probes, dpooled, dcells, dprobes);
  const std::vector<double> got = g.Finish();
  EXPECT_EQ("", Witnesses(loss, at, got));
  for (size_t d = 0; d < D; ++d) EXPECT_EQ(got[1 * D + d], 0) << "a pad has no gradient";
}

TEST(UnitVector, GradientMatchesBothWitnesses) {
  const auto dy = Normal(D, 1), at = Normal(D, 2);
  const auto loss = [&]<class N>(std::span<const N> in) {
    Output<N> y(1, D);
    UnitVectorForward<N>(in, y.values);
    return y.Dot(dy);
  };
  Gradients g(at.size());
  UnitVectorBackward<double>(at, dy, g.AssignedVector(D));
  EXPECT_EQ("", Witnesses(loss, at, g.Finish()));
}

}  // namespace
}  // namespace needle
