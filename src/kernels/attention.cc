// Attention over a gathered list of keys: forward, backward, and one query without packing.
//
// Queries go in small sub-blocks, so that their score rows stay in the second-level cache. Keys and
// values are packed once for all heads of the group. Scores that a query may not see become
// weight 0; keys after the last visible one are not computed.
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <limits>

#include "kernels/gemm-inl.h"
#include "kernels/math-inl.h"
#include "kernels/pack-inl.h"
#include "kernels/reduce-inl.h"
#include "kernels/tables-inl.h"

HWY_BEFORE_NAMESPACE();
namespace needle {
namespace HWY_NAMESPACE {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr size_t kScoreBytes = 128 << 10;  // of the score rows of one sub-block, about
constexpr size_t kSubBlockRows = 32;  // its queries at most: scores past the diagonal are waste

constexpr size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }
constexpr size_t PanelFloats(size_t K, size_t N) { return RoundUp(N, kPanelWidth) * K; }

/// Floats from one score row to the next: whole vectors, and no multiple of a page.
constexpr size_t ScoreStride(size_t n) {
  const size_t whole = RoundUp(n, 16);
  return whole % 256 == 0 ? whole + 16 : whole;
}

/// Queries of one sub-block: whole tiles whose scores fit the cache.
constexpr size_t SubBlock(size_t m, size_t n) {
  const size_t fit = kScoreBytes / (sizeof(float) * std::max<size_t>(ScoreStride(n), 1));
  const size_t tiles = std::clamp<size_t>(fit / kMaxRows, 1, kSubBlockRows / kMaxRows);
  return std::min(m, tiles * kMaxRows);
}

/// The keys that a run of queries has to do with.
struct KeySpan {
  size_t all;   // keys [0, all) are visible to every query of the run
  size_t some;  // keys [some, n) are visible to none
};
KeySpan SpanFor(const AttentionBlock& b, size_t first, size_t count) {
  const int32_t low = static_cast<int32_t>(b.first_row + first);
  const int32_t high = static_cast<int32_t>(b.first_row + first + count - 1);
  KeySpan span;
  span.some =
      static_cast<size_t>(std::upper_bound(b.key_first, b.key_first + b.n, high) - b.key_first);
  span.all = 0;
  while (span.all < span.some && b.key_first[span.all] <= low && high < b.key_end[span.all])
    ++span.all;
  return span;
}

/// Which of up to kLanes keys from j the query at `row` sees.
HWY_INLINE Mask Visible(const AttentionBlock& b, size_t j, size_t count, IntVec row) {
  const bool whole = count >= kLanes;
  const IntVec firsts =
      whole ? hn::LoadU(IntTag(), b.key_first + j) : LoadN(b.key_first + j, count);
  const IntVec ends = whole ? hn::LoadU(IntTag(), b.key_end + j) : LoadN(b.key_end + j, count);
  // Lanes past the count have end 0, which no row is under.
  return hn::RebindMask(VecTag(), hn::AndNot(hn::Gt(firsts, row), hn::Lt(row, ends)));
}

bool SeesAny(const AttentionBlock& b, size_t n, size_t row) {
  const int32_t r = static_cast<int32_t>(row);
  for (size_t j = 0; j < n; ++j)
    if (b.key_first[j] <= r && r < b.key_end[j]) return true;
  return false;
}

/// scores[0, some) = exp(scale * scores - max), 0 where invisible; returns their sum, and the max.
HWY_INLINE float SoftmaxRow(const AttentionBlock& b, KeySpan span, size_t row, float* scores,
                            float* max) {
  const Vec scale = Splat(b.scale);
  const IntVec row_v = hn::Set(IntTag(), static_cast<int32_t>(row));
  Vec largest = Splat(kMinusInfinity);
  size_t j = 0;
  for (; j + kLanes <= span.all; j += kLanes)
    largest = hn::Max(largest, hn::Mul(scale, Load(scores + j)));
  for (; j < span.some; j += kLanes) {
    const size_t left = span.some - j;
    const Vec logit =
        hn::IfThenElse(Visible(b, j, left, row_v), hn::Mul(scale, LoadUpTo(scores + j, left)),
                       Splat(kMinusInfinity));
    largest = hn::Max(largest, logit);
  }
  *max = Largest(largest);
  const Vec shift = Splat(*max);
  Vec sum = ZeroVec();
  for (j = 0; j + kLanes <= span.all; j += kLanes) {
    const Vec e = Exp(hn::Sub(hn::Mul(scale, Load(scores + j)), shift));
    Store(e, scores + j);
    sum = hn::Add(sum, e);
  }
  for (; j < span.some; j += kLanes) {
    const size_t left = span.some - j;
    const Vec logit = hn::Mul(scale, LoadUpTo(scores + j, left));
    const Vec e = hn::IfThenElseZero(Visible(b, j, left, row_v), Exp(hn::Sub(logit, shift)));
    StoreUpTo(e, scores + j, left);
    sum = hn::Add(sum, e);
  }
  return Sum(sum);
}

HWY_INLINE void ScaleRow(float* x, size_t n, float by) {
  const Vec factor = Splat(by);
  for (size_t i = 0; i < n; i += kLanes)
    StoreUpTo(hn::Mul(LoadUpTo(x + i, n - i), factor), x + i, n - i);
}

/// Finishes one row: lse, and what the weighted values are to be multiplied by.
HWY_INLINE float FinishRow(const AttentionBlock& b, KeySpan span, size_t row, float max, float sum,
                           float* lse) {
  if (max == kMinusInfinity && !SeesAny(b, span.some, row)) {
    *lse = kMinusInfinity;
    return 0.0f;
  }
  *lse = max + std::log(sum);
  return 1.0f / sum;
}

/// Sums of the lanes of four vectors, into four floats.
HWY_INLINE void SumFour(Vec a, Vec b, Vec c, Vec d, float* out) {
#if HWY_TARGET == HWY_SCALAR
  out[0] = hn::GetLane(a);
  out[1] = hn::GetLane(b);
  out[2] = hn::GetLane(c);
  out[3] = hn::GetLane(d);
#else
  const hn::CappedTag<float, 4> quad;
  const auto fold = [](Vec v) HWY_ATTR {
#if HWY_TARGET == HWY_AVX3
    const hn::Half<VecTag> half;
    const auto v8 = hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v));
    return hn::Add(hn::LowerHalf(v8), hn::UpperHalf(hn::Half<decltype(half)>(), v8));
#elif HWY_TARGET == HWY_AVX2
    return hn::Add(hn::LowerHalf(v), hn::UpperHalf(hn::Half<VecTag>(), v));
#else
    return v;
#endif
  };
  const auto a4 = fold(a), b4 = fold(b), c4 = fold(c), d4 = fold(d);
  const auto ab = hn::Add(hn::InterleaveLower(quad, a4, b4), hn::InterleaveUpper(quad, a4, b4));
  const auto cd = hn::Add(hn::InterleaveLower(quad, c4, d4), hn::InterleaveUpper(quad, c4, d4));
  hn::StoreU(hn::Add(hn::ConcatLowerLower(quad, cd, ab), hn::ConcatUpperUpper(quad, cd, ab)), quad,
             out);
