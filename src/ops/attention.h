// ops/attention.h    causal attention over ancestors, with grouped key/value heads
//   o_t,h = sum_j softmax_j(scale * <q_t,h, k_j,h'>) v_j,h' over the rows j that t sees;  h' = h /
//   (H / K)
// A query of row t sees key row j iff j <= t and t < key_end[j] (forest: subtree_end; engine: j +
// window, or never for a sink). A row that sees nothing gives 0.
// Shapes: q, o [T, H*E]; k, v [rows, K*E]; query i is row first + i. Source: MODEL.md 4.5b.
// Thread-safe on disjoint outputs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/scalar.h"
#include "tensor/view.h"

namespace needle {

struct AttentionShape {
  size_t H = 1, K = 1, E = 1;
};

/// Probabilities of one query and head over keys 0..row (zero where unseen).
template <class N>
std::vector<N> AttentionRow(const N* q, MatView<const N> k, std::span<const int32_t> key_end,
                            size_t row, size_t key_column, size_t E) {
  using std::exp;
  using std::sqrt;
  const N scale = N(1) / sqrt(N(static_cast<double>(E)));
  std::vector<N> p(row + 1);
  double largest = -INFINITY;
  const auto sees = [&](size_t j) { return static_cast<int32_t>(row) < key_end[j]; };
  for (size_t j = 0; j <= row; ++j) {
    if (!sees(j)) continue;
    N dot{};
    for (size_t e = 0; e < E; ++e) dot += q[e] * k.Row(j)[key_column + e];
    p[j] = dot * scale;
    largest = std::max(largest, static_cast<double>(Real(p[j])));
  }
  N sum{};
  for (size_t j = 0; j <= row; ++j) {
    p[j] = sees(j) ? exp(p[j] - N(largest)) : N{};
    sum += p[j];
  }
  if (largest == -INFINITY) return p;
  for (N& x : p) x /= sum;
  return p;
}

template <class N>
void AttentionForward(const AttentionShape& s, MatView<const N> q, MatView<const N> k,
                      MatView<const N> v, std::span<const int32_t> key_end, size_t first,
                      MatView<N> o) {
  for (size_t i = 0; i < q.rows(); ++i)
    for (size_t h = 0; h < s.H; ++h) {
      const size_t column = h / (s.H / s.K) * s.E;
      const std::vector<N> p =
          AttentionRow<N>(q.Row(i) + h * s.E, k, key_end, first + i, column, s.E);
      for (size_t e = 0; e < s.E; ++e) {
        N sum{};
        for (size_t j = 0; j < p.size(); ++j) sum += p[j] * v.Row(j)[column + e];
        o.Row(i)[h * s.E + e] = sum;
      }
    }
}

/// Assigns dq; adds to dk and dv.
template <class N>
void AttentionBackward(const AttentionShape& s, MatView<const N> q, MatView<const N> k,
                       MatView<const N> v, std::span<const int32_t> key_end, size_t first,
                       MatView<const N> d_o, MatView<N> dq, MatView<N> dk, MatView<N> dv) {
  using std::sqrt;
  const N scale = N(1) / sqrt(N(static_cast<double>(s.E)));
  for (size_t i = 0; i < q.rows(); ++i)
    for (size_t h = 0; h < s.H; ++h) {
      const size_t column = h / (s.H / s.K) * s.E;
      const N *query = q.Row(i) + h * s.E, *g = d_o.Row(i) + h * s.E;
      const std::vector<N> p = AttentionRow<N>(query, k, key_end, first + i, column, s.E);
      std::vector<N> dp(p.size());
      N mean{};
      for (size_t j = 0; j < p.size(); ++j) {
        for (size_t e = 0; e < s.E; ++e) {
          dp[j] += g[e] * v.Row(j)[column + e];
          dv.Row(j)[column + e] += p[j] * g[e];
        }
        mean += p[j] * dp[j];
      }
      N* out = dq.Row(i) + h * s.E;
      for (size_t e = 0; e < s.E; ++e) out[e] = N{};
      for (size_t j = 0; j < p.size(); ++j) {
        const N ds = p[j] * (dp[j] - mean) * scale;
        for (size_t e = 0; e < s.E; ++e) {
          out[e] += ds * k.Row(j)[column + e];
          dk.Row(j)[column + e] += ds * query[e];
        }
      }
    }
}

}  // namespace needle
