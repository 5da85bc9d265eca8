// Reductions and streaming helpers over one row, compiled once for each target.
#if defined(NEEDLE_KERNELS_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NEEDLE_KERNELS_REDUCE_INL_H_
#undef NEEDLE_KERNELS_REDUCE_INL_H_
#else
#define NEEDLE_KERNELS_REDUCE_INL_H_
#endif

#include <cmath>

#include "kernels/simd-inl.h"
#include "ops/scalar.h"

HWY_BEFORE_NAMESPACE();
namespace needle {
namespace HWY_NAMESPACE {

/// sum a[i] b[i], four chains of whole vectors.
HWY_INLINE float DotFloats(const float* a, const float* b, size_t n) {
  Vec s0 = ZeroVec(), s1 = ZeroVec(), s2 = ZeroVec(), s3 = ZeroVec();
  size_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    s0 = hn::MulAdd(Load(a + i), Load(b + i), s0);
    s1 = hn::MulAdd(Load(a + i + kLanes), Load(b + i + kLanes), s1);
    s2 = hn::MulAdd(Load(a + i + 2 * kLanes), Load(b + i + 2 * kLanes), s2);
    s3 = hn::MulAdd(Load(a + i + 3 * kLanes), Load(b + i + 3 * kLanes), s3);
  }
  for (; i < n; i += kLanes) s0 = hn::MulAdd(LoadUpTo(a + i, n - i), LoadUpTo(b + i, n - i), s0);
  return Sum(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)));
}

/// 1 / sqrt(mean(x^2) + epsilon)
HWY_INLINE float InverseRmsOf(const float* x, size_t n) {
  const float mean = DotFloats(x, x, n) / static_cast<float>(n);
  return 1.0f / std::sqrt(mean + static_cast<float>(kNormEpsilon));
}

}  // namespace HWY_NAMESPACE
}  // namespace needle
HWY_AFTER_NAMESPACE();
#endif
