// Row-block kernels of ops/lanes.h: the coefficients of the residual lanes (Sinkhorn, kLanes tokens
// a vector) and the mixing of the lanes, one pass over each row.
//
// Sinkhorn runs on exp(z - row maximum) with divisions instead of logarithms, and its gradient on
// d = dP * P as in ops/sinkhorn.h. That is as exact while no entry underflows, which the spread
// within a row decides; tokens beyond kMaxSpread, or with a NaN, take the plain loops.
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/lanes.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>

#include "kernels/math-inl.h"
#include "kernels/reduce-inl.h"
#include "kernels/tables-inl.h"
#include "ops/lanes.h"

HWY_BEFORE_NAMESPACE();
namespace needle {
namespace HWY_NAMESPACE {
namespace {

using Matrix = MatView<float>;
using ConstMatrix = MatView<const float>;

constexpr float kMaxSpread = 60.0f;  // e^-60 is far from the smallest normal float

/// Columns of up to kLanes rows, one vector a column; lanes past the rows are 0.
template <size_t kColumns>
struct Tokens {
  alignas(64) float column[kColumns][kLanes];

  void Gather(ConstMatrix m, size_t first, size_t count) {
    for (size_t j = 0; j < kColumns; ++j)
      for (size_t i = 0; i < kLanes; ++i) column[j][i] = i < count ? m.Row(first + i)[j] : 0.0f;
  }
  void Scatter(Matrix m, size_t first, size_t count) const {
    for (size_t i = 0; i < count; ++i)
      for (size_t j = 0; j < kColumns; ++j) m.Row(first + i)[j] = column[j][i];
  }
  Vec Get(size_t j) const { return Load(column[j]); }
  void Set(size_t j, Vec v) { Store(v, column[j]); }
};

/// z -> exp(z - row maximum); false when some entry would be lost.
template <size_t kS>
HWY_INLINE bool SinkhornStart(Vec* z) {
  Vec spread = ZeroVec();
  NEEDLE_UNROLL
  for (size_t i = 0; i < kS; ++i) {
    Vec high = z[i * kS], low = high;
    NEEDLE_UNROLL
    for (size_t j = 1; j < kS; ++j) {
      high = hn::Max(high, z[i * kS + j]);
      low = hn::Min(low, z[i * kS + j]);
    }
    // A NaN may hide from Max and Min, but not from a sum.
    Vec sum = hn::Sub(high, low);
    spread = hn::Max(spread, sum);
    NEEDLE_UNROLL
    for (size_t j = 0; j < kS; ++j) {
      sum = hn::Add(sum, hn::Mul(z[i * kS + j], ZeroVec()));
      z[i * kS + j] = Exp(hn::Sub(z[i * kS + j], high));
    }
    spread = hn::IfThenElse(hn::Eq(sum, sum), spread, Splat(2 * kMaxSpread));
  }
  return hn::AllTrue(VecTag(), hn::Le(spread, Splat(kMaxSpread)));
}

/// Divides each row (step 1, lines kS apart) or column by its sum.
template <size_t kS>
HWY_INLINE void Normalise(Vec* k, size_t line, size_t step) {
  const Vec one = Splat(1.0f);
  NEEDLE_UNROLL
  for (size_t i = 0; i < kS; ++i) {
    Vec sum = k[i * line];
    NEEDLE_UNROLL
    for (size_t j = 1; j < kS; ++j) sum = hn::Add(sum, k[i * line + j * step]);
    const Vec inverse = hn::Div(one, sum);
    NEEDLE_UNROLL
    for (size_t j = 0; j < kS; ++j)
      k[i * line + j * step] = hn::Mul(k[i * line + j * step], inverse);
  }
}

/// d -= after * (sum of d over the line)
template <size_t kS>
HWY_INLINE void NormaliseGrad(const Vec* after, Vec* d, size_t line, size_t step) {
  NEEDLE_UNROLL
  for (size_t i = 0; i < kS; ++i) {
    Vec sum = d[i * line];
    NEEDLE_UNROLL
    for (size_t j = 1; j < kS; ++j) sum = hn::Add(sum, d[i * line + j * step]);
    NEEDLE_UNROLL
    for (size_t j = 0; j < kS; ++j) {
      const size_t at = i * line + j * step;
      d[at] = hn::NegMulAdd(after[at], sum, d[at]);
    }
  }
}

/// z = a_res r_res + b_res
template <size_t kS>
HWY_INLINE void ResidualLogits(const Tokens<2 * kS + kS * kS>& r, const LaneScalars<float>& p,
                               Vec* z) {
  const Vec a = Splat(p.a_res);
  for (size_t e = 0; e < kS * kS; ++e)
    z[e] = hn::Add(hn::Mul(a, r.Get(2 * kS + e)), Splat(p.b_res[e]));
}

template <size_t kS>
void Coefficients(ConstMatrix r, const LaneScalars<float>& p, Matrix c) {
  Tokens<2 * kS + kS * kS> tokens;
  for (size_t t = 0; t < r.rows(); t += kLanes) {
    const size_t count = std::min(kLanes, r.rows() - t);
    tokens.Gather(r, t, count);
    Vec z[kS * kS];
    ResidualLogits<kS>(tokens, p, z);
    if (!SinkhornStart<kS>(z)) {
      LaneCoefficientsForward<float>(r.Rows(t, count), p, c.Rows(t, count));
      continue;
    }
    for (int round = 0; round < kSinkhornRounds; ++round) {
      Normalise<kS>(z, kS, 1);
      Normalise<kS>(z, 1, kS);
    }
    for (size_t i = 0; i < kS; ++i) {
      const bool own = i == p.own;
      const Vec pre = hn::Add(hn::Mul(Splat(p.a_pre), tokens.Get(i)), Splat(p.b_pre[i]));
      const Vec post = hn::Add(hn::Mul(Splat(p.a_post), tokens.Get(kS + i)), Splat(p.b_post[i]));
      tokens.Set(i, Sigmoid(hn::Add(pre, Splat(own ? 4.0f : -4.0f))));
      tokens.Set(kS + i, hn::Mul(Splat(2.0f), Sigmoid(hn::Add(post, Splat(own ? 0.0f : -4.0f)))));
    }
    for (size_t e = 0; e < kS * kS; ++e) tokens.Set(2 * kS + e, z[e]);
    tokens.Scatter(c, t, count);
  }
}

/// dz [kS * kS] from d = dP, through all rounds; false when the plain loops must do it.
template <size_t kS>
HWY_INLINE bool SinkhornGrad(Vec* z, Vec* d) {
  constexpr size_t kEntries = kS * kS;
  constexpr size_t kHalfRounds = 2 * static_cast<size_t>(kSinkhornRounds);
  if (!SinkhornStart<kS>(z)) return false;
  alignas(64) float after[kHalfRounds][kEntries][kLanes];
  for (size_t h = 0; h < kHalfRounds; ++h) {
    Normalise<kS>(z, h % 2 ? 1 : kS, h % 2 ? kS : 1);
    NEEDLE_UNROLL
    for (size_t e = 0; e < kEntries; ++e) Store(z[e], after[h][e]);
  }
  for (size_t e = 0; e < kEntries; ++e) d[e] = hn::Mul(d[e], z[e]);
  for (size_t h = kHalfRounds; h-- > 0;) {
    NEEDLE_UNROLL
    for (size_t e = 0; e < kEntries; ++e) z[e] = Load(after[h][e]);
    NormaliseGrad<kS>(z, d, h % 2 ? 1 : kS, h % 2 ? kS : 1);
  }
  return true;
}

template <size_t kS>
void CoefficientsGrad(ConstMatrix r, ConstMatrix c, const LaneScalars<float>& p, ConstMatrix dc,
                      Matrix dr, const LaneScalarGrads<float>& grads) {
  constexpr size_t kColumns = 2 * kS + kS * kS;
  Tokens<kColumns> in, out, d;
  const Vec one = Splat(1.0f);
  for (size_t t = 0; t < r.rows(); t += kLanes) {
    const size_t count = std::min(kLanes, r.rows() - t);
    in.Gather(r, t, count);
    out.Gather(c, t, count);
    d.Gather(dc, t, count);
    Vec z[kS * kS], dz[kS * kS];
    ResidualLogits<kS>(in, p, z);
    for (size_t e = 0; e < kS * kS; ++e) dz[e] = d.Get(2 * kS + e);
    if (!SinkhornGrad<kS>(z, dz)) {
      LaneCoefficientsBackward<float>(r.Rows(t, count), c.Rows(t, count), p, dc.Rows(t, count),
                                      dr.Rows(t, count), grads);
      continue;
    }
    for (size_t i = 0; i < kS; ++i) {
      const Vec o = out.Get(i), half = hn::Mul(out.Get(kS + i), Splat(0.5f));
      const Vec pre = hn::Mul(d.Get(i), hn::Mul(o, hn::Sub(one, o)));
      const Vec post =
          hn::Mul(hn::Mul(d.Get(kS + i), Splat(2.0f)), hn::Mul(half, hn::Sub(one, half)));
      if (grads.a_pre) {
        *grads.a_pre += Sum(hn::Mul(pre, in.Get(i)));
        *grads.a_post += Sum(hn::Mul(post, in.Get(kS + i)));
        grads.b_pre[i] += Sum(pre);
        grads.b_post[i] += Sum(post);
      }
      d.Set(i, hn::Mul(Splat(p.a_pre), pre));
      d.Set(kS + i, hn::Mul(Splat(p.a_post), post));
    }
    for (size_t e = 0; e < kS * kS; ++e) {
      if (grads.a_pre) {
        *grads.a_res += Sum(hn::Mul(dz[e], in.Get(2 * kS + e)));
        grads.b_res[e] += Sum(dz[e]);
      }
      d.Set(2 * kS + e, hn::Mul(Splat(p.a_res), dz[e]));
    }
    d.Scatter(dr, t, count);
  }
}

template <size_t kS>
void LanesIn(ConstMatrix x, ConstMatrix c, Matrix u) {
  const size_t D = u.cols();
  for (size_t t = 0; t < x.rows(); ++t) {
    const float *lanes = x.Row(t), *coef = c.Row(t);
    float* out = u.Row(t);
    for (size_t d = 0; d < D; d += kLanes) {
      Vec sum = hn::Mul(Splat(coef[0]), LoadUpTo(lanes + d, D - d));
      NEEDLE_UNROLL
      for (size_t i = 1; i < kS; ++i)
        sum = hn::MulAdd(Splat(coef[i]), LoadUpTo(lanes + i * D + d, D - d), sum);
      StoreUpTo(sum, out + d, D - d);
    }
  }
}

template <size_t kS>
void LanesInGrad(ConstMatrix x, ConstMatrix c, ConstMatrix du, Matrix dx, Matrix dc) {
  const size_t D = du.cols();
  for (size_t t = 0; t < x.rows(); ++t) {
    const float *lanes = x.Row(t), *coef = c.Row(t), *g = du.Row(t);
    float* out = dx.Row(t);
    Vec sum[kS];
    NEEDLE_UNROLL
    for (size_t i = 0; i < kS; ++i) sum[i] = ZeroVec();
    for (size_t d = 0; d < D; d += kLanes) {
      const size_t left = D - d;
      const Vec g_d = LoadUpTo(g + d, left);
      NEEDLE_UNROLL
      for (size_t i = 0; i < kS; ++i) {
        float* at = out + i * D + d;
        sum[i] = hn::MulAdd(g_d, LoadUpTo(lanes + i * D + d, left), sum[i]);
        StoreUpTo(hn::MulAdd(Splat(coef[i]), g_d, LoadUpTo(at, left)), at, left);
      }
    }
    NEEDLE_UNROLL
    for (size_t i = 0; i < kS; ++i) dc.Row(t)[i] = Sum(sum[i]);
  }
}

template <size_t kS>
void LanesOut(ConstMatrix x, ConstMatrix c, ConstMatrix y, Matrix next) {
  const size_t D = y.cols();
  for (size_t t = 0; t < x.rows(); ++t) {
    const float *lanes = x.Row(t), *post = c.Row(t) + kS, *mix = post + kS;
    float* out = next.Row(t);
    for (size_t d = 0; d < D; d += kLanes) {
      const size_t left = D - d;
      const Vec y_d = LoadUpTo(y.Row(t) + d, left);
      Vec lane[kS];
      NEEDLE_UNROLL
      for (size_t j = 0; j < kS; ++j) lane[j] = LoadUpTo(lanes + j * D + d, left);
      NEEDLE_UNROLL
      for (size_t i = 0; i < kS; ++i) {
        Vec sum = hn::Mul(Splat(mix[i * kS]), lane[0]);
        NEEDLE_UNROLL
        for (size_t j = 1; j < kS; ++j) sum = hn::MulAdd(Splat(mix[i * kS + j]), lane[j], sum);
        StoreUpTo(hn::MulAdd(Splat(post[i]), y_d, sum), out + i * D + d, left);
      }
    }
  }
}

/// Products of one row: dc post = <g_i, y>, dc R = <g_i, x_j>.
template <size_t kS>
HWY_INLINE void LaneProducts(const float* g, const float* y, const float* lanes, size_t D,
                             float* post, float* mix) {
  Vec with_y[kS], with_x[kS * kS];
  NEEDLE_UNROLL
  for (size_t i = 0; i < kS; ++i) with_y[i] = ZeroVec();
  NEEDLE_UNROLL
  for (size_t e = 0; e < kS * kS; ++e) with_x[e] = ZeroVec();
  for (size_t d = 0; d < D; d += kLanes) {
    const size_t left = D - d;
    const Vec y_d = LoadUpTo(y + d, left);
    Vec g_d[kS];
    NEEDLE_UNROLL
    for (size_t i = 0; i < kS; ++i) {
      g_d[i] = LoadUpTo(g + i * D + d, left);
      with_y[i] = hn::MulAdd(g_d[i], y_d, with_y[i]);
    }
    NEEDLE_UNROLL
    for (size_t j = 0; j < kS; ++j) {
      const Vec x_d = LoadUpTo(lanes + j * D + d, left);
      NEEDLE_UNROLL
      for (size_t i = 0; i < kS; ++i)
        with_x[i * kS + j] = hn::MulAdd(g_d[i], x_d, with_x[i * kS + j]);
    }
  }
  for (size_t i = 0; i < kS; ++i) post[i] = Sum(with_y[i]);
  for (size_t e = 0; e < kS * kS; ++e) mix[e] = Sum(with_x[e]);
}

template <size_t kS>
void LanesOutGrad(ConstMatrix x, ConstMatrix c, ConstMatrix y, ConstMatrix dnext, Matrix dx,
                  Matrix dy, Matrix dc) {
  const size_t D = y.cols();
  for (size_t t = 0; t < x.rows(); ++t) {
    const float *post = c.Row(t) + kS, *mix = post + kS, *g = dnext.Row(t);
    LaneProducts<kS>(g, y.Row(t), x.Row(t), D, dc.Row(t) + kS, dc.Row(t) + 2 * kS);
    for (size_t d = 0; d < D; d += kLanes) {
      const size_t left = D - d;
      Vec g_d[kS];
      NEEDLE_UNROLL
      for (size_t i = 0; i < kS; ++i) g_d[i] = LoadUpTo(g + i * D + d, left);
      Vec sum = hn::Mul(Splat(post[0]), g_d[0]);
      NEEDLE_UNROLL
      for (size_t i = 1; i < kS; ++i) sum = hn::MulAdd(Splat(post[i]), g_d[i], sum);
      StoreUpTo(sum, dy.Row(t) + d, left);
      if (dx.empty()) continue;
      NEEDLE_UNROLL
      for (size_t j = 0; j < kS; ++j) {
        Vec back = hn::Mul(Splat(mix[j]), g_d[0]);
        NEEDLE_UNROLL
        for (size_t i = 1; i < kS; ++i) back = hn::MulAdd(Splat(mix[i * kS + j]), g_d[i], back);
        StoreUpTo(back, dx.Row(t) + j * D + d, left);
      }
    }
  }
}

void UnitScale(ConstMatrix x, Matrix r) {
  for (size_t t = 0; t < x.rows(); ++t) {
    const Vec inverse = Splat(InverseRmsOf(x.Row(t), x.cols()));
    for (size_t j = 0; j < r.cols(); j += kLanes)
      StoreUpTo(hn::Mul(LoadUpTo(r.Row(t) + j, r.cols() - j), inverse), r.Row(t) + j, r.cols() - j);
  }
}

void UnitScaleGrad(ConstMatrix x, ConstMatrix r, Matrix dr, Matrix dx) {
  const size_t C = r.cols(), width = x.cols();
  for (size_t t = 0; t < x.rows(); ++t) {
    const float inverse = InverseRmsOf(x.Row(t), width);
    const float along = DotFloats(dr.Row(t), r.Row(t), C);
    const Vec inverse_v = Splat(inverse);
    for (size_t j = 0; j < C; j += kLanes)
      StoreUpTo(hn::Mul(LoadUpTo(dr.Row(t) + j, C - j), inverse_v), dr.Row(t) + j, C - j);
    if (dx.empty()) continue;
    const Vec c = Splat(along * inverse * inverse / static_cast<float>(width));
    for (size_t d = 0; d < width; d += kLanes) {
      float* at = dx.Row(t) + d;
      StoreUpTo(hn::NegMulAdd(c, LoadUpTo(x.Row(t) + d, width - d), LoadUpTo(at, width - d)), at,
                width - d);
    }
  }
}

// The number of lanes is known to the compiler for 1 to 4 lanes; more take the plain loops.

void AnyCoefficients(ConstMatrix r, const LaneScalars<float>& p, Matrix c) {
  switch (p.b_pre.size()) {
    case 1:
      return Coefficients<1>(r, p, c);
    case 2:
      return Coefficients<2>(r, p, c);
    case 3:
      return Coefficients<3>(r, p, c);
    case 4:
      return Coefficients<4>(r, p, c);
    default:
      return LaneCoefficientsForward<float>(r, p, c);
  }
}

void AnyCoefficientsGrad(ConstMatrix r, ConstMatrix c, const LaneScalars<float>& p, ConstMatrix dc,
                         Matrix dr, const LaneScalarGrads<float>& grads) {
  switch (p.b_pre.size()) {
    case 1:
      return CoefficientsGrad<1>(r, c, p, dc, dr, grads);
    case 2:
      return CoefficientsGrad<2>(r, c, p, dc, dr, grads);
    case 3:
      return CoefficientsGrad<3>(r, c, p, dc, dr, grads);
    case 4:
      return CoefficientsGrad<4>(r, c, p, dc, dr, grads);
    default:
      return LaneCoefficientsBackward<float>(r, c, p, dc, dr, grads);
  }
}

void AnyLanesIn(ConstMatrix x, ConstMatrix c, Matrix u) {
  switch (x.cols() / u.cols()) {
    case 1:
      return LanesIn<1>(x, c, u);
    case 2:
      return LanesIn<2>(x, c, u);
    case 3:
      return LanesIn<3>(x, c, u);
    case 4:
      return LanesIn<4>(x, c, u);
    default:
      return LanesInForward<float>(x, c, u);
  }
}

void AnyLanesInGrad(ConstMatrix x, ConstMatrix c, ConstMatrix du, Matrix dx, Matrix dc) {
  switch (x.cols() / du.cols()) {
    case 1:
      return LanesInGrad<1>(x, c, du, dx, dc);
    case 2:
      return LanesInGrad<2>(x, c, du, dx, dc);
    case 3:
      return LanesInGrad<3>(x, c, du, dx, dc);
    case 4:
      return LanesInGrad<4>(x, c, du, dx, dc);
    default:
      return LanesInBackward<float>(x, c, du, dx, dc);
  }
}

void AnyLanesOut(ConstMatrix x, ConstMatrix c, ConstMatrix y, Matrix next) {
  switch (x.cols() / y.cols()) {
    case 1:
      return LanesOut<1>(x, c, y, next);
    case 2:
      return LanesOut<2>(x, c, y, next);
    case 3:
      return LanesOut<3>(x, c, y, next);
    case 4:
      return LanesOut<4>(x, c, y, next);
    default:
      return LanesOutForward<float>(x, c, y, next);
  }
}

void AnyLanesOutGrad(ConstMatrix x, ConstMatrix c, ConstMatrix y, ConstMatrix dnext, Matrix dx,
                     Matrix dy, Matrix dc) {
  switch (x.cols() / y.cols()) {
    case 1:
      return LanesOutGrad<1>(x, c, y, dnext, dx, dy, dc);
    case 2:
      return LanesOutGrad<2>(x, c, y, dnext, dx, dy, dc);
    case 3:
      return LanesOutGrad<3>(x, c, y, dnext, dx, dy, dc);
    case 4:
      return LanesOutGrad<4>(x, c, y, dnext, dx, dy, dc);
    default:
      return LanesOutBackward<float>(x, c, y, dnext, dx, dy, dc);
  }
}

}  // namespace

void FillLanes(Kernels& table) {
  table.lane_coefficients_forward = &AnyCoefficients;
  table.lane_coefficients_backward = &AnyCoefficientsGrad;
  table.lanes_in_forward = &AnyLanesIn;
  table.lanes_in_backward = &AnyLanesInGrad;
  table.lanes_out_forward = &AnyLanesOut;
  table.lanes_out_backward = &AnyLanesOutGrad;
  table.unit_scale_forward = &UnitScale;
  table.unit_scale_backward = &UnitScaleGrad;
}

}  // namespace HWY_NAMESPACE
}  // namespace needle
HWY_AFTER_NAMESPACE();
