// The lane kernels against the plain loops of ops/lanes.h in double.
#include "ops/lanes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernel_support.h"
#include "kernels/kernels.h"

namespace needle {
namespace {

using test::Pair;
using test::PairVector;

/// The scalars of a layer in both types, and gradients of them that start from something.
struct Scalars {
  PairVector b_pre, b_post, b_res, a;
  PairVector db_pre, db_post, db_res, da;
  size_t own;
  Scalars(size_t S, size_t own_in, float spread)
      : b_pre(S, 1),
        b_post(S, 2),
        b_res(S * S, 3, spread),
        a(3, 4),
        db_pre(S, 5),
        db_post(S, 6),
        db_res(S * S, 7),
        da(3, 8),
        own(own_in) {}
  LaneScalars<float> F() const { return {a.f[0], a.f[1], a.f[2], b_pre.f, b_post.f, b_res.f, own}; }
  LaneScalars<double> D() const {
    return {a.d[0], a.d[1], a.d[2], b_pre.d, b_post.d, b_res.d, own};
  }
  LaneScalarGrads<float> GradF() {
    return {&da.f[0], &da.f[1], &da.f[2], db_pre.f, db_post.f, db_res.f};
  }
  LaneScalarGrads<double> GradD() {
    return {&da.d[0], &da.d[1], &da.d[2], db_pre.d, db_post.d, db_res.d};
  }
};

template <class Test>
void ForEachIsaAndLanes(const Test& test) {
  for (const Isa isa : SupportedIsas())
    for (const size_t S : {1, 2, 3, 4, 5}) {
      SCOPED_TRACE(std::string(Name(isa)) + " with " + std::to_string(S) + " lanes");
      test(KernelsFor(isa), S);
    }
}

TEST(LaneCoefficientsKernel, AgreeWithPlainLoopsForAnyNumberOfTokens) {
  ForEachIsaAndLanes([](const Kernels& k, size_t S) {
    for (const size_t T : {1, 2, 15, 16, 17, 40}) {
      const size_t C = LaneColumns(S);
      Scalars p(S, S - 1, 2.0f);
      Pair r(T, C, 11), c(T, C, 12), dc(T, C, 13), dr(T, C, 14);
      k.lane_coefficients_forward(r.F(), p.F(), c.F());
      LaneCoefficientsForward<double>(r.D(), p.D(), c.D());
      EXPECT_EQ("", c.Differ(3e-6)) << T;
      k.lane_coefficients_backward(r.F(), c.F(), p.F(), dc.F(), dr.F(), p.GradF());
      LaneCoefficientsBackward<double>(r.D(), c.D(), p.D(), dc.D(), dr.D(), p.GradD());
      EXPECT_EQ("", dr.Differ(1e-5)) << T;
      for (const PairVector* g : {&p.da, &p.db_pre, &p.db_post, &p.db_res})
        EXPECT_EQ("", g->Differ(1e-5, 1e-5)) << T;
      k.lane_coefficients_backward(r.F(), c.F(), p.F(), dc.F(), dc.F(), {});  // in place
      EXPECT_EQ(dc.f, dr.f);
    }
  });
}

TEST(LaneCoefficientsKernel, ExtremeMatricesAgreeToo) {
  for (const Isa isa : SupportedIsas())
    for (const float spread : {20.0f, 60.0f, 200.0f}) {
      const size_t T = 33, S = 4, C = LaneColumns(S);
      Scalars p(S, 0, spread);
      Pair r(T, C, 11, 5.0f), c(T, C, 12);
      KernelsFor(isa).lane_coefficients_forward(r.F(), p.F(), c.F());
      LaneCoefficientsForward<double>(r.D(), p.D(), c.D());
      // A logit of size 5 spread is rounded by that many units before it is exponentiated.
      EXPECT_EQ("", c.Differ(1e-6 * static_cast<double>(spread))) << Name(isa) << " " << spread;
    }
}

TEST(LaneCoefficientsKernel, ANanStaysInItsToken) {
  for (const Isa isa : SupportedIsas())
    for (size_t column = 8; column < 24; ++column) {
      const size_t T = 20, C = 24;
      const Scalars p(4, 0, 1.0f);
      Pair r(T, C, 11), c(T, C, 12);
      r.F()(7, column) = NAN;
      KernelsFor(isa).lane_coefficients_forward(r.F(), p.F(), c.F());
      for (size_t t = 0; t < T; ++t)
        EXPECT_EQ(std::isnan(c.F()(t, 23)), t == 7) << Name(isa) << " column " << column;
    }
}

TEST(LanesKernel, MixingInAndOutAgreesWithPlainLoops) {
  ForEachIsaAndLanes([](const Kernels& k, size_t S) {
    for (const size_t D : {1, 8, 15, 16, 33, 64}) {
      const size_t T = 3, C = LaneColumns(S);
      Pair x(T, S * D, 1), c(T, C, 2), u(T, D, 3), y(T, D, 4), next(T, S * D, 5);
      k.lanes_in_forward(x.F(), c.F(), u.F());
      LanesInForward<double>(x.D(), c.D(), u.D());
      EXPECT_EQ("", u.Differ(1e-6)) << D;
      k.lanes_out_forward(x.F(), c.F(), y.F(), next.F());
      LanesOutForward<double>(x.D(), c.D(), y.D(), next.D());
      EXPECT_EQ("", next.Differ(1e-6)) << D;

      Pair dnext(T, S * D, 6), dx(T, S * D, 7), dy(T, D, 8), dc(T, C, 9), du(T, D, 10);
      k.lanes_out_backward(x.F(), c.F(), y.F(), dnext.F(), dx.F(), dy.F(), dc.F());
      LanesOutBackward<double>(x.D(), c.D(), y.D(), dnext.D(), dx.D(), dy.D(), dc.D());
      EXPECT_EQ("", dx.Differ(2e-6)) << D;
      EXPECT_EQ("", dy.Differ(2e-6)) << D;
      EXPECT_EQ("", dc.Differ(4e-6)) << D;
      k.lanes_in_backward(x.F(), c.F(), du.F(), dx.F(), dc.F());
      LanesInBackward<double>(x.D(), c.D(), du.D(), dx.D(), dc.D());
      EXPECT_EQ("", dx.Differ(2e-6)) << D;
      EXPECT_EQ("", dc.Differ(4e-6)) << D;
      Pair dy2(T, D, 8);
      k.lanes_out_backward(x.F(), c.F(), y.F(), dnext.F(), {}, dy2.F(), dc.F());  // lowest layer
      EXPECT_EQ(dy2.f, dy.f);
    }
  });
}

TEST(UnitScaleKernel, AgreesWithPlainLoops) {
  ForEachIsaAndLanes([](const Kernels& k, size_t S) {
    const size_t T = 3, D = 21, C = LaneColumns(S);
    Pair x(T, S * D, 1), r(T, C, 2), dr(T, C, 3), dx(T, S * D, 4);
    k.unit_scale_forward(x.F(), r.F());
    UnitScaleForward<double>(x.D(), r.D());
    EXPECT_EQ("", r.Differ(1e-6));
    k.unit_scale_backward(x.F(), r.F(), dr.F(), dx.F());
    UnitScaleBackward<double>(x.D(), r.D(), dr.D(), dx.D());
    EXPECT_EQ("", dr.Differ(1e-6));
    EXPECT_EQ("", dx.Differ(2e-6));
    k.unit_scale_backward(x.F(), r.F(), dr.F(), {});
    UnitScaleBackward<double>(x.D(), r.D(), dr.D(), {});
    EXPECT_EQ("", dr.Differ(2e-6));
  });
}

}  // namespace
}  // namespace needle
