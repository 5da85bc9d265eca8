// Fake quantisation has the bits of src/quant, rounding midpoints included.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/kernel_support.h"
#include "kernels/kernels.h"
#include "kernels/thresholds.h"
#include "quant/cq.h"
#include "quant/group.h"

namespace needle {
namespace {

using test::Pair;

std::vector<float> PlainRows(Pair& x, size_t unit, Bits bits, size_t group) {
  std::vector<float> want = x.f, q(unit);
  for (size_t r = 0; r < x.rows; ++r)
    for (size_t piece = 0; piece < x.cols; piece += unit) {
      const std::span<float> w(want.data() + r * (x.cols + x.slack) + piece, unit);
      FakeQuantizeRow(w, q, bits, group);
      for (size_t i = 0; i < unit; ++i) w[i] = w[i] + (q[i] - w[i]);
    }
  return want;
}

TEST(FakeQuantiseKernel, HasTheBitsOfThePlainWeightsOnEveryIsa) {
  for (const Isa isa : SupportedIsas())
    for (const Bits bits : {Bits::k2, Bits::k3, Bits::k4, Bits::kTernary})
      for (const size_t cols : {1, 7, 64, 127, 128, 129, 256, 300}) {
        Pair x(9, cols, 1, 0.05f);
        const auto want = PlainRows(x, cols, bits, kGroup);
        KernelsFor(isa).fake_quantise(x.F(), cols, bits, kGroup);
        EXPECT_EQ(x.f, want) << Name(isa) << " " << Name(bits) << " bits, " << cols << " columns";
      }
}

TEST(FakeQuantiseKernel, HasTheBitsOfThePlainKeysHeadByHead) {
  for (const Isa isa : SupportedIsas())
    for (const Bits bits : {Bits::k2, Bits::k3, Bits::k4})
      for (const size_t E : {16, 24, 64, 80}) {
        Pair x(5, 3 * E, 2);
        const auto want = PlainRows(x, E, bits, kKvGroup);
        KernelsFor(isa).fake_quantise(x.F(), E, bits, kKvGroup);
        EXPECT_EQ(x.f, want) << Name(isa) << " " << Name(bits) << " bits, head " << E;
      }
}

TEST(FakeQuantiseKernel, ZeroGroupsStayZeroAndHugeNormsOverflowAlike) {
  for (const Isa isa : SupportedIsas()) {
    Pair zero(2, 256, 3, 0.0f), huge(2, 256, 4, 1e5f);
    KernelsFor(isa).fake_quantise(zero.F(), 256, Bits::k4, kGroup);
    for (size_t i = 0; i < 256; ++i) EXPECT_EQ(zero.F()(1, i), 0.0f);
    const auto want = PlainRows(huge, 256, Bits::k4, kGroup);
    KernelsFor(isa).fake_quantise(huge.F(), 256, Bits::k4, kGroup);
    for (size_t i = 0; i < want.size(); ++i)
      EXPECT_TRUE(want[i] == huge.f[i] || (std::isnan(want[i]) && std::isnan(huge.f[i])));
  }
}

TEST(Thresholds, ChooseTheCodeThatThePlainRuleChoosesAroundEveryMidpoint) {
  for (const size_t group : {kGroup, kKvGroup})
    for (const Bits bits : {Bits::k2, Bits::k3, Bits::k4, Bits::kTernary}) {
      if (group == kKvGroup && bits == Bits::kTernary) continue;
      const auto codebook = Codebook(bits, group);
      const CodebookThresholds& t = ThresholdsOf(bits, group);
      ASSERT_EQ(t.entries, codebook.size());
      const auto check = [&](float u) {
        size_t code = 0;
        for (size_t k = 0; k + 1 < t.entries; ++k) code += u > t.threshold[k];
        EXPECT_EQ(code, NearestCode(u, codebook)) << u;
      };
      for (size_t k = 0; k + 1 < codebook.size(); ++k) {
        float u = 0.5f * (codebook[k] + codebook[k + 1]);
        for (int i = 0; i < 20; ++i) u = std::nextafter(u, -INFINITY);
        for (int i = 0; i < 40; ++i, u = std::nextafter(u, INFINITY)) check(u);
      }
      for (const float u : {-2.0f, -0.3f, -0.0f, 0.0f, 1e-30f, 0.3f, 2.0f}) check(u);
      for (const float u : codebook) check(u);
    }
}

TEST(FakeQuantiseActivationsKernel, HasTheBitsOfThePlainRule) {
  for (const Isa isa : SupportedIsas())
    for (const int bits : {2, 4, 8})
      for (const size_t cols : {1, 15, 16, 17, 100}) {
        Pair x(6, cols, 5);
        x.F()(2, 0) = 0.5f;  // halves: 127 steps of 1/127 hit ties
        auto want = x.f;
        for (size_t r = 0; r < 6; ++r)
          FakeQuantizeActivations({want.data() + r * (cols + x.slack), cols}, bits);
        KernelsFor(isa).fake_quantise_activations(x.F(), bits);
        EXPECT_EQ(x.f, want) << Name(isa) << " " << bits << " bits, " << cols << " columns";
      }
}

TEST(FakeQuantiseActivationsKernel, RoundsHalvesToEvenKeepsZerosAndNan) {
  for (const Isa isa : SupportedIsas()) {
    std::vector<float> row = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.0f, NAN, -127.0f, 3.49f};
    KernelsFor(isa).fake_quantise_activations({row.data(), 1, row.size()}, 8);
    const std::vector<float> want = {127, 0, 2, 2, 0, -2, 0, 0, -127, 3};
    for (size_t i = 0; i < row.size(); ++i) {
      if (i == 7) {
        EXPECT_TRUE(std::isnan(row[i])) << Name(isa);
      } else {
        EXPECT_EQ(row[i], want[i]) << Name(isa) << " " << i;
      }
    }
    std::vector<float> zeros(20, 0.0f);
    KernelsFor(isa).fake_quantise_activations({zeros.data(), 1, 20}, 8);
    EXPECT_EQ(zeros, std::vector<float>(20, 0.0f)) << Name(isa);
  }
}

}  // namespace
}  // namespace needle
