// The random numbers of the synthetic corpus: SplitMix64, the same on every machine.
// Thread-safety: one object, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace needle::corpus {

/// FNV-1a, for sorting words into the training or the validation part.
inline uint64_t Hash(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return h ^ (h >> 29);
}

class Rng {
 public:
  explicit Rng(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  /// In [0, n), n > 0. The bias of 2^-32 n does not matter here.
  size_t Below(size_t n) { return static_cast<size_t>(((Next() >> 32) * n) >> 32); }
  /// In [low, high].
  int Between(int low, int high) {
    return low + static_cast<int>(Below(static_cast<size_t>(high - low) + 1));
  }
  bool Chance(double p) { return static_cast<double>(Next() >> 11) * 0x1p-53 < p; }

  template <class T>
  const T& Pick(const std::vector<T>& from) {
    return from[Below(from.size())];
  }
  /// An index by weight.
  template <size_t N>
  size_t Weighted(const int (&weights)[N]) {
    int total = 0;
    for (const int w : weights) total += w;
    int at = Between(0, total - 1);
    for (size_t i = 0; i < N; ++i) {
      if (at < weights[i]) return i;
      at -= weights[i];
    }
    return N - 1;
  }
  template <class T>
  void Shuffle(std::vector<T>& v) {
    for (size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[Below(i)]);
  }

 private:
  uint64_t state_;
};

}  // namespace needle::corpus
