#include "base/random.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <numeric>
#include <utility>

namespace needle {
namespace {

// ---- 128-bit arithmetic from 64-bit halves: {high, low} ----

using U128 = std::array<uint64_t, 2>;

U128 Add(U128 a, U128 b) {
  const uint64_t low = a[1] + b[1];
  return {a[0] + b[0] + (low < a[1] ? 1 : 0), low};
}

U128 MultiplyHalves(uint64_t a, uint64_t b) {
  const uint64_t a0 = a & 0xFFFFFFFF, a1 = a >> 32, b0 = b & 0xFFFFFFFF, b1 = b >> 32;
  const uint64_t middle = a1 * b0 + ((a0 * b0) >> 32);
  const uint64_t middle2 = a0 * b1 + (middle & 0xFFFFFFFF);
  return {a1 * b1 + (middle >> 32) + (middle2 >> 32), a * b};
}

U128 Multiply(U128 a, U128 b) {
  U128 product = MultiplyHalves(a[1], b[1]);
  product[0] += a[0] * b[1] + a[1] * b[0];
  return product;
}

// ---- numpy.random.SeedSequence: spreads a seed over a pool of four words ----

class SeedSequence {
 public:
  explicit SeedSequence(uint64_t seed) {
    const std::array<uint32_t, 4> entropy = {static_cast<uint32_t>(seed),
                                             static_cast<uint32_t>(seed >> 32), 0, 0};
    uint32_t constant = 0x43b0d7e5;
    for (size_t i = 0; i < 4; ++i) pool_[i] = Hash(entropy[i], constant, 0x931e8875);
    for (size_t from = 0; from < 4; ++from)
      for (size_t to = 0; to < 4; ++to)
        if (from != to) pool_[to] = Mix(pool_[to], Hash(pool_[from], constant, 0x931e8875));
  }

  // generate_state(4, uint64)
  std::array<uint64_t, 4> Generate() const {
    std::array<uint64_t, 4> out{};
    uint32_t constant = 0x8b51f9dd;
    for (size_t i = 0; i < 8; ++i) {
      const uint64_t word = Hash(pool_[i % 4], constant, 0x58f38ded);
      out[i / 2] |= word << (32 * (i % 2));
    }
    return out;
  }

 private:
  static uint32_t Hash(uint32_t value, uint32_t& constant, uint32_t multiplier) {
    value ^= constant;
    constant *= multiplier;
    value *= constant;
    return value ^ (value >> 16);
  }
  static uint32_t Mix(uint32_t x, uint32_t y) {
    const uint32_t mixed = 0xca01f9ddu * x - 0x4973f715u * y;
    return mixed ^ (mixed >> 16);
  }

  std::array<uint32_t, 4> pool_{};
};

// PCG64's linear congruential step.
U128 Step(U128 state, U128 inc) {
  constexpr U128 kMultiplier = {2549297995355413924u, 4865540595714422341u};
  return Add(Multiply(state, kMultiplier), inc);
}

// NumPy's bounded draw for shuffles: uniform in [0, max] by masked rejection.
uint32_t Interval(NumpyGenerator& generator, uint32_t max) {
  const uint32_t mask = static_cast<uint32_t>(std::bit_ceil(uint64_t{max} + 1) - 1);
  uint32_t value = generator.Next32() & mask;
  while (value > max) value = generator.Next32() & mask;
  return value;
}

}  // namespace

NumpyGenerator::NumpyGenerator(uint64_t seed) {
  const auto words = SeedSequence(seed).Generate();
  s_.inc = {(words[2] << 1) | (words[3] >> 63), (words[3] << 1) | 1};
  s_.state = Add(s_.inc, {words[0], words[1]});  // one step from state 0, plus the seed
  s_.state = Step(s_.state, s_.inc);
}

uint64_t NumpyGenerator::Next64() {
  s_.state = Step(s_.state, s_.inc);
  const auto [high, low] = s_.state;
  return std::rotr(high ^ low, static_cast<int>(high >> 58));
}

uint32_t NumpyGenerator::Next32() {
  if (s_.has_half) {
    s_.has_half = false;
    return s_.half;
  }
  const uint64_t both = Next64();
  s_.has_half = true;
  s_.half = static_cast<uint32_t>(both >> 32);
  return static_cast<uint32_t>(both);
}

std::vector<int32_t> NumpyGenerator::Permutation(size_t n) {
  assert(n <= INT32_MAX);
  std::vector<int32_t> order(n);
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = n; i-- > 1;)
    std::swap(order[i], order[Interval(*this, static_cast<uint32_t>(i))]);
  return order;
}

NumpyGenerator::State NumpyGenerator::state() const { return s_; }
void NumpyGenerator::set_state(const State& state) { s_ = state; }

