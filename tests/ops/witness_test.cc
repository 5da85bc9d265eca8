// The witnesses and the comparer themselves: what judges the gradients is judged first.
#include "support/witness.h"

#include <gtest/gtest.h>

namespace needle {
namespace {

using namespace test;  // NOLINT

const auto kCubic = []<class N>(std::span<const N> x) {  // x0^3 + x0 exp(x1)
  using std::exp;
  return x[0] * x[0] * x[0] + x[0] * exp(x[1]);
};
const std::vector<double> kAt = {1.5, -0.25};
const std::vector<double> kGradient = {3 * 1.5 * 1.5 + std::exp(-0.25), 1.5 * std::exp(-0.25)};

TEST(Witness, ComplexStepIsExact) {
  EXPECT_EQ("", Mismatch(ComplexStep(kCubic, kAt), kGradient, 1e-15, 0));
}

TEST(Witness, FiniteDifferenceIsCloseAndLeavesThePointAsItWas) {
  EXPECT_EQ("", Mismatch(FiniteDifference(kCubic, kAt), kGradient, 1e-11, 0));
}

TEST(Witness, BothTogetherSeeAWrongGradient) {
  EXPECT_EQ("", Witnesses(kCubic, kAt, kGradient));
  for (const size_t i : {0u, 1u})
    for (const double wrong : {kGradient[i] * (1 + 1e-6), -kGradient[i], 0.0, double{NAN}}) {
      std::vector<double> gradient = kGradient;
      gradient[i] = wrong;
      EXPECT_NE("", Witnesses(kCubic, kAt, gradient)) << wrong;
    }
}

TEST(Witness, GradientsTellAssigningFromAdding) {
  Gradients g(2);
  g.AssignedVector(1)[0] = 5;  // assigned where it should
  g.AddedVector(1)[0] += 7;    // added where it should
  EXPECT_EQ(g.Finish(), (std::vector<double>{5, 7}));
  Gradients wrong(2);
  wrong.AssignedVector(1)[0] += 5;
  wrong.AddedVector(1)[0] = 7;
  EXPECT_NE(wrong.Finish()[0], 5);
  EXPECT_NE(wrong.Finish()[1], 7);
}

TEST(Mismatch, SeesWrongSignsWrongNegativesAndNan) {
  const std::vector<double> want = {-5};
  for (const double wrong : {5.0, -50.0, double{NAN}, double{INFINITY}, double{-INFINITY}, 0.0})
    EXPECT_NE("", Mismatch(std::vector<double>{wrong}, want, 1e-6, 0)) << wrong;
  EXPECT_EQ("", Mismatch(std::vector<double>{-5.000001}, want, 1e-6, 0));
}

TEST(Mismatch, SeesWrongLengthsAndANanAfterALargeDifference) {
  const std::vector<double> want = {1, 2};
  EXPECT_NE("", Mismatch(std::vector<double>{1}, want, 1, 1));
  EXPECT_NE("", Mismatch(std::vector<double>{1, 2, 3}, want, 1, 1));
  EXPECT_NE("", Mismatch(std::vector<double>{1.5, NAN}, want, 1, 1));
  EXPECT_NE("", Mismatch(std::vector<double>{NAN, 2}, want, 1, 1));
}

TEST(Mismatch, NamesTheWorstElementAndScalesByTheLargest) {
  const std::vector<double> want = {1000, 1};
  EXPECT_EQ("", Mismatch(std::vector<double>{1000, 1.5}, want, 1e-3, 0));
  const std::string said = Mismatch(std::vector<double>{1000.5, 3}, want, 1e-3, 0);
  EXPECT_NE(said.find("element 1"), std::string::npos) << said;
}

TEST(Mismatch, RelativeNormsAreInfiniteForNanWrongLengthsAndAWantOfZero) {
  const std::vector<double> want = {3, 4}, zero = {0, 0};
  const std::vector<double> nan = {NAN, 4}, shorter = {3}, near = {3, 4.5};
  for (const auto& bad : {nan, shorter}) {
    EXPECT_EQ(RelativeL2(bad, want), INFINITY);
    EXPECT_EQ(RelativeMax(bad, want), INFINITY);
  }
  EXPECT_EQ(RelativeL2(near, zero), INFINITY);
  EXPECT_EQ(RelativeMax(near, zero), INFINITY);
  EXPECT_EQ(RelativeL2(zero, zero), 0);
  EXPECT_DOUBLE_EQ(RelativeL2(near, want), 0.1);
  EXPECT_DOUBLE_EQ(RelativeMax(near, want), 0.125);
}

}  // namespace
}  // namespace needle
