#include "quant/cq.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "quant/midpoint.h"
#include "support/mismatch.h"
#include "support/npz.h"

namespace needle {
namespace {

constexpr Bits kWidths[] = {Bits::k2, Bits::k3, Bits::k4, Bits::kTernary};

const test::Npz& Reference() {
  static const auto* npz = new test::Npz(test::ReadNpz(test::Golden("quant/cq.npz")));
  return *npz;
}

std::vector<float> Floats(const std::string& name) { return Reference().at(name).As<float>(); }

std::vector<float> NormalFloats(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> out(n);
  for (float& v : out) v = normal(generator);
  return out;
}

TEST(Codebooks, EqualUpstreamsBitForBit) {
  const test::Npz reference = test::ReadNpz(test::Golden("quant/codebooks.npz"));
  for (const size_t group : {kGroup, kKvGroup})
    for (const Bits bits : kWidths) {
      if (group == kKvGroup && bits == Bits::kTernary) continue;
      const auto want = reference.at(StrCat("cb_", Name(bits), "_g", group)).As<float>();
      const std::span<const float> got = Codebook(bits, group);
      EXPECT_EQ(std::vector<float>(got.begin(), got.end()), want) << Name(bits) << " " << group;
    }
}

TEST(Codebooks, AreTheGaussianLevelsOverTheRootOfTheGroup) {
  const test::Npz reference = test::ReadNpz(test::Golden("quant/codebooks.npz"));
  for (const size_t group : {kGroup, kKvGroup})
    for (const Bits bits : {Bits::k2, Bits::k3, Bits::k4}) {
      const auto levels = reference.at(StrCat("levels_f64_", Name(bits))).As<double>();
      for (size_t i = 0; i < levels.size(); ++i)
        EXPECT_FLOAT_EQ(Codebook(bits, group)[i], float(levels[i] / std::sqrt(double(group))));
    }
}

TEST(Hadamard, IsItsOwnInverseAndKeepsTheNorm) {
  for (const size_t n : {1u, 2u, 64u, 128u, 1024u}) {
    const std::vector<float> x = NormalFloats(n, 1);
    std::vector<float> y = x;
    HadamardInPlace(y);
    double before = 0, after = 0;
    for (size_t i = 0; i < n; ++i) before += double{x[i]} * x[i], after += double{y[i]} * y[i];
    EXPECT_NEAR(after / before, 1, 1e-6);
    HadamardInPlace(y);
    EXPECT_LT(test::RelativeMax(y, x), 1e-6) << n;
  }
}

TEST(Hadamard, HasSylvestersSigns) {
  for (size_t k = 0; k < 8; ++k) {
    std::vector<double> unit(8, 0.0);
    unit[k] = 1;
    WalshInPlace(std::span<double>(unit));
    for (size_t i = 0; i < 8; ++i)
      EXPECT_EQ(unit[i], std::popcount(i & k) % 2 ? -1.0 : 1.0) << i << " " << k;
  }
}

TEST(NearestCode, TakesTheLowerEntryOnATie) {
  const std::vector<float> codebook = {-1.0f, 0.0f, 2.0f};
  for (const auto& [u, want] : {std::pair{-5.0f, 0},
                                {-0.5f, 0},
                                {-0.25f, 1},
                                {0.0f, 1},
                                {1.0f, 1},
                                {1.0001f, 2},
                                {9.0f, 2},
                                {-1.0f, 0},
                                {2.0f, 2}})
    EXPECT_EQ(NearestCode(u, codebook), want) << u;
}

TEST(NearestCode, AgreesWithASearchOverTheWholeCodebook) {
  std::mt19937 generator(3);
  std::uniform_real_distribution<float> anywhere(-0.4f, 0.4f);
  for (const Bits bits : kWidths) {
    const std::span<const float> codebook = Codebook(bits, kGroup);
    for (int i = 0; i < 20000; ++i) {
      const float u = anywhere(generator);
      size_t best = 0;
      for (size_t k = 1; k < codebook.size(); ++k)
        if (std::abs(u - codebook[k]) < std::abs(u - codebook[best])) best = k;
      ASSERT_EQ(NearestCode(u, codebook), best) << u;
    }
  }
}

// Codes and norms of a reference matrix: equal, or on a midpoint.
void ExpectReference(const std::string& matrix, Bits bits) {
  const std::string at = StrCat(matrix, "/", Name(bits), "/");
  const test::NpyArray& w = Reference().at(matrix + "/w");
  const size_t rows = size_t(w.shape[0]), cols = size_t(w.shape[1]);
  const std::vector<float> values = w.As<float>();
  const QuantizedMatrix got = Quantize({values.data(), rows, cols}, bits);
  const auto want_packed = Reference().at(at + "packed").As<uint8_t>();
  const auto want_norms = Reference().at(at + "norms_f16_bits").As<uint16_t>();
  const auto want_codes = UnpackCodes(want_packed, rows, got.padded_cols(), bits);
  ASSERT_TRUE(want_codes.ok());
  ASSERT_EQ(got.codes.size(), want_codes->size());
  ASSERT_EQ(got.norms.size(), want_norms.size());
  const size_t groups = got.padded_cols() / kGroup;
  size_t differing = 0;
  for (size_t r = 0; r < rows; ++r)
    for (size_t g = 0; g < groups; ++g) {
      const size_t n = std::min(kGroup, cols - g * kGroup);
      const auto exact = test::RotateExactly({&values[r * cols + g * kGroup], n}, kGroup);
      const size_t norm_at = r * groups + g;
      EXPECT_EQ("", test::WhyNormDiffers(exact.norm, got.norms[norm_at], want_norms[norm_at]));
      for (size_t i = 0; i < kGroup; ++i) {
        const size_t k = norm_at * kGroup + i;
        differing += got.codes[k] != (*want_codes)[k];
        EXPECT_EQ("", test::WhyNotOnMidpoint(exact.u[i], got.codes[k], (*want_codes)[k],
                                             Codebook(bits, kGroup)))
            << matrix << " row " << r << " code " << i;
      }
    }
  EXPECT_LE(differing, 2u) << matrix << " " << Name(bits);
  if (differing == 0) {
    EXPECT_EQ(PackCodes(got), want_packed) << matrix << " " << Name(bits);
  }
}

TEST(Quantize, EqualsTheReferenceOutsideMidpoints) {
  for (const std::string matrix : {"a", "b", "c", "e"})
    for (const Bits bits : kWidths) ExpectReference(matrix, bits);
}

// The reference sums 128 products one after the other, which strays by up to 128 * 2^-24 and here
// by 18 * 2^-24; our butterflies stay within 4 * 2^-24 of double (tested below).
constexpr float kReferenceRounding = 24 * 0x1p-24f;

// Dequantised rows: close to the reference; a group with an infinite norm is finite in neither.
void ExpectCloseRows(const std::vector<float>& got, const std::vector<float>& want, size_t cols,
                     const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t at = 0; at < got.size(); at += cols) {
    float largest = 0;
    for (size_t i = at; i < at + cols; ++i)
      if (std::isfinite(want[i])) largest = std::max(largest, std::abs(want[i]));
    for (size_t i = at; i < at + cols; ++i) {
      ASSERT_EQ(std::isfinite(got[i]), std::isfinite(want[i])) << what << " element " << i;
      if (!std::isfinite(want[i])) continue;
      ASSERT_LE(std::abs(got[i] - want[i]), kReferenceRounding * largest)
          << what << " element " << i;
    }
  }
}

TEST(Dequantize, OfTheReferencesCodesGivesItsValues) {
  for (const std::string matrix : {"a", "b", "c", "e"})
    for (const Bits bits : kWidths) {
      const std::string at = StrCat(matrix, "/", Name(bits), "/");
      const auto& shape = Reference().at(matrix + "/w").shape;
      QuantizedMatrix q;
      q.rows = size_t(shape[0]);
      q.cols = size_t(shape[1]);
      q.bits = bits;
      q.norms = Reference().at(at + "norms_f16_bits").As<uint16_t>();
      q.codes =
          *UnpackCodes(Reference().at(at + "packed").As<uint8_t>(), q.rows, q.padded_cols(), bits);
      std::vector<float> got(q.rows * q.cols);
      Dequantize(q, {got.data(), q.rows, q.cols});
      ExpectCloseRows(got, Floats(at + "deq"), q.cols, at);
    }
}

TEST(Dequantize, StaysWithinFourRoundingsOfDouble) {
  const size_t rows = 40;
  const std::vector<float> w = NormalFloats(rows * kGroup, 9);
  for (const Bits bits : kWidths) {
    const QuantizedMatrix q = Quantize({w.data(), rows, kGroup}, bits);
    std::vector<float> got(rows * kGroup);
    Dequantize(q, {got.data(), rows, kGroup});
    for (size_t r = 0; r < rows; ++r) {
      std::vector<double> want(kGroup);
      for (size_t i = 0; i < kGroup; ++i)
        want[i] = double{Codebook(bits, kGroup)[q.codes[r * kGroup + i]]} * F16ToF32(q.norms[r]);
      WalshInPlace(std::span<double>(want));
      for (double& v : want) v /= std::sqrt(double{kGroup});
      const std::vector<float> row(got.begin() + long(r * kGroup),
                                   got.begin() + long((r + 1) * kGroup));
      EXPECT_EQ("", test::Mismatch(row, want, 4 * 0x1p-24, 0)) << Name(bits);
    }
  }
}

TEST(FakeQuantizeRow, EqualsQuantizeThenDequantizeBitForBit) {
  const size_t rows = 6, cols = 300;
  const std::vector<float> w = NormalFloats(rows * cols, 4);
  for (const Bits bits : kWidths) {
    const QuantizedMatrix q = Quantize({w.data(), rows, cols}, bits);
    std::vector<float> want(rows * cols), got = w;
    Dequantize(q, {want.data(), rows, cols});
    for (size_t r = 0; r < rows; ++r) {
      const std::span<float> row(&got[r * cols], cols);
      FakeQuantizeRow(row, row, bits, kGroup);  // in place
    }
    EXPECT_EQ(got, want) << Name(bits);
  }
}

TEST(FakeQuantizeRow, EqualsTheReferenceOfWeightsAndOfTheirStraightThroughForm) {
  for (const std::string matrix : {"a", "b", "c"})
    for (const Bits bits : kWidths) {
      const std::string at = StrCat(matrix, "/", Name(bits), "/");
      const std::vector<float> w = Floats(matrix + "/w");
      const size_t cols = size_t(Reference().at(matrix + "/w").shape[1]);
      std::vector<float> got(w.size()), through(w.size());
      for (size_t first = 0; first < w.size(); first += cols)
        FakeQuantizeRow({&w[first], cols}, {&got[first], cols}, bits, kGroup);
      for (size_t i = 0; i < w.size(); ++i) through[i] = w[i] + (got[i] - w[i]);
      ExpectCloseRows(got, Floats(at + "deq"), cols, at + "deq");
      ExpectCloseRows(through, Floats(at + "ste"), cols, at + "ste");
    }
}

TEST(FakeQuantizeRow, OfKeysAndValuesUsesGroupsOf64) {
  const std::vector<float> x = Floats("kv/x");
  const size_t head = 32;
  for (const Bits bits : {Bits::k2, Bits::k3, Bits::k4}) {
    std::vector<float> got(x.size());
    for (size_t first = 0; first < x.size(); first += head)
      FakeQuantizeRow({&x[first], head}, {&got[first], head}, bits, kKvGroup);
    ExpectCloseRows(got, Floats(StrCat("kv/", Name(bits), "/deq_group64")), head, "kv");
  }
}

TEST(FakeQuantizeActivations, EqualsTheReferenceBitForBit) {
  std::vector<float> got = Floats("act/x");
  const std::vector<float> want = Floats("act/8");
  for (size_t first = 0; first < got.size(); first += 40)
    FakeQuantizeActivations({&got[first], 40}, 8);
  EXPECT_EQ(got, want);
}

TEST(FakeQuantizeActivations, RoundsHalvesToEvenAndKeepsZeros) {
  std::vector<float> x = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -127};
  FakeQuantizeActivations(x, 8);
  EXPECT_EQ(x, (std::vector<float>{127, 0, 2, 2, 0, -2, -127}));
  std::vector<float> zeros(5, 0.0f);
  FakeQuantizeActivations(zeros, 8);
  EXPECT_EQ(zeros, std::vector<float>(5, 0.0f));
}