namespace {

// ---- JAX ----

// threefry2x32: 20 rounds over two words, with a key injected after each four.
JaxKey Threefry(JaxKey key, uint32_t x0, uint32_t x1) {
  constexpr int kRotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
  const std::array<uint32_t, 3> schedule = {key.hi, key.lo, key.hi ^ key.lo ^ 0x1BD11BDAu};
  x0 += schedule[0];
  x1 += schedule[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (const int rotation : kRotations[group % 2]) {
      x0 += x1;
      x1 = std::rotl(x1, rotation) ^ x0;
    }
    x0 += schedule[(group + 1) % 3];
    x1 += schedule[(group + 2) % 3] + group + 1;
  }
  return {x0, x1};
}

uint32_t BitsAt(JaxKey key, uint64_t i) {
  const JaxKey words = Threefry(key, static_cast<uint32_t>(i >> 32), static_cast<uint32_t>(i));
  return words.hi ^ words.lo;
}

// Uniform in [nextafter(-1, 0), 1), from the upper 23 bits.
float UniformFromBits(uint32_t bits) {
  const float low = std::nextafter(-1.0f, 0.0f);
  const float unit = std::bit_cast<float>((bits >> 9) | 0x3F800000u) - 1.0f;  // [0, 1)
  return std::max(low, unit * (1.0f - low) + low);
}

// a * b + c, rounded once.
#ifdef _WIN32
// The C library of mingw-w64 rounds twice. The product is exact in double precision; the sum is
// rounded to odd there (the last bit tells of what was cut off), so that rounding it to float is
// as if nothing had been rounded before (Boldo and Melquiond 2008).
float Fma(float a, float b, float c) {
  const double product = double{a} * b, sum = product + c;
  const double part = sum - product, cut = (product - (sum - part)) + (c - part);
  uint64_t bits = std::bit_cast<uint64_t>(sum);
  if (cut != 0 && (bits & 1) == 0) bits = (cut > 0) == (sum > 0) ? bits + 1 : bits - 1;
  return static_cast<float>(std::bit_cast<double>(bits));
}
#else
float Fma(float a, float b, float c) { return std::fma(a, b, c); }
#endif

// A polynomial by Horner's rule, highest power first. Every step is fused: upstream's compiler does
// so, and a fused step rounds alike on every machine, which makes the normals exact.
template <size_t n>
float Polynomial(const float (&coefficients)[n], float x) {
  float p = 0;
  for (const float c : coefficients) p = Fma(p, x, c);
  return p;
}

// Natural logarithm of a normal x > 0 (Cephes logf, in the grouping that upstream's compiler uses).
float Log(float x) {
  constexpr float kHigh[] = {7.0376836292e-2f, -1.1514610310e-1f, 1.1676998740e-1f};
  constexpr float kMiddle[] = {-1.2420140846e-1f, 1.4249322787e-1f, -1.6668057665e-1f};
  constexpr float kLow[] = {2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f};
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;
  int exponent = 0;
  float m = std::frexp(x, &exponent);
  if (m < 0.707106781186547524f) {  // keep m near 1, then count from 1
    --exponent;
    m = m + m - 1.0f;
  } else {
    m -= 1.0f;
  }
  const float e = static_cast<float>(exponent), m2 = m * m, m3 = m2 * m;
  float y = Fma(Polynomial(kHigh, m), m3, Polynomial(kMiddle, m));
  y = Fma(y, m3, Polynomial(kLow, m));
  y = Fma(y, m3, e * kLn2Low);
  return m - m2 * 0.5f + y + e * kLn2High;
}

// log(1 + x) for -1 < x <= 0: a rational function near zero; farther off 1 + x is rounded first.
float Log1p(float x) {
  constexpr float kFar = 0.41421356f;  // sqrt(2) - 1
  constexpr float kNumerator[] = {4.5270000862445199635215e-5f, 4.9854102823193375972212e-1f,
                                  6.5787325942061044846969f,    2.9911919328553073277375e1f,
                                  6.0949667980987787057556e1f,  5.7112963590585538103336e1f,
                                  2.0039553499201281259648e1f};
  constexpr float kDenominator[] = {1.0f,
                                    1.5062909083469192043167e1f,
                                    8.3047565967967209469434e1f,
                                    2.2176239823732856465394e2f,
                                    3.0909872225312059774938e2f,
                                    2.1642788614495947685003e2f,
                                    6.0118660497603843919306e1f};
  if (std::abs(x) >= kFar) return Log(1.0f + x);
  const float x2 = x * x;
  const float cubic = x2 * x * (Polynomial(kNumerator, x) / Polynomial(kDenominator, x));
  return x + Fma(-0.5f, x2, cubic);
}

// The inverse error function (Giles 2010, single precision).
float ErfInv(float u) {
  constexpr float kCentre[] = {2.81022636e-08f,  3.43273939e-07f, -3.5233877e-06f,
                               -4.39150654e-06f, 0.00021858087f,  -0.00125372503f,
                               -0.00417768164f,  0.246640727f,    1.50140941f};
  constexpr float kTail[] = {-0.000200214257f, 0.000100950558f, 0.00134934322f,
                             -0.00367342844f,  0.00573950773f,  -0.0076224613f,
                             0.00943887047f,   1.00167406f,     2.83297682f};
  float w = -Log1p(-u * u);
  const bool centre = w < 5.0f;
  w = centre ? w - 2.5f : std::sqrt(w) - 3.0f;
  return (centre ? Polynomial(kCentre, w) : Polynomial(kTail, w)) * u;
}

}  // namespace

JaxKey JaxPrngKey(uint64_t seed) {
  return {static_cast<uint32_t>(seed >> 32), static_cast<uint32_t>(seed)};
}

std::array<JaxKey, 2> JaxSplit(JaxKey key) { return {Threefry(key, 0, 0), Threefry(key, 0, 1)}; }

std::vector<uint32_t> JaxBits(JaxKey key, size_t n) {
  std::vector<uint32_t> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = BitsAt(key, i);
  return out;
}

std::vector<float> JaxUniform(JaxKey key, size_t n) {
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = UniformFromBits(BitsAt(key, i));
  return out;
}

std::vector<float> JaxNormal(JaxKey key, size_t n) {
  constexpr float kSqrt2 = 1.41421356237309504880f;
  std::vector<float> out = JaxUniform(key, n);
  for (float& v : out) v = kSqrt2 * ErfInv(v);
  return out;
}

}  // namespace needle