#endif
}

// One query: a decoded token. Nothing is packed; each key and value is read once for kHeads heads.

/// scores[h * stride + j] = q_h . k_j for keys [0, n), four keys at a time.
template <size_t kHeads>
void QueryScores(const AttentionBlock& b, size_t n, const float* q, float* scores, size_t stride) {
  const GatheredRows keys{b.k, b.k_stride, b.key_rows};
  const size_t E = b.E;
  size_t j = 0;
  for (; j + 4 <= n; j += 4) {
    const float* const key[4] = {keys(j), keys(j + 1), keys(j + 2), keys(j + 3)};
    Vec sum[kHeads][4];
    NEEDLE_UNROLL
    for (size_t h = 0; h < kHeads; ++h) {
      NEEDLE_UNROLL
      for (size_t i = 0; i < 4; ++i) sum[h][i] = ZeroVec();
    }
    for (size_t e = 0; e < E; e += kLanes) {
      const size_t left = E - e;
      Vec x[4];
      NEEDLE_UNROLL
      for (size_t i = 0; i < 4; ++i) x[i] = LoadUpTo(key[i] + e, left);
      NEEDLE_UNROLL
      for (size_t h = 0; h < kHeads; ++h) {
        const Vec q_h = LoadUpTo(q + h * E + e, left);
        NEEDLE_UNROLL
        for (size_t i = 0; i < 4; ++i) sum[h][i] = hn::MulAdd(q_h, x[i], sum[h][i]);
      }
    }
    NEEDLE_UNROLL
    for (size_t h = 0; h < kHeads; ++h)
      SumFour(sum[h][0], sum[h][1], sum[h][2], sum[h][3], scores + h * stride + j);
  }
  for (; j < n; ++j)
    for (size_t h = 0; h < kHeads; ++h) scores[h * stride + j] = DotFloats(q + h * E, keys(j), E);
}

