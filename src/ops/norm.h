// ops/norm.h    zero-centred RMS norm, per consecutive group of E = scale.size() channels
//   y = (1 + scale) * x / sqrt(mean(x^2) + 1e-6)
// Backward, with g = (1 + scale) * dy and r = 1 / sqrt(...):
//   dx = g r - x r^3 <g, x> / E;   dscale += sum_t dy x r
// Shapes: x, y and their gradients [T, H*E] (H = 1 for the wide norms); scale [E].
// In place (y = x) is allowed in the forward. Source: MODEL.md 4.1. Thread-safe on disjoint rows.
#pragma once

#include <span>

#include "ops/scalar.h"
#include "tensor/view.h"

namespace needle {

template <class N>
void RmsNormForward(MatView<const N> x, std::span<const N> scale, MatView<N> y) {
  const size_t E = scale.size();
  for (size_t t = 0; t < x.rows(); ++t)
    for (size_t h = 0; h + E <= x.cols(); h += E) {
      const N* a = x.Row(t) + h;
      N* b = y.Row(t) + h;
      const N r = InverseRms<N>(a, E);
      for (size_t i = 0; i < E; ++i) b[i] = (N(1) + scale[i]) * a[i] * r;
    }
}

/// Assigns dx (dx = dy in place is allowed). Adds to dscale when it is not empty.
template <class N>
void RmsNormBackward(MatView<const N> x, std::span<const N> scale, MatView<const N> dy,
                     MatView<N> dx, std::span<N> dscale) {
  const size_t E = scale.size();
  for (size_t t = 0; t < x.rows(); ++t)
    for (size_t h = 0; h + E <= x.cols(); h += E) {
      const N* a = x.Row(t) + h;
      const N* g = dy.Row(t) + h;
      N* d = dx.Row(t) + h;
      const N r = InverseRms<N>(a, E);
      N along{};
      for (size_t i = 0; i < E; ++i) along += (N(1) + scale[i]) * g[i] * a[i];
      if (!dscale.empty())
        for (size_t i = 0; i < E; ++i) dscale[i] += g[i] * a[i] * r;
      const N c = along * r * r * r / N(static_cast<double>(E));
      for (size_t i = 0; i < E; ++i) d[i] = (N(1) + scale[i]) * g[i] * r - a[i] * c;
    }
}

}  // namespace needle
