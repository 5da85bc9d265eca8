// Test support of the kernels: random arrays, and sizes around the vector width.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/kernels.h"

namespace needle::test {

inline constexpr size_t kMaxLanes = 16;

inline std::vector<float> NormalFloats(size_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = scale * normal(bits);
  return x;
}

}  // namespace needle::test