/// o_h [E] = by_h * sum over keys of weights[h * stride + j] * v_j, four vectors of E at a time.
template <size_t kHeads>
void WeightedValues(const AttentionBlock& b, size_t n, const float* weights, size_t stride,
                    const float* by, float* o) {
  const GatheredRows values{b.v, b.v_stride, b.key_rows};
  const size_t E = b.E;
  for (size_t e = 0; e < E; e += 4 * kLanes) {
    const size_t left = E - e, whole = left / kLanes >= 4 ? 4 : (left + kLanes - 1) / kLanes;
    Vec sum[kHeads][4];
    NEEDLE_UNROLL
    for (size_t h = 0; h < kHeads; ++h) {
      NEEDLE_UNROLL
      for (size_t i = 0; i < 4; ++i) sum[h][i] = ZeroVec();
    }
    for (size_t j = 0; j < n; ++j) {
      const float* v = values(j) + e;
      Vec x[4];
      NEEDLE_UNROLL
      for (size_t i = 0; i < 4; ++i)
        x[i] = i < whole ? LoadUpTo(v + i * kLanes, left - i * kLanes) : ZeroVec();
      NEEDLE_UNROLL
      for (size_t h = 0; h < kHeads; ++h) {
        const Vec w = Splat(weights[h * stride + j]);
        NEEDLE_UNROLL
        for (size_t i = 0; i < 4; ++i) sum[h][i] = hn::MulAdd(w, x[i], sum[h][i]);
      }
    }
    NEEDLE_UNROLL
    for (size_t h = 0; h < kHeads; ++h) {
      NEEDLE_UNROLL
      for (size_t i = 0; i < 4; ++i) {
        if (i < whole)
          StoreUpTo(hn::Mul(sum[h][i], Splat(by[h])), o + h * E + e + i * kLanes,
                    left - i * kLanes);
      }
    }
  }
}

template <size_t kHeads>
void ForwardHeads(const AttentionBlock& b, KeySpan span, size_t g, float* o, float* lse,
                  float* scores) {
  const size_t stride = ScoreStride(b.n);
  QueryScores<kHeads>(b, span.some, b.q + g * b.E, scores, stride);
  float by[kHeads];
  for (size_t h = 0; h < kHeads; ++h) {
    float max = 0;
    const float sum = SoftmaxRow(b, span, b.first_row, scores + h * stride, &max);
    by[h] = FinishRow(b, span, b.first_row, max, sum, lse + g + h);
  }
  WeightedValues<kHeads>(b, span.some, scores, stride, by, o + g * b.E);
}

void ForwardOne(const AttentionBlock& b, float* o, float* lse, float* scores) {
  const KeySpan span = SpanFor(b, 0, 1);
  size_t g = 0;
  for (; g + 2 <= b.group; g += 2) ForwardHeads<2>(b, span, g, o, lse, scores);
  for (; g < b.group; ++g) ForwardHeads<1>(b, span, g, o, lse, scores);
}

