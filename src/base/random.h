// Named random streams, equal to upstream's bit for bit: NumPy's PCG64 (split, shuffles) and JAX's
// threefry2x32 (initial LoRA A). Bits are exact; normals are within 2 units in the last place of
// upstream's, whose logarithm is another. Source: the definitions of NumPy's SeedSequence and
// PCG64, JAX's "partitionable" threefry and Giles' erfinv; docs/numerics.md. Thread-safety: one
// object, one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace needle {

/// numpy.random.default_rng(seed): PCG64 (XSL-RR 128/64) seeded by SeedSequence.
class NumpyGenerator {
 public:
  explicit NumpyGenerator(uint64_t seed);
  uint64_t Next64();
  /// 32 bits; low half of a 64-bit draw first, the high half is kept for the next call.
  uint32_t Next32();
  /// numpy's Generator.permutation(n); n must fit an int32_t (assert).
  std::vector<int32_t> Permutation(size_t n);

  /// The whole state, for resume: 128-bit state and increment, kept half.
  struct State {
    std::array<uint64_t, 2> state{};  // high, low
    std::array<uint64_t, 2> inc{};    // high, low
    bool has_half = false;
    uint32_t half = 0;
  };
  State state() const;
  void set_state(const State& state);

 private:
  State s_;
};

/// A JAX PRNG key (threefry2x32, "partitionable" layout).
struct JaxKey {
  uint32_t hi = 0, lo = 0;
};
JaxKey JaxPrngKey(uint64_t seed);
/// jax.random.split(key): the two new keys.
std::array<JaxKey, 2> JaxSplit(JaxKey key);
/// `n` values each: 32 random bits; uniform in [nextafter(-1,0), 1); standard normal.
std::vector<uint32_t> JaxBits(JaxKey key, size_t n);
std::vector<float> JaxUniform(JaxKey key, size_t n);
std::vector<float> JaxNormal(JaxKey key, size_t n);

}  // namespace needle
