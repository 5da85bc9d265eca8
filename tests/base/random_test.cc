#include "base/random.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <set>

#include "base/str_cat.h"
#include "support/mismatch.h"
#include "support/npz.h"

namespace needle {
namespace {

// The goldens were drawn by NumPy and JAX themselves.
const test::Npz& Goldens() {
  static const test::Npz npz = test::ReadNpz(test::Golden("rng.npz"));
  return npz;
}

constexpr uint64_t kJaxSeeds[] = {0, 1, 1234567};

// The distance of two floats in units in the last place, counted through zero.
int64_t UlpDistance(float a, float b) {
  const auto place = [](float f) {
    const int32_t bits = std::bit_cast<int32_t>(f);
    return bits < 0 ? -static_cast<int64_t>(bits & 0x7FFFFFFF) : static_cast<int64_t>(bits);
  };
  return std::abs(place(a) - place(b));
}

struct UlpReport {
  int64_t worst = 0;
  size_t different = 0;
};

UlpReport Compare(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_EQ(got.size(), want.size());
  UlpReport report;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    const int64_t d = UlpDistance(got[i], want[i]);
    report.worst = std::max(report.worst, d);
    report.different += d != 0;
  }
  return report;
}

TEST(UlpDistance, CountsSteps) {
  EXPECT_EQ(UlpDistance(1.0f, 1.0f), 0);
  EXPECT_EQ(UlpDistance(1.0f, std::nextafter(std::nextafter(1.0f, 2.0f), 2.0f)), 2);
  EXPECT_EQ(UlpDistance(0.0f, -0.0f), 0);
  EXPECT_GT(UlpDistance(1e-3f, -1e-3f), 1000);
}

TEST(NumpyGenerator, PermutationsFollowEachOtherAsInNumpy) {
  for (const uint64_t seed : {0, 1, 42}) {
    NumpyGenerator generator(seed);
    int i = 0;
    for (const size_t n : {10, 7, 800, 720, 720, 1, 2, 33}) {
      const auto want = Goldens().at(StrCat("perm/", seed, "/", i++, "_", n)).As<int32_t>();
      EXPECT_EQ(generator.Permutation(n), want) << "seed " << seed << ", n " << n;
    }
  }
}

TEST(NumpyGenerator, FirstDrawsAreThoseOfNumpy) {
  // numpy.random.default_rng(0).bit_generator.random_raw(2)
  NumpyGenerator generator(0);
  EXPECT_EQ(generator.Next64(), 11749869230777074271u);
  EXPECT_EQ(generator.Next64(), 4976686463289251617u);
}

TEST(NumpyGenerator, LowHalfComesFirstAndTheHighHalfIsKept) {
  NumpyGenerator halves(5), whole(5);
  const uint64_t first = whole.Next64(), second = whole.Next64();
  EXPECT_EQ(halves.Next32(), static_cast<uint32_t>(first));
  EXPECT_EQ(halves.Next64(), second);  // a 64-bit draw passes the kept half by
  EXPECT_EQ(halves.Next32(), static_cast<uint32_t>(first >> 32));
}

TEST(NumpyGenerator, GoesOnFromAStoredState) {
  NumpyGenerator generator(7), other(8);
  generator.Permutation(10);
  generator.Next32();
  other.set_state(generator.state());
  EXPECT_EQ(other.Permutation(100), generator.Permutation(100));
  EXPECT_EQ(other.Next32(), generator.Next32());
}

TEST(NumpyGenerator, PermutationsOfNothingAndOfOneDrawNothing) {
  NumpyGenerator generator(3), fresh(3);
  EXPECT_TRUE(generator.Permutation(0).empty());
  EXPECT_EQ(generator.Permutation(1), std::vector<int32_t>{0});
  EXPECT_EQ(generator.Next64(), fresh.Next64());
}

TEST(NumpyGenerator, ASeedOf64BitsUsesItsUpperHalf) {
  EXPECT_NE(NumpyGenerator(1).Next64(), NumpyGenerator((uint64_t{1} << 32) | 1).Next64());
}

TEST(Jax, KeysAndSplitsAreExact) {
  for (const uint64_t seed : kJaxSeeds) {
    const JaxKey key = JaxPrngKey(seed);
    EXPECT_EQ((std::vector<uint32_t>{key.hi, key.lo}),
              Goldens().at(StrCat("key/", seed)).As<uint32_t>());
    const auto [a, b] = JaxSplit(key);
    EXPECT_EQ((std::vector<uint32_t>{a.hi, a.lo, b.hi, b.lo}),
              Goldens().at(StrCat("split/", seed)).As<uint32_t>());
  }
  EXPECT_EQ(JaxPrngKey(0x0000000500000007).hi, 5u);
}

TEST(Jax, BitsAndUniformsAreExact) {
  for (const uint64_t seed : kJaxSeeds) {
    const JaxKey key = JaxPrngKey(seed);
    const auto bits = Goldens().at(StrCat("bits/", seed)).As<uint32_t>();
    EXPECT_EQ(JaxBits(key, bits.size()), bits);
    const auto uniform = Goldens().at(StrCat("uniform/", seed)).As<float>();
    EXPECT_EQ(JaxUniform(key, uniform.size()), uniform);
  }
}

TEST(Jax, NormalsAreExact) {
  for (const uint64_t seed : kJaxSeeds) {
    const auto want = Goldens().at(StrCat("normal/", seed)).As<float>();
    const auto report = Compare(JaxNormal(JaxPrngKey(seed), want.size()), want);
    EXPECT_EQ(report.different, 0u) << "worst " << report.worst << " ulp";
  }
}

// The initial A of every target of the base preset: L 27, D 512, R 16; normal / R.
TEST(Jax, InitialAdapterOfTheBasePresetIsUpstreams) {
  constexpr size_t kCount = 27 * 512 * 16;
  JaxKey key = JaxPrngKey(0);
  for (const char* target : {"gate_proj", "k_proj", "out_proj", "q_proj", "v_proj"}) {
    const auto [next, sub] = JaxSplit(key);
    key = next;
    std::vector<float> a = JaxNormal(sub, kCount);
    for (float& v : a) v /= 16.0f;
    const std::string path = StrCat("lora_A_full/", target);
    const auto first = Goldens().at(path + "/first64").As<float>();
    const auto last = Goldens().at(path + "/last64").As<float>();
    EXPECT_EQ(Compare({a.begin(), a.begin() + 64}, first).worst, 0) << target;
    EXPECT_EQ(Compare({a.end() - 64, a.end()}, last).worst, 0) << target;
    double sum = 0;
    for (const float v : a) sum += v;
    // All 221184 values in one number: half a unit in the last place of a usual value is 2e-9.
    EXPECT_NEAR(sum, Goldens().at(path + "/sum_f64").As<double>()[0], 1e-10) << target;
  }
}

}  // namespace
}  // namespace needle
