#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.h"

namespace needle {
namespace {

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }

// What a half means, from its fields.
double MeaningOfHalf(uint16_t h) {
  const int exponent = (h >> 10) & 31, mantissa = h & 1023;
  const double sign = h & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Float16, EveryHalfHasItsMeaningAndComesBack) {
  for (uint32_t h = 0; h <= 0xFFFF; ++h) {
    const uint16_t half = static_cast<uint16_t>(h);
    const double want = MeaningOfHalf(half);
    const float got = F16ToF32(half);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got));
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(got))));
      EXPECT_EQ(std::signbit(got), (h & 0x8000) != 0);
    } else {
      ASSERT_EQ(got, want) << h;
      ASSERT_EQ(std::signbit(got), (h & 0x8000) != 0);
      ASSERT_EQ(F32ToF16(got), half);
    }
  }
}

// Between each two neighbouring halves: just below the midpoint, on it, and just above it.
TEST(Float16, RoundsToNearestWithTiesToEvenBetweenAllNeighbours) {
  for (uint32_t h = 0; h < 0x7BFF; ++h) {
    const uint16_t low = static_cast<uint16_t>(h), high = static_cast<uint16_t>(h + 1);
    const float middle = static_cast<float>((MeaningOfHalf(low) + MeaningOfHalf(high)) / 2);
    const uint16_t even = h % 2 == 0 ? low : high;
    for (const uint16_t sign : {uint16_t{0}, uint16_t{0x8000}}) {
      const float s = sign ? -1.0f : 1.0f;
      ASSERT_EQ(F32ToF16(s * std::nextafter(middle, 0.0f)), sign | low) << h;
      ASSERT_EQ(F32ToF16(s * middle), sign | even) << h;
      ASSERT_EQ(F32ToF16(s * std::nextafter(middle, INFINITY)), sign | high) << h;
    }
  }
}

TEST(Float16, OverflowsFrom65520OnAndNotBefore) {
  EXPECT_EQ(F32ToF16(65504.0f), 0x7BFF);
  EXPECT_EQ(F32ToF16(65519.99f), 0x7BFF);
  EXPECT_EQ(F32ToF16(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(F32ToF16(65520.0f), 0x7C00);
  EXPECT_EQ(F32ToF16(-65520.0f), 0xFC00);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::max()), 0x7C00);
  EXPECT_EQ(F32ToF16(INFINITY), 0x7C00);
  EXPECT_EQ(F32ToF16(-INFINITY), 0xFC00);
}

TEST(Float16, UnderflowsToASignedZero) {
  EXPECT_EQ(F32ToF16(0x1p-25f), 0x0000);  // half of the smallest: a tie, to even
  EXPECT_EQ(F32ToF16(std::nextafter(0x1p-25f, 1.0f)), 0x0001);
  EXPECT_EQ(F32ToF16(-0x1p-26f), 0x8000);
  EXPECT_EQ(F32ToF16(std::numeric_limits<float>::denorm_min()), 0x0000);
  EXPECT_EQ(F32ToF16(-0.0f), 0x8000);
}

TEST(Float16, NanStaysNanWithItsSign) {
  for (const uint32_t bits : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFC01234u}) {
    const uint16_t half = F32ToF16(FromBits(bits));
    EXPECT_TRUE(std::isnan(F16ToF32(half))) << bits;
    EXPECT_EQ(half >> 15, bits >> 31);
  }
}

// An independent rounding: scale so that the half's grid is the integers, round there, scale back.
TEST(Float16, RandomFloatsRoundAsInDoubleArithmetic) {
  NumpyGenerator random(1);
  for (int i = 0; i < 200000; ++i) {
    // Exponents -30..17 cover underflow, subnormals, normals and overflow.
    const uint32_t draw = random.Next32();
    const float f = std::ldexp(1.0f + static_cast<float>(draw & 0x7FFFFF) * 0x1p-23f,
                               static_cast<int>((draw >> 23) % 48) - 30);
    const int exponent = std::max(std::ilogb(f), -14);
    double want = std::ldexp(std::nearbyint(std::ldexp(f, 10 - exponent)), exponent - 10);
    if (want > 65504) want = INFINITY;
    ASSERT_EQ(F16ToF32(F32ToF16(f)), want) << f;
  }
}

TEST(BFloat16, EveryValueComesBack) {
  for (uint32_t h = 0; h <= 0xFFFF; ++h) {
    const uint16_t half = static_cast<uint16_t>(h);
    const float f = BF16ToF32(half);
    ASSERT_EQ(std::bit_cast<uint32_t>(f), h << 16);
    if (std::isnan(f)) {
      ASSERT_TRUE(std::isnan(BF16ToF32(F32ToBF16(f))));
    } else {
      ASSERT_EQ(F32ToBF16(f), half);
    }
  }
}

TEST(BFloat16, RoundsToNearestWithTiesToEvenBetweenAllNeighbours) {
  for (uint32_t h = 0; h < 0x7F80; ++h) {  // up to the midpoint between the largest and infinity
    const uint32_t middle = (h << 16) | 0x8000;
    for (const uint32_t sign : {0u, 0x8000u}) {
      ASSERT_EQ(F32ToBF16(FromBits((sign << 16) | (middle - 1))), sign | h);
      ASSERT_EQ(F32ToBF16(FromBits((sign << 16) | middle)), sign | (h + h % 2));
      ASSERT_EQ(F32ToBF16(FromBits((sign << 16) | (middle + 1))), sign | (h + 1));
    }
  }
  EXPECT_EQ(F32ToBF16(std::numeric_limits<float>::max()), 0x7F80);
}

TEST(BFloat16, NanStaysNanWithItsSign) {
  for (const uint32_t bits : {0x7F800001u, 0x7FC00000u, 0x7FFFFFFFu, 0xFF800001u, 0xFFFFFFFFu}) {
    const uint16_t half = F32ToBF16(FromBits(bits));
    EXPECT_TRUE(std::isnan(BF16ToF32(half))) << bits;
    EXPECT_EQ(half >> 15, bits >> 31);
  }
}

TEST(DType, SizesAndNamesAreThoseOfNumpy) {
  EXPECT_EQ(SizeOf(DType::kF16), 2u);
  EXPECT_EQ(SizeOf(DType::kBF16), 2u);
  EXPECT_EQ(SizeOf(DType::kF32), 4u);
  EXPECT_EQ(SizeOf(DType::kF64), 8u);
  EXPECT_EQ(SizeOf(DType::kI64), 8u);
  EXPECT_EQ(SizeOf(DType::kBool), 1u);
  EXPECT_EQ(Name(DType::kF16), "float16");
  EXPECT_EQ(Name(DType::kBF16), "bfloat16");
  EXPECT_EQ(Name(DType::kU8), "uint8");
}

}  // namespace
}  // namespace needle
