// ops/rope.h    rotary positions, half-split: for each head, with halves x1, x2 and position p:
//   y1 = x1 cos(p f) - x2 sin(p f);  y2 = x2 cos(p f) + x1 sin(p f);  f_i = theta^(-2i/E)
// Backward: the rotation by -p. In place. Shapes: x [T, H*E]; cos, sin [positions, E/2]; position
// [T]. Source: MODEL.md 4.2. Thread-safe on disjoint rows; the table is read only.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/view.h"

namespace needle {

/// Real-valued table for `positions` positions, computed in R (float as upstream, or double).
template <class R>
struct RopeTable {
  size_t half = 0;
  std::vector<R> cos, sin;  // [positions, half]

  RopeTable() = default;
  RopeTable(size_t positions, size_t head_dim, double theta)
      : half(head_dim / 2), cos(positions * half), sin(positions * half) {
    for (size_t i = 0; i < half; ++i) {
      const R exponent = R(2 * i) / R(head_dim);
      const R f = R(1) / std::pow(R(theta), exponent);
      for (size_t p = 0; p < positions; ++p) {
        const R angle = R(p) * f;
        cos[p * half + i] = std::cos(angle);
        sin[p * half + i] = std::sin(angle);
      }
    }
  }
  size_t positions() const { return half ? cos.size() / half : 0; }
};

/// direction: +1 forward, -1 backward.
template <class N, class R>
void RopeInPlace(MatView<N> x, std::span<const int32_t> position, const RopeTable<R>& table,
                 int direction) {
  const size_t half = table.half;
  for (size_t t = 0; t < x.rows(); ++t) {
    const R* c = &table.cos[static_cast<size_t>(position[t]) * half];
    const R* s = &table.sin[static_cast<size_t>(position[t]) * half];
    for (size_t h = 0; h + 2 * half <= x.cols(); h += 2 * half) {
      N* a = x.Row(t) + h;
      N* b = a + half;
      for (size_t i = 0; i < half; ++i) {
        const N sine = N(direction > 0 ? s[i] : -s[i]);
        const N first = a[i], second = b[i];
        a[i] = first * N(c[i]) - second * sine;
        b[i] = second * N(c[i]) + first * sine;
      }
    }
  }
}

}  // namespace needle
