// Vector helpers shared by the kernels, compiled once for each target.
#if defined(NEEDLE_KERNELS_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NEEDLE_KERNELS_SIMD_INL_H_
#undef NEEDLE_KERNELS_SIMD_INL_H_
#else
#define NEEDLE_KERNELS_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace needle {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using VecTag = hn::ScalableTag<float>;
using IntTag = hn::ScalableTag<int32_t>;
using Vec = hn::Vec<VecTag>;
using IntVec = hn::Vec<IntTag>;
using Mask = hn::Mask<VecTag>;
inline constexpr size_t kLanes = hn::MaxLanes(VecTag());

HWY_INLINE Vec Load(const float* p) { return hn::LoadU(VecTag(), p); }
HWY_INLINE void Store(Vec v, float* p) { hn::StoreU(v, VecTag(), p); }
HWY_INLINE Vec Splat(float x) { return hn::Set(VecTag(), x); }
HWY_INLINE Vec ZeroVec() { return hn::Zero(VecTag()); }

// The first n < kLanes lanes of memory, other lanes 0; never touches memory past them.
HWY_INLINE Vec LoadN(const float* p, size_t n) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::MaskedLoad(hn::FirstN(VecTag(), n), VecTag(), p);
#else
  float lanes[kLanes] = {};
  for (size_t i = 0; i < n; ++i) lanes[i] = p[i];
  return Load(lanes);
#endif
}

HWY_INLINE void StoreN(Vec v, float* p, size_t n) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  hn::BlendedStore(v, hn::FirstN(VecTag(), n), VecTag(), p);
#else
  float lanes[kLanes];
  Store(v, lanes);
  for (size_t i = 0; i < n; ++i) p[i] = lanes[i];
#endif
}

HWY_INLINE IntVec LoadN(const int32_t* p, size_t n) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  return hn::MaskedLoad(hn::FirstN(IntTag(), n), IntTag(), p);
#else
  int32_t lanes[kLanes] = {};
  for (size_t i = 0; i < n; ++i) lanes[i] = p[i];
  return hn::LoadU(IntTag(), lanes);
#endif
}

/// Lanes [0, n) of the vector at p where n may be a whole vector or more.
HWY_INLINE Vec LoadUpTo(const float* p, size_t n) { return n >= kLanes ? Load(p) : LoadN(p, n); }
HWY_INLINE void StoreUpTo(Vec v, float* p, size_t n) {
  if (n >= kLanes) {
    Store(v, p);
  } else {
    StoreN(v, p, n);
  }
}

HWY_INLINE void CopyFloats(const float* HWY_RESTRICT from, float* HWY_RESTRICT to, size_t n) {
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(Load(from + i), to + i);
  if (i < n) StoreN(LoadN(from + i, n - i), to + i, n - i);
}

HWY_INLINE float Sum(Vec v) { return hn::GetLane(hn::SumOfLanes(VecTag(), v)); }
HWY_INLINE float Largest(Vec v) { return hn::GetLane(hn::MaxOfLanes(VecTag(), v)); }

}  // namespace HWY_NAMESPACE
}  // namespace needle
HWY_AFTER_NAMESPACE();
#endif
