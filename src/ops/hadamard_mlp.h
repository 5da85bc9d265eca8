// ops/hadamard_mlp.h    y = cut_D( d3 * ( silu( d2 * ((d1 * pad(x)) H) ) H ) )
// H: Walsh-Hadamard (Sylvester order) of size M = smallest power of two >= D, over sqrt(M);
// symmetric. Backward, with a = (d1 x) H, b = silu(d2 a), c = b H:
//   dd3 += dy c;  db = (d3 dy) H;  dd2 += db silu'(d2 a) a;  da = db silu'(d2 a) d2;
//   dd1 += (da H) x;  dx = d1 (da H)
// Shapes: x, y [T, D]; d1, d2, d3 [M]. Source: MODEL.md 4.5d. Thread-safe on disjoint rows.
#pragma once

#include <span>
#include <vector>

#include "ops/scalar.h"
#include "tensor/view.h"

namespace needle {

/// In-place x = x H / sqrt(n), n a power of two.
template <class N>
void WalshHadamard(std::span<N> x) {
  using std::sqrt;
  const size_t n = x.size();
  for (size_t h = 1; h < n; h *= 2)
    for (size_t i = 0; i < n; i += 2 * h)
      for (size_t j = i; j < i + h; ++j) {
        const N a = x[j], b = x[j + h];
        x[j] = a + b;
        x[j + h] = a - b;
      }
  const N scale = N(1) / sqrt(N(static_cast<double>(n)));
  for (N& v : x) v *= scale;
}

template <class N>
void HadamardMlpForward(MatView<const N> x, std::span<const N> d1, std::span<const N> d2,
                        std::span<const N> d3, MatView<N> y) {
  const size_t M = d1.size(), D = x.cols();
  std::vector<N> z(M);
  for (size_t t = 0; t < x.rows(); ++t) {
    for (size_t i = 0; i < M; ++i) z[i] = i < D ? d1[i] * x.Row(t)[i] : N{};
    WalshHadamard<N>(z);
    for (size_t i = 0; i < M; ++i) z[i] = Silu(d2[i] * z[i]);
    WalshHadamard<N>(z);
    for (size_t i = 0; i < D; ++i) y.Row(t)[i] = d3[i] * z[i];
  }
}

/// Assigns dx. Adds to dd1, dd2, dd3 when they are not empty.
template <class N>
void HadamardMlpBackward(MatView<const N> x, std::span<const N> d1, std::span<const N> d2,
                         std::span<const N> d3, MatView<const N> dy, MatView<N> dx,
                         std::span<N> dd1, std::span<N> dd2, std::span<N> dd3) {
  const size_t M = d1.size(), D = x.cols();
  std::vector<N> a(M), b(M), g(M);
  for (size_t t = 0; t < x.rows(); ++t) {
    for (size_t i = 0; i < M; ++i) a[i] = i < D ? d1[i] * x.Row(t)[i] : N{};
    WalshHadamard<N>(a);
    if (!dd3.empty()) {
      for (size_t i = 0; i < M; ++i) b[i] = Silu(d2[i] * a[i]);
      WalshHadamard<N>(b);
      for (size_t i = 0; i < D; ++i) dd3[i] += dy.Row(t)[i] * b[i];
    }
    for (size_t i = 0; i < M; ++i) g[i] = i < D ? d3[i] * dy.Row(t)[i] : N{};
    WalshHadamard<N>(g);
    for (size_t i = 0; i < M; ++i) {
      const N slope = g[i] * SiluSlope(d2[i] * a[i]);
      if (!dd2.empty()) dd2[i] += slope * a[i];
      g[i] = slope * d2[i];
    }
    WalshHadamard<N>(g);
    for (size_t i = 0; i < D; ++i) {
      if (!dd1.empty()) dd1[i] += g[i] * x.Row(t)[i];
      dx.Row(t)[i] = d1[i] * g[i];
    }
  }
}

}  // namespace needle
