// ops/probe.h    probe heads: P probes pool all cells (position x layer), then a projection
//   score_c = <cell_c, probe_p> / sqrt(D), -inf at pads;  w = softmax over all cells;  pooled_p =
//   sum w_c cell_c out = pooled (concatenated over probes) proj + bias
// Contrastive: out / sqrt(sum out^2 + 1e-12). Confidence: one raw logit.
// Shapes: cells [C, D]; keep [C] (false: pad); probes [P, D]; proj [P*D, O]; out [O].
// Source: MODEL.md 4.7. Thread-safe.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "ops/scalar.h"
#include "tensor/view.h"

namespace needle {

/// Softmax weights of one probe over the cells.
template <class N>
std::vector<N> ProbeWeights(MatView<const N> cells, std::span<const bool> keep, const N* probe) {
  using std::exp;
  using std::sqrt;
  const size_t D = cells.cols();
  const N root = sqrt(N(static_cast<double>(D)));
  std::vector<N> w(cells.rows());
  double largest = -INFINITY;
  for (size_t c = 0; c < w.size(); ++c) {
    for (size_t d = 0; d < D; ++d) w[c] += cells.Row(c)[d] * probe[d];
    w[c] /= root;
    if (keep[c]) largest = std::max(largest, static_cast<double>(Real(w[c])));
  }
  N sum{};
  for (size_t c = 0; c < w.size(); ++c) {
    w[c] = keep[c] ? exp(w[c] - N(largest)) : N{};
    sum += w[c];
  }
  for (N& x : w) x /= sum;
  return w;
}

/// pooled [P*D], probe-major.
template <class N>
void ProbePoolForward(MatView<const N> cells, std::span<const bool> keep, MatView<const N> probes,
                      std::span<N> pooled) {
  const size_t D = cells.cols();
  for (size_t p = 0; p < probes.rows(); ++p) {
    const std::vector<N> w = ProbeWeights<N>(cells, keep, probes.Row(p));
    for (size_t d = 0; d < D; ++d) {
      N sum{};
      for (size_t c = 0; c < w.size(); ++c) sum += w[c] * cells.Row(c)[d];
      pooled[p * D + d] = sum;
    }
  }
}

/// Adds to dcells and dprobes (each may be empty).
template <class N>
void ProbePoolBackward(MatView<const N> cells, std::span<const bool> keep, MatView<const N> probes,
                       std::span<const N> dpooled, MatView<N> dcells, MatView<N> dprobes) {
  using std::sqrt;
  const size_t D = cells.cols();
  const N root = sqrt(N(static_cast<double>(D)));
  for (size_t p = 0; p < probes.rows(); ++p) {
    const std::vector<N> w = ProbeWeights<N>(cells, keep, probes.Row(p));
    const N* g = &dpooled[p * D];
    std::vector<N> dw(w.size());
    N mean{};
    for (size_t c = 0; c < w.size(); ++c) {
      for (size_t d = 0; d < D; ++d) dw[c] += g[d] * cells.Row(c)[d];
      mean += w[c] * dw[c];
    }
    for (size_t c = 0; c < w.size(); ++c) {
      const N ds = w[c] * (dw[c] - mean) / root;
      for (size_t d = 0; d < D; ++d) {
        if (!dcells.empty()) dcells.Row(c)[d] += w[c] * g[d] + ds * probes.Row(p)[d];
        if (!dprobes.empty()) dprobes.Row(p)[d] += ds * cells.Row(c)[d];
      }
    }
  }
}

/// y = x / sqrt(sum x^2 + 1e-12)
template <class N>
void UnitVectorForward(std::span<const N> x, std::span<N> y) {
  using std::sqrt;
  N sum{};
  for (const N& v : x) sum += v * v;
  const N scale = N(1) / sqrt(sum + N(1e-12));
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale;
}

/// Assigns dx.
template <class N>
void UnitVectorBackward(std::span<const N> x, std::span<const N> dy, std::span<N> dx) {
  using std::sqrt;
  N sum{}, along{};
  for (size_t i = 0; i < x.size(); ++i) {
    sum += x[i] * x[i];
    along += x[i] * dy[i];
  }
  const N scale = N(1) / sqrt(sum + N(1e-12));
  for (size_t i = 0; i < x.size(); ++i) dx[i] = scale * (dy[i] - x[i] * along * scale * scale);
}

}  // namespace needle