TEST(Quantize, OfAZeroGroupTakesTheEntryNearestZeroAndNormZero) {
  const std::vector<float> w(kGroup, 0.0f);
  const std::pair<Bits, int> wants[] = {
      {Bits::k2, 1}, {Bits::k3, 3}, {Bits::k4, 7}, {Bits::kTernary, 1}};
  for (const auto& want : wants) {
    const QuantizedMatrix q = Quantize({w.data(), 1, kGroup}, want.first);
    EXPECT_EQ(q.norms[0], 0);
    EXPECT_EQ(q.codes, std::vector<uint8_t>(kGroup, uint8_t(want.second))) << Name(want.first);
  }
}

TEST(PackCodes, RoundTripsEveryWidth) {
  std::mt19937 generator(5);
  for (const Bits bits : kWidths) {
    QuantizedMatrix q;
    q.rows = 3;
    q.cols = 130;
    q.bits = bits;
    q.codes.resize(q.rows * q.padded_cols());
    for (uint8_t& code : q.codes) code = uint8_t(generator() % Codebook(bits, kGroup).size());
    const std::vector<uint8_t> packed = PackCodes(q);
    EXPECT_EQ(packed.size(), q.rows * q.padded_cols() * size_t(StoredBits(bits)) / 8);
    const auto back = UnpackCodes(packed, q.rows, q.padded_cols(), bits);
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(*back, q.codes) << Name(bits);
  }
}

TEST(UnpackCodes, RefusesAWrongLengthAndAnImpossibleTernaryPattern) {
  const std::vector<uint8_t> packed(32, 0);
  EXPECT_TRUE(UnpackCodes(packed, 1, 128, Bits::k2).ok());
  EXPECT_FALSE(UnpackCodes(packed, 1, 128, Bits::k3).ok());
  EXPECT_FALSE(UnpackCodes(packed, 2, 128, Bits::k2).ok());
  std::vector<uint8_t> ternary(32, 0);
  ternary[1] = 0x08;  // code 5 is the pattern 10
  const auto codes = UnpackCodes(ternary, 1, 128, Bits::kTernary);
  ASSERT_FALSE(codes.ok());
  EXPECT_NE(codes.error().message().find("code 5 "), std::string::npos) << codes.error().message();
}

}  // namespace
}  // namespace needle
