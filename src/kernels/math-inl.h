// exp, sigmoid and silu of a vector. Error: exp at most 2 units in the last place over the whole
// range (subnormal results included); exp saturates to 0 and infinity; NaN stays NaN.
#if defined(NEEDLE_KERNELS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NEEDLE_KERNELS_MATH_INL_H_
#undef NEEDLE_KERNELS_MATH_INL_H_
#else
#define NEEDLE_KERNELS_MATH_INL_H_
#endif

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace needle {
namespace HWY_NAMESPACE {

/// 2^n for -126 <= n <= 127.
HWY_INLINE Vec PowerOfTwo(IntVec n) {
  const IntVec bits = hn::ShiftLeft<23>(hn::Add(n, hn::Set(IntTag(), 127)));
  return hn::BitCast(VecTag(), bits);
}

HWY_INLINE Vec Exp(Vec x) {
  // Beyond these the result is 0 or infinity in any case.
  const Vec clamped = hn::Min(hn::Max(x, Splat(-105.0f)), Splat(89.0f));
  // x = n ln 2 + r, |r| <= ln 2 / 2; the high part of ln 2 times n is exact. Adding 1.5 * 2^23
  // rounds to a whole number, which then stands in the low bits.
  const Vec magic = Splat(12582912.0f);
  const Vec shifted = hn::Add(hn::Mul(clamped, Splat(1.44269504088896341f)), magic);
  const Vec n = hn::Sub(shifted, magic);
  Vec r = hn::NegMulAdd(n, Splat(0.693145751953125f), clamped);
  r = hn::NegMulAdd(n, Splat(1.42860682030941723e-6f), r);
  Vec p = Splat(1.9875691500e-4f);
  p = hn::MulAdd(p, r, Splat(1.3981999507e-3f));
  p = hn::MulAdd(p, r, Splat(8.3334519073e-3f));
  p = hn::MulAdd(p, r, Splat(4.1665795894e-2f));
  p = hn::MulAdd(p, r, Splat(1.6666665459e-1f));
  p = hn::MulAdd(p, r, Splat(5.0000001201e-1f));
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), Splat(1.0f));
#if HWY_TARGET == HWY_AVX3
  const Vec e{_mm512_scalef_ps(p.raw, n.raw)};
#else
  // Two steps, since 2^n alone would overflow at 128 and vanish below -126.
  const IntVec whole = hn::Sub(hn::BitCast(IntTag(), shifted), hn::BitCast(IntTag(), magic));
  const IntVec half = hn::ShiftRight<1>(whole);
  const Vec e = hn::Mul(hn::Mul(p, PowerOfTwo(half)), PowerOfTwo(hn::Sub(whole, half)));
#endif
  return hn::IfThenElse(hn::Eq(x, x), e, x);
}

HWY_INLINE Vec Sigmoid(Vec x) {
  return hn::Div(Splat(1.0f), hn::Add(Splat(1.0f), Exp(hn::Neg(x))));
}

HWY_INLINE Vec Silu(Vec x) { return hn::Mul(x, Sigmoid(x)); }

}  // namespace HWY_NAMESPACE
}  // namespace needle
HWY_AFTER_NAMESPACE();
#endif
