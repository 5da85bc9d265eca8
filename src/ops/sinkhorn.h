// ops/sinkhorn.h    P = sinkhorn(z): 20 rounds, each subtracting logsumexp over rows, then columns
// Backward goes through all rounds: with w = softmax of what entered a half-round (over its axis),
//   dz = d - w * sum_axis(d), walked from the last half-round to the first, after d = dP * P.
// Shapes: z, P [S, S] row major, one matrix. Source: MODEL.md 4.4 step 5. Thread-safe.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "ops/scalar.h"

namespace needle {

inline constexpr int kSinkhornRounds = 20;

namespace sinkhorn_internal {

/// Subtracts logsumexp along one axis: `line` picks the line, `step` walks in it.
template <class N>
void Normalise(std::span<N> z, size_t S, size_t line, size_t step) {
  using std::exp;
  using std::log;
  for (size_t i = 0; i < S; ++i) {
    N* v = &z[i * line];
    auto largest = Real(v[0]);
    for (size_t j = 1; j < S; ++j) largest = std::max(largest, Real(v[j * step]));
    N sum{};
    for (size_t j = 0; j < S; ++j) sum += exp(v[j * step] - N(largest));
    const N shift = N(largest) + log(sum);
    for (size_t j = 0; j < S; ++j) v[j * step] -= shift;
  }
}

/// d -= exp(z after the half-round) * sum over the line of d.
template <class N>
void NormaliseBackward(std::span<const N> after, std::span<N> d, size_t S, size_t line,
                       size_t step) {
  using std::exp;
  for (size_t i = 0; i < S; ++i) {
    N sum{};
    for (size_t j = 0; j < S; ++j) sum += d[i * line + j * step];
    for (size_t j = 0; j < S; ++j) d[i * line + j * step] -= exp(after[i * line + j * step]) * sum;
  }
}

}  // namespace sinkhorn_internal

template <class N>
void SinkhornForward(std::span<const N> z, size_t S, std::span<N> p) {
  using std::exp;
  for (size_t i = 0; i < S * S; ++i) p[i] = z[i];
  for (int round = 0; round < kSinkhornRounds; ++round) {
    sinkhorn_internal::Normalise<N>(p, S, S, 1);
    sinkhorn_internal::Normalise<N>(p, S, 1, S);
  }
  for (size_t i = 0; i < S * S; ++i) p[i] = exp(p[i]);
}

/// Assigns dz.
template <class N>
void SinkhornBackward(std::span<const N> z, size_t S, std::span<const N> dp, std::span<N> dz) {
  using std::exp;
  std::vector<std::vector<N>> after;  // log matrix after each half-round
  std::vector<N> log_p(z.begin(), z.end());
  for (int round = 0; round < kSinkhornRounds; ++round) {
    sinkhorn_internal::Normalise<N>(log_p, S, S, 1);
    after.push_back(log_p);
    sinkhorn_internal::Normalise<N>(log_p, S, 1, S);
    after.push_back(log_p);
  }
  for (size_t i = 0; i < S * S; ++i) dz[i] = dp[i] * exp(log_p[i]);
  for (int round = kSinkhornRounds - 1; round >= 0; --round) {
    const size_t at = 2 * static_cast<size_t>(round);
    sinkhorn_internal::NormaliseBackward<N>(after[at + 1], dz, S, 1, S);
    sinkhorn_internal::NormaliseBackward<N>(after[at], dz, S, S, 1);
  }
}

}  // namespace needle
