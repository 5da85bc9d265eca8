// Fake quantisation of the training forward: weights and keys/values by codebook, activations to a
// few bits. The same operations in the same order as src/quant, so the values are equal bit for
// bit.
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>

#include "kernels/hadamard-inl.h"
#include "kernels/tables-inl.h"
#include "kernels/thresholds.h"
#include "quant/cq.h"
#include "tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace needle {
namespace HWY_NAMESPACE {
namespace {

/// sqrt(sum of squares) of n = multiple of 16 values, summed in 16 lanes as quant/group.h says.
HWY_INLINE float GroupNormOf(const float* x, size_t n) {
  constexpr size_t kVectors = 16 / kLanes;
  Vec sum[kVectors];
  NEEDLE_UNROLL
  for (size_t v = 0; v < kVectors; ++v) sum[v] = ZeroVec();
  for (size_t i = 0; i < n; i += 16) {
    NEEDLE_UNROLL
    for (size_t v = 0; v < kVectors; ++v) {
      const Vec a = Load(x + i + v * kLanes);
      sum[v] = hn::Add(sum[v], hn::Mul(a, a));
    }
  }
  alignas(64) float lane[16];
  NEEDLE_UNROLL
  for (size_t v = 0; v < kVectors; ++v) Store(sum[v], lane + v * kLanes);
  for (size_t half = 8; half > 0; half /= 2)
    for (size_t k = 0; k < half; ++k) lane[k] += lane[k + half];
  return std::sqrt(lane[0]);
}

/// The entry of the codebook nearest to u, each lane. Thresholds: see thresholds.h.
template <size_t kEntries>
HWY_INLINE Vec Nearest(Vec u, const Vec* threshold, const Vec* entry) {
  Vec q = entry[0];
  NEEDLE_UNROLL
  for (size_t k = 0; k + 1 < kEntries; ++k)
    q = hn::IfThenElse(hn::Gt(u, threshold[k]), entry[k + 1], q);
  return q;
}

/// group [n] becomes its dequantised value.
template <size_t kEntries>
HWY_INLINE void QuantiseGroup(float* group, size_t n, const Vec* threshold, const Vec* entry) {
  Transform(group, n);
  const float norm = GroupNormOf(group, n);
  const Vec divisor = Splat(std::fmax(norm, 1e-12f));
  const Vec scale = Splat(F16ToF32(F32ToF16(norm)));
  for (size_t i = 0; i < n; i += kLanes) {
    const Vec q = Nearest<kEntries>(hn::Div(Load(group + i), divisor), threshold, entry);
    Store(hn::Mul(q, scale), group + i);
  }
  Transform(group, n);
}

template <size_t kEntries>
HWY_NOINLINE void QuantiseRows(MatView<float> x, size_t unit, const CodebookThresholds& book,
                               size_t group) {
  Vec threshold[kEntries], entry[kEntries];
  for (size_t k = 0; k < kEntries; ++k) {
    entry[k] = Splat(book.entry[k]);
    threshold[k] = Splat(k + 1 < kEntries ? book.threshold[k] : 0.0f);
  }
  alignas(64) float values[kGroup];
  for (size_t t = 0; t < x.rows(); ++t)
    for (size_t piece = 0; piece + unit <= x.cols(); piece += unit)
      for (size_t first = 0; first < unit; first += group) {
        float* w = x.Row(t) + piece + first;
        const size_t n = std::min(group, unit - first);
        std::copy_n(w, n, values);
        std::fill(values + n, values + group, 0.0f);
        QuantiseGroup<kEntries>(values, group, threshold, entry);
        for (size_t i = 0; i < n; i += kLanes) {
          const Vec a = LoadUpTo(w + i, n - i);
          StoreUpTo(hn::Add(a, hn::Sub(Load(values + i), a)), w + i, n - i);
        }
      }
}

void FakeQuantise(MatView<float> x, size_t unit, Bits bits, size_t group) {
  const CodebookThresholds& book = ThresholdsOf(bits, group);
  switch (book.entries) {
    case 3:
      return QuantiseRows<3>(x, unit, book, group);
    case 4:
      return QuantiseRows<4>(x, unit, book, group);
    case 8:
      return QuantiseRows<8>(x, unit, book, group);
    default:
      return QuantiseRows<16>(x, unit, book, group);
  }
}

/// Largest |x|, NaN left out.
HWY_INLINE float LargestMagnitude(const float* x, size_t n) {
  Vec largest = ZeroVec();
  for (size_t i = 0; i < n; i += kLanes) {
    const Vec a = hn::Abs(LoadUpTo(x + i, n - i));
    largest = hn::IfThenElse(hn::Gt(a, largest), a, largest);
  }
  return Largest(largest);
}

void FakeQuantiseActivations(MatView<float> x, int bits) {
  const float top = static_cast<float>((1 << (bits - 1)) - 1);
  const Vec high = Splat(top), low = Splat(-top - 1);
  const size_t n = x.cols();
  for (size_t t = 0; t < x.rows(); ++t) {
    float* row = x.Row(t);
    const float largest = LargestMagnitude(row, n);
    const Vec scale = Splat(largest == 0 ? 1.0f : largest / top);
    for (size_t i = 0; i < n; i += kLanes) {
      const Vec v = LoadUpTo(row + i, n - i);
      const Vec level = hn::Max(low, hn::Min(high, hn::Round(hn::Div(v, scale))));
      const Vec moved = hn::Add(v, hn::Sub(hn::Mul(level, scale), v));
      StoreUpTo(hn::IfThenElse(hn::Eq(v, v), moved, v), row + i, n - i);
    }
  }
}

}  // namespace

void FillQuantise(Kernels& table) {
  table.fake_quantise = &FakeQuantise;
  table.fake_quantise_activations = &FakeQuantiseActivations;
}

}  // namespace HWY_NAMESPACE
}  // namespace needle
HWY_AFTER_NAMESPACE();