void Forward(const AttentionBlock& b, float* o, size_t o_stride, float* lse, float* scratch) {
  if (b.m == 1) return ForwardOne(b, o, lse, scratch);
  const size_t n = b.n, E = b.E, stride = ScoreStride(n);
  float* key_panels = scratch;
  float* value_panels = key_panels + PanelFloats(E, n);
  float* scores = value_panels + PanelFloats(n, E);
  PackColumns(GatheredRows{b.k, b.k_stride, b.key_rows}, E, n, {key_panels, E, 0, 0});
  PackRows(GatheredRows{b.v, b.v_stride, b.key_rows}, n, E, {value_panels, n, 0, 0});
  const size_t sub = SubBlock(b.m, n);
  for (size_t i0 = 0; i0 < b.m; i0 += sub) {
    const size_t rows = std::min(sub, b.m - i0);
    const KeySpan span = SpanFor(b, i0, rows);
    for (size_t g = 0; g < b.group; ++g) {
      float by[kSubBlockRows];
      GemmPanels(rows, span.some, E, b.q + i0 * b.q_stride + g * E, b.q_stride, 1, key_panels, E,
                 scores, stride, false);
      for (size_t i = 0; i < rows; ++i) {
        float max = 0;
        const size_t row = b.first_row + i0 + i;
        const float sum = SoftmaxRow(b, span, row, scores + i * stride, &max);
        by[i] = FinishRow(b, span, row, max, sum, lse + (i0 + i) * b.group + g);
      }
      float* out = o + i0 * o_stride + g * E;
      GemmPanels(rows, E, span.some, scores, stride, 1, value_panels, n, out, o_stride, false);
      for (size_t i = 0; i < rows; ++i) ScaleRow(out + i * o_stride, E, by[i]);
    }
  }
}

/// p[0, some) = exp(scale p - lse) where visible, and ds = scale p (dp - delta) over dp.
HWY_INLINE void BackwardRow(const AttentionBlock& b, KeySpan span, size_t row, float lse,
                            float delta, float* p, float* ds) {
  const Vec scale = Splat(b.scale), shift = Splat(lse), mean = Splat(delta);
  const IntVec row_v = hn::Set(IntTag(), static_cast<int32_t>(row));
  size_t j = 0;
  for (; j + kLanes <= span.all; j += kLanes) {
    const Vec e = Exp(hn::Sub(hn::Mul(scale, Load(p + j)), shift));
    Store(e, p + j);
    Store(hn::Mul(hn::Mul(scale, e), hn::Sub(Load(ds + j), mean)), ds + j);
  }
  for (; j < span.some; j += kLanes) {
    const size_t left = span.some - j;
    const Mask visible = Visible(b, j, left, row_v);
    const Vec e =
        hn::IfThenElseZero(visible, Exp(hn::Sub(hn::Mul(scale, LoadUpTo(p + j, left)), shift)));
    StoreUpTo(e, p + j, left);
    const Vec d = hn::Mul(hn::Mul(scale, e), hn::Sub(LoadUpTo(ds + j, left), mean));
    StoreUpTo(hn::IfThenElseZero(visible, d), ds + j, left);
  }
}

void AddRow(const float* from, float* to, size_t n) {
  for (size_t i = 0; i < n; i += kLanes)
    StoreUpTo(hn::Add(LoadUpTo(to + i, n - i), LoadUpTo(from + i, n - i)), to + i, n - i);
}

/// Scratch of the backward, in floats from its start.
struct BackwardLayout {
  size_t sub, stride;
  size_t key_columns, value_columns, key_rows, scores, d_scores, queries, d_out, dk, dv;
  BackwardLayout(size_t m, size_t n, size_t group, size_t E) {
    sub = SubBlock(m, n);
    stride = ScoreStride(n);
    const size_t rows = group * sub;
    key_columns = 0;                                  // K^T panels [E, n]
    value_columns = key_columns + PanelFloats(E, n);  // V^T panels [E, n]
    key_rows = value_columns + PanelFloats(E, n);     // K panels [n, E]
    scores = key_rows + PanelFloats(n, E);            // P [group * sub, n]
    d_scores = scores + rows * stride;                // dS [group * sub, n]
    queries = d_scores + rows * stride;               // Q panels [group * sub, E]
    d_out = queries + PanelFloats(rows, E);           // dO panels [group * sub, E]
    dk = d_out + PanelFloats(rows, E);                // [n, E]
    dv = dk + n * E;                                  // [n, E]
  }
};

