// ops/head.h    embedding in, mean of lanes, cross-entropy out (the table is tied)
//   x0_t = E[token_t] sqrt(D);   h = mean over lanes;   logits = norm(h) E^T
//   loss = sum_n weight_n * (logsumexp(logits[row_n]) - logits[row_n][id_n])
// Shapes: E [V, D]; x0, h [T, D]; X [T, S*D]; logits [rows, V]. Source: MODEL.md 4.2, 4.4, 6.5.
// Thread-safe on disjoint outputs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "ops/scalar.h"
#include "tensor/view.h"

namespace needle {

template <class N>
void EmbeddingForward(MatView<const N> table, std::span<const int32_t> tokens, MatView<N> x0) {
  using std::sqrt;
  const N scale = sqrt(N(static_cast<double>(table.cols())));
  for (size_t t = 0; t < tokens.size(); ++t)
    for (size_t d = 0; d < table.cols(); ++d)
      x0.Row(t)[d] = table.Row(static_cast<size_t>(tokens[t]))[d] * scale;
}

/// Adds to dtable.
template <class N>
void EmbeddingBackward(std::span<const int32_t> tokens, MatView<const N> dx0, MatView<N> dtable) {
  using std::sqrt;
  const N scale = sqrt(N(static_cast<double>(dtable.cols())));
  for (size_t t = 0; t < tokens.size(); ++t)
    for (size_t d = 0; d < dtable.cols(); ++d)
      dtable.Row(static_cast<size_t>(tokens[t]))[d] += dx0.Row(t)[d] * scale;
}

template <class N>
void LaneMeanForward(MatView<const N> x, MatView<N> h) {
  const size_t D = h.cols(), S = x.cols() / D;
  for (size_t t = 0; t < h.rows(); ++t)
    for (size_t d = 0; d < D; ++d) {
      N sum{};
      for (size_t i = 0; i < S; ++i) sum += x.Row(t)[i * D + d];
      h.Row(t)[d] = sum / N(static_cast<double>(S));
    }
}

/// Assigns dx.
template <class N>
void LaneMeanBackward(MatView<const N> dh, MatView<N> dx) {
  const size_t D = dh.cols(), S = dx.cols() / D;
  for (size_t t = 0; t < dh.rows(); ++t)
    for (size_t i = 0; i < S; ++i)
      for (size_t d = 0; d < D; ++d)
        dx.Row(t)[i * D + d] = dh.Row(t)[d] / N(static_cast<double>(S));
}

/// One row of logits with its targets: returns the weighted loss and turns logits into dlogits.
template <class N>
N CrossEntropyRow(std::span<N> logits, std::span<const int32_t> ids,
                  std::span<const float> weights) {
  using std::exp;
  using std::log;
  auto largest = Real(logits[0]);
  for (const N& x : logits) largest = std::max(largest, Real(x));
  N sum{};
  for (const N& x : logits) sum += exp(x - N(largest));
  const N lse = N(largest) + log(sum);
  N loss{}, total{};
  for (size_t n = 0; n < ids.size(); ++n) {
    loss += N(weights[n]) * (lse - logits[static_cast<size_t>(ids[n])]);
    total += N(weights[n]);
  }
  for (N& x : logits) x = total * exp(x - lse);
  for (size_t n = 0; n < ids.size(); ++n) logits[static_cast<size_t>(ids[n])] -= N(weights[n]);
  return loss;
}

}  // namespace needle
