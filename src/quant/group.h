// What codebook quantisation means for one group of n = 128 (or 64) values, in plain loops:
//   r = w H_n / sqrt(n);  norm = ||r||;  code_i = nearest(r_i / norm);  stored norm = float16(norm)
//   q = (codebook[code] * float(stored norm)) H_n / sqrt(n)
// The order of additions is part of the meaning, so that fast versions give the same bits: the
// butterflies add at distance 1, 2, 4 ...; the squares are summed in 16 lanes (lane i takes
// elements i, i + 16, ...) that are folded in halves; no multiply is fused with an add. Errors:
// asserts only. Thread-safe. Source: docs/numerics.md (MODEL.md section 8).
#pragma once

#include <bit>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace needle {

/// In-place x = x H_n (Sylvester order, entries +1 and -1), n a power of two. Exact in any type
/// that holds the sums.
template <class N>
void WalshInPlace(std::span<N> x) {
  assert(std::has_single_bit(x.size()));
  for (size_t half = 1; half < x.size(); half *= 2)
    for (size_t block = 0; block < x.size(); block += 2 * half)
      for (size_t i = block; i < block + half; ++i) {
        const N a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
}

/// In-place x = x H_n / sqrt(n), n a power of two.
inline void HadamardInPlace(std::span<float> x) {
  WalshInPlace(x);
  const auto scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(x.size())));
  for (float& v : x) v *= scale;
}

/// sqrt(sum of squares), summed in 16 lanes; x.size() is a multiple of 16.
inline float GroupNorm(std::span<const float> x) {
  constexpr size_t kLanes = 16;
  assert(x.size() % kLanes == 0);
  float lane[kLanes] = {};
  for (size_t i = 0; i < x.size(); i += kLanes)
    for (size_t k = 0; k < kLanes; ++k) lane[k] += x[i + k] * x[i + k];
  for (size_t half = kLanes / 2; half > 0; half /= 2)
    for (size_t k = 0; k < half; ++k) lane[k] += lane[k + half];
  return std::sqrt(lane[0]);
}

/// Index of the entry nearest to u (ascending codebook of at least two); a tie goes to the lower
/// one. A NaN takes the last entry but one.
inline uint8_t NearestCode(float u, std::span<const float> codebook) {
  const size_t n = codebook.size();
  size_t above = 0;  // first entry that is not below u
  for (size_t k = 0; k < n; ++k) above += codebook[k] < u;
  above = above < 1 ? 1 : above > n - 1 ? n - 1 : above;
  const bool lower = std::abs(u - codebook[above - 1]) <= std::abs(u - codebook[above]);
  return static_cast<uint8_t>(lower ? above - 1 : above);
}

/// Quantises one group: `w` becomes its rotation, `codes` [w.size()] the codes; returns the stored
/// norm. The codes are chosen with the unrounded norm.
inline uint16_t QuantizeGroup(std::span<float> w, std::span<const float> codebook, uint8_t* codes) {
  HadamardInPlace(w);
  const float norm = GroupNorm(w);
  const float divisor = std::fmax(norm, 1e-12f);
  for (size_t i = 0; i < w.size(); ++i) codes[i] = NearestCode(w[i] / divisor, codebook);
  return F32ToF16(norm);
}

/// The values that codes and stored norm stand for; out.size() codes.
inline void DequantizeGroup(const uint8_t* codes, uint16_t norm, std::span<const float> codebook,
                            std::span<float> out) {
  const float scale = F16ToF32(norm);
  for (size_t i = 0; i < out.size(); ++i) out[i] = codebook[codes[i]] * scale;
  HadamardInPlace(out);
}

}  // namespace needle
