#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>

#include "kernels/kernel_support.h"
#include "kernels/kernels.h"

namespace needle {
namespace {

using test::kMaxLanes;
using test::NormalFloats;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(DotKernel, AgreesWithPlainLoopOnEveryIsaAndTail) {
  for (const Isa isa : SupportedIsas())
    for (size_t n = 0; n <= 5 * kMaxLanes + 1; ++n) {
      const auto a = NormalFloats(n, 1), b = NormalFloats(n, 2);
      double want = 0, magnitude = 0, squares = 0;
      for (size_t i = 0; i < n; ++i) {
        want += double{a[i]} * b[i];
        magnitude += std::abs(double{a[i]} * b[i]);
        squares += double{a[i]} * a[i];
      }
      const double unit = static_cast<double>(n) * FLT_EPSILON;
      EXPECT_LE(std::abs(KernelsFor(isa).dot(a.data(), b.data(), n) - want), unit * magnitude) << n;
      EXPECT_LE(std::abs(KernelsFor(isa).sum_squares(a.data(), n) - squares), unit * squares) << n;
    }
}

TEST(AxpyKernel, AddsOnEveryIsaAndTail) {
  for (const Isa isa : SupportedIsas())
    for (size_t n = 0; n <= 2 * kMaxLanes + 1; ++n) {
      const auto x = NormalFloats(n, 1), before = NormalFloats(n, 2);
      auto y = before;
      y.push_back(9.0f);
      KernelsFor(isa).axpy(0.5f, x.data(), y.data(), n);
      for (size_t i = 0; i < n; ++i)
        EXPECT_NEAR(y[i], 0.5 * x[i] + before[i], FLT_EPSILON * (std::abs(x[i]) + std::abs(y[i])));
      EXPECT_EQ(y[n], 9.0f) << "wrote past the end";
    }
}

/// Arguments over the whole range of floats, every exponent, both signs.
std::vector<float> Everywhere() {
  std::vector<float> x;
  for (uint32_t bits = 0; bits < 0x7F800000u; bits += 0x12345) {
    x.push_back(std::bit_cast<float>(bits));
    x.push_back(-std::bit_cast<float>(bits));
  }
  for (float v = -110; v < 95; v += 0.0137f) x.push_back(v);
  return x;
}

/// |got - want| in units of the last place of a float of want's size (subnormals included).
double Units(float got, double want) {
  const double size = std::max(std::abs(want), double{FLT_MIN});
  const double unit = std::ldexp(1.0, std::ilogb(size) - 23);
  return std::abs(got - want) / unit;
}

TEST(ExpKernel, IsWithinTwoUnitsEverywhereAndSaturates) {
  const auto x = Everywhere();
  for (const Isa isa : SupportedIsas()) {
    std::vector<float> y(x.size());
    KernelsFor(isa).exp(x.data(), y.data(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = std::exp(double{x[i]});
      if (want > double{FLT_MAX}) {
        ASSERT_TRUE(y[i] == kInfinity || y[i] > 0.999f * FLT_MAX) << Name(isa) << " " << x[i];
      } else {
        ASSERT_LE(Units(y[i], want), 2.0) << Name(isa) << " exp(" << x[i] << ") = " << y[i];
      }
    }
  }
}

TEST(SigmoidKernel, IsWithinFourUnitsEverywhere) {
  const auto x = Everywhere();
  for (const Isa isa : SupportedIsas()) {
    std::vector<float> s(x.size()), silu(x.size());
    KernelsFor(isa).sigmoid(x.data(), s.data(), x.size());
    KernelsFor(isa).silu(x.data(), silu.data(), x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] < -87)
        continue;  // below, 1 + exp(-x) is infinite and the result is 0, as upstream's
      const double want = 1 / (1 + std::exp(-double{x[i]}));
      ASSERT_LE(Units(s[i], want), 4.0) << Name(isa) << " sigmoid(" << x[i] << ")";
      ASSERT_LE(Units(silu[i], x[i] * want), 5.0) << Name(isa) << " silu(" << x[i] << ")";
    }
  }
}

TEST(ExpKernel, KeepsNanAndMapsInfinities) {
  const std::vector<float> x = {NAN, kInfinity, -kInfinity, 0.0f, -0.0f};
  for (const Isa isa : SupportedIsas()) {
    std::vector<float> y(5), s(5), silu(5);
    KernelsFor(isa).exp(x.data(), y.data(), 5);
    KernelsFor(isa).sigmoid(x.data(), s.data(), 5);
    KernelsFor(isa).silu(x.data(), silu.data(), 5);
    EXPECT_TRUE(std::isnan(y[0]) && std::isnan(s[0]) && std::isnan(silu[0])) << Name(isa);
    EXPECT_EQ(y[1], kInfinity);
    EXPECT_EQ(y[2], 0.0f);
    EXPECT_EQ(y[3], 1.0f);
    EXPECT_EQ(y[4], 1.0f);
    EXPECT_EQ(s[1], 1.0f);
    EXPECT_EQ(s[2], 0.0f);
    EXPECT_EQ(s[3], 0.5f);
    EXPECT_EQ(silu[1], kInfinity);
  }
}

TEST(AdamWKernel, HasTheBitsOfThePlainLoopWithAndWithoutClipping) {
  const AdamWOptions options;
  for (const Isa isa : SupportedIsas())
    for (const size_t n : {1, 15, 16, 17, 100})
      for (const float norm : {0.5f, 1.0f, 7.0f}) {
        const auto g = NormalFloats(n, 1);
        auto p = NormalFloats(n, 2), m = NormalFloats(n, 3, 0.1f), v = NormalFloats(n, 4, 0.1f);
        for (float& x : v) x *= x;
        auto p2 = p, m2 = m, v2 = v;
        const UpdateScalars scalars = ScalarsOf(options, 1e-3f, 3);
        AdamWUpdate(options, scalars, norm, g, p, m, v);
        KernelsFor(isa).adamw(options, scalars, norm, g, p2, m2, v2);
        EXPECT_EQ(p, p2) << Name(isa) << " n " << n << " norm " << norm;
        EXPECT_EQ(m, m2);
        EXPECT_EQ(v, v2);
      }
}

}  // namespace
}  // namespace needle
