// Fast Walsh-Hadamard transform of one row, compiled once for each target. The butterflies are
// those of quant/group.h in the same order (distance 1, 2, 4 ...), so that the bits are the same.
#if defined(NEEDLE_KERNELS_HADAMARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NEEDLE_KERNELS_HADAMARD_INL_H_
#undef NEEDLE_KERNELS_HADAMARD_INL_H_
#else
#define NEEDLE_KERNELS_HADAMARD_INL_H_
#endif

#include <cmath>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace needle {
namespace HWY_NAMESPACE {

/// For butterflies inside a vector: each lane's partner, and the sign of its own value.
template <size_t kDistance>
struct LaneButterfly {
  alignas(64) int32_t partner[kLanes];
  alignas(64) float sign[kLanes];
  constexpr LaneButterfly() : partner(), sign() {
    for (size_t i = 0; i < kLanes; ++i) {
      partner[i] = static_cast<int32_t>(i ^ kDistance);
      sign[i] = i & kDistance ? -1.0f : 1.0f;
    }
  }
};

/// a, b -> a + b, a - b for lanes at `kDistance` from each other inside each vector of v.
template <size_t kDistance, size_t kCount>
HWY_INLINE void ButterflyLanes(Vec* v) {
  static constexpr LaneButterfly<kDistance> kButterfly;
  const auto indices = hn::SetTableIndices(VecTag(), kButterfly.partner);
  const Vec signs = Load(kButterfly.sign);
  NEEDLE_UNROLL
  for (size_t i = 0; i < kCount; ++i)
    v[i] = hn::MulAdd(signs, v[i], hn::TableLookupLanes(v[i], indices));
}

/// The stages of distance 1, 2, ... n / 2 for n = kCount vectors, which are kept in registers.
template <size_t kCount>
HWY_INLINE void ButterflyVectors(Vec* v) {
  NEEDLE_UNROLL
  for (size_t half = 1; half < kCount; half *= 2) {
    NEEDLE_UNROLL
    for (size_t i = 0; i < kCount; ++i) {
      if (i & half) continue;
      const Vec a = v[i], b = v[i + half];
      v[i] = hn::Add(a, b);
      v[i + half] = hn::Sub(a, b);
    }
  }
}

/// All stages inside blocks of kCount vectors; x has n = (multiple of kCount) * kLanes floats.
template <size_t kCount>
HWY_INLINE void TransformBlocks(float* x, size_t n, float scale) {
  for (size_t at = 0; at < n; at += kCount * kLanes) {
    Vec v[kCount];
    NEEDLE_UNROLL
    for (size_t i = 0; i < kCount; ++i) v[i] = Load(x + at + i * kLanes);
    if constexpr (kLanes > 1) ButterflyLanes<1, kCount>(v);
    if constexpr (kLanes > 2) ButterflyLanes<2, kCount>(v);
    if constexpr (kLanes > 4) ButterflyLanes<4, kCount>(v);
    if constexpr (kLanes > 8) ButterflyLanes<8, kCount>(v);
    ButterflyVectors<kCount>(v);
    const Vec factor = Splat(scale);
    NEEDLE_UNROLL
    for (size_t i = 0; i < kCount; ++i) Store(hn::Mul(v[i], factor), x + at + i * kLanes);
  }
}

/// The stages of distance `distance`, 2 distance ... up to kCount / 2 * distance.
template <size_t kCount>
HWY_INLINE void TransformStrided(float* x, size_t n, size_t distance, float scale) {
  const Vec factor = Splat(scale);
  for (size_t block = 0; block < n; block += kCount * distance)
    for (size_t at = block; at < block + distance; at += kLanes) {
      Vec v[kCount];
      NEEDLE_UNROLL
      for (size_t i = 0; i < kCount; ++i) v[i] = Load(x + at + i * distance);
      ButterflyVectors<kCount>(v);
      NEEDLE_UNROLL
      for (size_t i = 0; i < kCount; ++i) Store(hn::Mul(v[i], factor), x + at + i * distance);
    }
}

inline void TransformPlain(float* x, size_t n, float scale) {
  for (size_t half = 1; half < n; half *= 2)
    for (size_t block = 0; block < n; block += 2 * half)
      for (size_t i = block; i < block + half; ++i) {
        const float a = x[i], b = x[i + half];
        x[i] = a + b;
        x[i + half] = a - b;
      }
  for (size_t i = 0; i < n; ++i) x[i] *= scale;
}

/// In-place x = x H_n / sqrt(n), n a power of two.
HWY_INLINE void Transform(float* x, size_t n) {
  const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(n)));
  if (n < kLanes) return TransformPlain(x, n, scale);
  constexpr size_t kBlock = 8 * kLanes;
  const float first = n <= kBlock ? scale : 1.0f;
  if (n == kLanes) return TransformBlocks<1>(x, n, first);
  if (n == 2 * kLanes) return TransformBlocks<2>(x, n, first);
  if (n == 4 * kLanes) return TransformBlocks<4>(x, n, first);
  TransformBlocks<8>(x, n, first);
  for (size_t distance = kBlock; distance < n;) {
    const size_t left = n / distance;
    if (left == 2) {
      TransformStrided<2>(x, n, distance, scale);
      distance *= 2;
    } else if (left == 4) {
      TransformStrided<4>(x, n, distance, scale);
      distance *= 4;
    } else {
      TransformStrided<8>(x, n, distance, left == 8 ? scale : 1.0f);
      distance *= 8;
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace needle
HWY_AFTER_NAMESPACE();
#endif