void Backward(const AttentionBlock& b, const float* o, size_t o_stride, const float* lse,
              const AttentionGradients& grad, float* scratch) {
  const size_t n = b.n, E = b.E, group = b.group;
  const BackwardLayout at(b.m, n, group, E);
  float* const p = scratch + at.scores;
  float* const ds = scratch + at.d_scores;
  const GatheredRows keys{b.k, b.k_stride, b.key_rows}, values{b.v, b.v_stride, b.key_rows};
  PackColumns(keys, E, n, {scratch + at.key_columns, E, 0, 0});
  PackColumns(values, E, n, {scratch + at.value_columns, E, 0, 0});
  PackRows(keys, n, E, {scratch + at.key_rows, n, 0, 0});
  std::fill_n(scratch + at.dk, 2 * n * E, 0.0f);
  for (size_t i0 = 0; i0 < b.m; i0 += at.sub) {
    const size_t rows = std::min(at.sub, b.m - i0);
    const KeySpan span = SpanFor(b, i0, rows);
    const size_t depth = group * rows;
    for (size_t g = 0; g < group; ++g) {
      const float* q = b.q + i0 * b.q_stride + g * E;
      const float* d_o = grad.d_o + i0 * grad.d_o_stride + g * E;
      float* p_g = p + g * rows * at.stride;
      float* ds_g = ds + g * rows * at.stride;
      GemmPanels(rows, span.some, E, q, b.q_stride, 1, scratch + at.key_columns, E, p_g, at.stride,
                 false);
      GemmPanels(rows, span.some, E, d_o, grad.d_o_stride, 1, scratch + at.value_columns, E, ds_g,
                 at.stride, false);
      for (size_t i = 0; i < rows; ++i) {
        const float delta =
            DotFloats(d_o + i * grad.d_o_stride, o + (i0 + i) * o_stride + g * E, E);
        BackwardRow(b, span, b.first_row + i0 + i, lse[(i0 + i) * group + g], delta,
                    p_g + i * at.stride, ds_g + i * at.stride);
      }
      GemmPanels(rows, E, span.some, ds_g, at.stride, 1, scratch + at.key_rows, n,
                 grad.dq + i0 * grad.dq_stride + g * E, grad.dq_stride, false);
      PackRows(StridedRows{q, b.q_stride}, rows, E, {scratch + at.queries, depth, g * rows, 0});
      PackRows(StridedRows{d_o, grad.d_o_stride}, rows, E,
               {scratch + at.d_out, depth, g * rows, 0});
    }
    GemmPanels(span.some, E, depth, ds, 1, at.stride, scratch + at.queries, depth, scratch + at.dk,
               E, true);
    GemmPanels(span.some, E, depth, p, 1, at.stride, scratch + at.d_out, depth, scratch + at.dv, E,
               true);
  }
  for (size_t j = 0; j < n; ++j) {
    const size_t row = static_cast<size_t>(b.key_rows[j]);
    AddRow(scratch + at.dk + j * E, grad.dk + row * grad.dk_stride, E);
    AddRow(scratch + at.dv + j * E, grad.dv + row * grad.dv_stride, E);
  }
}

/// An upper bound that grows with each argument, so that scratch for more keys serves fewer too.
size_t Scratch(size_t m, size_t n, size_t group, size_t E) {
  const size_t stride = ScoreStride(n);
  const size_t scores =
      std::min(m * stride, std::max(kScoreBytes / sizeof(float), kMaxRows * stride));
  const size_t rows = group * std::min(m, kSubBlockRows);
  return 2 * PanelFloats(E, n) + PanelFloats(n, E) + 2 * group * scores + 2 * PanelFloats(rows, E) +
         2 * n * E;
}

}  // namespace

void FillAttention(Kernels& table) {
  table.attention_forward = &Forward;
  table.attention_backward = &Backward;
  table.attention_scratch = &Scratch;
}

}  // namespace HWY_NAMESPACE
}  // namespace needle
HWY_AFTER_NAMESPACE();
