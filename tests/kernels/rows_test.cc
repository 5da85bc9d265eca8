// The row-block kernels against the plain loops of src/ops in double. Widths around the vector
// length; tolerances are some units of float rounding of the largest value, times the length of the
// sum where there is one.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "kernels/kernel_support.h"
#include "kernels/kernels.h"
#include "ops/engram.h"
#include "ops/gate.h"
#include "ops/hadamard_mlp.h"
#include "ops/head.h"
#include "ops/norm.h"
#include "ops/rope.h"
#include "quant/cq.h"

namespace needle {
namespace {

using test::NormalFloats;
using test::Pair;
using test::PairVector;

constexpr size_t kWidths[] = {1, 3, 8, 15, 16, 17, 31, 64, 100};
constexpr double kTight = 1e-6, kSum = 4e-6;

template <class Test>
void ForEachIsaAndWidth(const Test& test) {
  for (const Isa isa : SupportedIsas())
    for (const size_t width : kWidths) {
      SCOPED_TRACE(std::string(Name(isa)) + " width " + std::to_string(width));
      test(KernelsFor(isa), width);
    }
}

TEST(RmsNormKernel, AgreesWithPlainLoopsForHeadsAndRows) {
  ForEachIsaAndWidth([](const Kernels& k, size_t E) {
    for (const size_t heads : {1, 3}) {
      Pair x(4, heads * E, 1), y(4, heads * E, 2), dy(4, heads * E, 3), dx(4, heads * E, 4);
      PairVector scale(E, 5, 0.2f), dscale(E, 6);
      k.rms_norm_forward(x.F(), scale.CF(), y.F());
      RmsNormForward<double>(x.D(), scale.CD(), y.D());
      EXPECT_EQ("", y.Differ(kTight));
      k.rms_norm_backward(x.F(), scale.CF(), dy.F(), dx.F(), dscale.f);
      RmsNormBackward<double>(x.D(), scale.CD(), dy.D(), dx.D(), dscale.d);
      EXPECT_EQ("", dx.Differ(kSum, kSum));  // a difference of terms of size dy
      EXPECT_EQ("", dscale.Differ(kSum));
      k.rms_norm_backward(x.F(), scale.CF(), dy.F(), dy.F(), {});  // in place, scale frozen
      EXPECT_EQ(dx.f, dy.f);
      k.rms_norm_forward(x.F(), scale.CF(), x.F());
      EXPECT_EQ(x.f, y.f);
    }
  });
}

TEST(RopeKernel, RotatesForthAndBackAsPlainLoops) {
  for (const Isa isa : SupportedIsas())
    for (const size_t E : {2, 6, 16, 34, 64}) {
      Pair x(5, 3 * E, 1);
      const RopeTable<float> table(40, E, 10000.0);
      const std::vector<int32_t> position = {0, 39, 7, 8, 7};
      KernelsFor(isa).rope(x.F(), position, table, 1);
      RopeInPlace<double, float>(x.D(), position, table, 1);
      EXPECT_EQ("", x.Differ(kTight)) << Name(isa) << " E " << E;
      KernelsFor(isa).rope(x.F(), position, table, -1);
      RopeInPlace<double, float>(x.D(), position, table, -1);
      EXPECT_EQ("", x.Differ(kTight)) << Name(isa) << " E " << E;
    }
}

TEST(GateKernel, AgreesWithPlainLoops) {
  ForEachIsaAndWidth([](const Kernels& k, size_t D) {
    Pair a(3, D, 1), g(3, D, 2, 3.0f), o(3, D, 3), d_o(3, D, 4), dg(3, D, 5);
    k.gate_forward(a.F(), g.F(), o.F());
    GateForward<double>(a.D(), g.D(), o.D());
    EXPECT_EQ("", o.Differ(kTight));
    k.gate_backward(a.F(), g.F(), d_o.F(), d_o.F(), dg.F());
    GateBackward<double>(a.D(), g.D(), d_o.D(), d_o.D(), dg.D());
    EXPECT_EQ("", d_o.Differ(kTight));
    EXPECT_EQ("", dg.Differ(kTight));
  });
}

TEST(ScalarGateKernel, AgreesWithPlainLoops) {
  ForEachIsaAndWidth([](const Kernels& k, size_t D) {
    Pair u1(3, D, 1), n(3, D, 2), x1(3, D, 3), dx1(3, D, 4), dn(3, D, 5);
    k.scalar_gate_forward(u1.F(), n.F(), 0.3f, x1.F());
    ScalarGateForward<double>(u1.D(), n.D(), double{0.3f}, x1.D());
    EXPECT_EQ("", x1.Differ(kTight));
    float dgate = 0.25f;
    double want = 0.25;
    k.scalar_gate_backward(n.F(), 0.3f, dx1.F(), dn.F(), &dgate);
    ScalarGateBackward<double>(n.D(), double{0.3f}, dx1.D(), dn.D(), &want);
    EXPECT_EQ("", dn.Differ(kTight));
    EXPECT_NEAR(dgate, want, 1e-5);
    k.scalar_gate_backward(n.F(), 0.3f, dx1.F(), dx1.F(), nullptr);
    EXPECT_EQ(dx1.f, dn.f);
  });
}

TEST(WalshHadamardKernel, HasTheBitsOfTheQuantisersTransformAtEverySize) {
  for (const Isa isa : SupportedIsas())
    for (size_t n = 1; n <= 4096; n *= 2) {
      Pair x(2, n, 1);
      std::vector<float> want(x.f);
      for (size_t r = 0; r < 2; ++r) HadamardInPlace({want.data() + r * (n + x.slack), n});
      KernelsFor(isa).walsh_hadamard(x.F());
      EXPECT_EQ(x.f, want) << Name(isa) << " n " << n;
    }
}

TEST(HadamardMlpKernel, AgreesWithPlainLoopsPaddedOrNot) {
  for (const Isa isa : SupportedIsas())
    for (const auto& [D, M] : {std::pair<size_t, size_t>{1, 1},
                               {3, 4},
                               {16, 16},
                               {48, 64},
                               {128, 128},
                               {200, 256},
                               {512, 512},
                               {768, 1024},
                               {5000, 8192}}) {
      SCOPED_TRACE(std::string(Name(isa)) + " D " + std::to_string(D));
      const Kernels& k = KernelsFor(isa);
      Pair x(2, D, 1), y(2, D, 2), dy(2, D, 3), dx(2, D, 4);
      PairVector d1(M, 5), d2(M, 6), d3(M, 7), dd1(M, 8), dd2(M, 9), dd3(M, 10);
      k.hadamard_mlp_forward(x.F(), d1.CF(), d2.CF(), d3.CF(), y.F());
      HadamardMlpForward<double>(x.D(), d1.CD(), d2.CD(), d3.CD(), y.D());
      EXPECT_EQ("", y.Differ(kTight, 1e-6));
      k.hadamard_mlp_backward(x.F(), d1.CF(), d2.CF(), d3.CF(), dy.F(), dx.F(), dd1.f, dd2.f,
                              dd3.f);
      HadamardMlpBackward<double>(x.D(), d1.CD(), d2.CD(), d3.CD(), dy.D(), dx.D(), dd1.d, dd2.d,
                                  dd3.d);
      EXPECT_EQ("", dx.Differ(kTight, 1e-6));
      EXPECT_EQ("", dd1.Differ(kTight, 1e-6));
      EXPECT_EQ("", dd2.Differ(kTight, 1e-6));
      EXPECT_EQ("", dd3.Differ(kTight, 1e-6));
      k.hadamard_mlp_backward(x.F(), d1.CF(), d2.CF(), d3.CF(), dy.F(), dy.F(), {}, {}, {});
      EXPECT_EQ(dx.f, dy.f);
    }
}

TEST(ResidualKernel, AddsAndSubtractsInThatOrder) {
  ForEachIsaAndWidth([](const Kernels& k, size_t D) {
    Pair x1(2, D, 1), u(2, D, 2, 1e3f), y(2, D, 3);
    auto want = y.f;
    for (size_t t = 0; t < 2; ++t)
      for (size_t d = 0; d < D; ++d) {
        const size_t at = t * (D + y.slack) + d;
        want[at] = (x1.f[at] + want[at]) - u.f[at];
      }
    k.residual(x1.F(), u.F(), y.F());
    EXPECT_EQ(y.f, want);
  });
}

TEST(EngramMixKernel, AgreesWithPlainLoops) {
  ForEachIsaAndWidth([](const Kernels& k, size_t D) {
    Pair u(3, D, 1), key(3, D, 2), val(3, D, 3), u1(3, D, 4);
    Pair du1(3, D, 5), du(3, D, 6), dkey(3, D, 7), dval(3, D, 8);
    k.engram_mix_forward(u.F(), key.F(), val.F(), u1.F());
    EngramMixForward<double>(u.D(), key.D(), val.D(), u1.D());
    EXPECT_EQ("", u1.Differ(kSum));
    k.engram_mix_backward(u.F(), key.F(), val.F(), du1.F(), du.F(), dkey.F(), dval.F());
    EngramMixBackward<double>(u.D(), key.D(), val.D(), du1.D(), du.D(), dkey.D(), dval.D());
    EXPECT_EQ("", du.Differ(kSum));
    EXPECT_EQ("", dkey.Differ(kSum));
    EXPECT_EQ("", dval.Differ(kSum));
    k.engram_mix_backward(u.F(), key.F(), val.F(), du1.F(), du.F(), {}, {});
    EngramMixBackward<double>(u.D(), key.D(), val.D(), du1.D(), du.D(), {}, {});
    EXPECT_EQ("", du.Differ(kSum));
  });
}

TEST(LaneMeanKernel, AgreesWithPlainLoops) {
  ForEachIsaAndWidth([](const Kernels& k, size_t D) {
    for (const size_t S : {1, 3, 4}) {
      Pair x(2, S * D, 1), h(2, D, 2), dx(2, S * D, 3);
      k.lane_mean_forward(x.F(), h.F());
      LaneMeanForward<double>(x.D(), h.D());
      EXPECT_EQ("", h.Differ(kTight));
      k.lane_mean_backward(h.F(), dx.F());
      LaneMeanBackward<double>(h.D(), dx.D());
      EXPECT_EQ("", dx.Differ(kTight));
    }
  });
}

TEST(CrossEntropyKernel, GivesLossAndGradientForSeveralTargetsOfARow) {
  ForEachIsaAndWidth([](const Kernels& k, size_t V) {
    for (const float size : {1.0f, 50.0f}) {
      PairVector logits(V, 1, size);
      const auto last = static_cast<int32_t>(V - 1);
      const std::vector<int32_t> ids = {0, last, 0};
      const std::vector<float> weights = {0.5f, 0.25f, 0.125f};
      const double loss = k.cross_entropy_row(logits.f, ids, weights);
      const double want = CrossEntropyRow<double>(logits.d, ids, weights);
      EXPECT_NEAR(loss, want, 1e-5 * (1 + std::abs(want)));
      EXPECT_EQ("", logits.Differ(0, 1e-6 * (1 + size)));
    }
  });
}

TEST(CrossEntropyKernel, NoTargetsGiveNoLossAndNoGradient) {
  for (const Isa isa : SupportedIsas()) {
    auto logits = NormalFloats(40, 1);
    EXPECT_EQ(KernelsFor(isa).cross_entropy_row(logits, {}, {}), 0.0);
    EXPECT_EQ(logits, std::vector<float>(40, 0.0f)) << Name(isa);
  }
}

TEST(CrossEntropyKernel, ANanLogitGivesANanLossWhereverItStands) {
  for (const Isa isa : SupportedIsas())
    for (size_t at = 0; at < 40; ++at) {
      auto logits = NormalFloats(40, 1);
      logits[at] = NAN;
      const std::vector<int32_t> ids = {3};
      const std::vector<float> weights = {1.0f};
      EXPECT_TRUE(std::isnan(KernelsFor(isa).cross_entropy_row(logits, ids, weights)))
          << Name(isa) << " at " << at;
    }
}

}  // namespace
}  // namespace needle
