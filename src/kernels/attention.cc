// Attention over spans of keys: forward, backward, and one query without packing.
//
// A block is a tile or two of queries: its scores stay in the second-level cache, and it sees few
// keys that it may not use. Scores that a query may not see become weight 0. Keys and values were
// packed for all blocks and heads of the group.
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
constexpr size_t kQueryBlock = 32 / kMaxRows * kMaxRows;  // whole tiles: more would see more keys

constexpr size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }
constexpr size_t PanelFloats(size_t K, size_t N) { return RoundUp(N, kPanelWidth) * K; }

/// Floats from one score row to the next: no multiple of a page.
constexpr size_t ScoreStride(size_t columns) { return columns % 256 == 0 ? columns + 16 : columns; }

/// A span of keys as it lies in a row of scores.
struct Columns {
  size_t base;       // key row of column 0: a multiple of the panel width
  size_t begin;      // first column of a key of the span
  size_t all_begin;  // columns [all_begin, all_end) are seen by every query; multiples of kLanes
  size_t all_end;
  size_t end;  // columns in use
  explicit Columns(const KeySpan& s) {
    const size_t first = static_cast<size_t>(s.begin);
    base = first / kPanelWidth * kPanelWidth;
    begin = first - base;
    all_begin = RoundUp(begin, kLanes);
    all_end = (static_cast<size_t>(s.all_end) - base) / kLanes * kLanes;
    end = static_cast<size_t>(s.end) - base;
  }
};

/// Which of up to kLanes keys from row j the query at `row` sees.
HWY_INLINE Mask Visible(const AttentionBlock& b, size_t j, size_t count, IntVec row) {
  const bool whole = count >= kLanes;
  const IntVec firsts =
      whole ? hn::LoadU(IntTag(), b.key_first + j) : LoadN(b.key_first + j, count);
  const IntVec ends = whole ? hn::LoadU(IntTag(), b.key_end + j) : LoadN(b.key_end + j, count);
  // Lanes past the count have end 0, which no row is under.
  return hn::RebindMask(VecTag(), hn::AndNot(hn::Gt(firsts, row), hn::Lt(row, ends)));
}

bool SeesAny(const AttentionBlock& b, size_t row) {
  const int32_t r = static_cast<int32_t>(row);
  for (size_t s = 0; s < b.span_count; ++s)
    for (int32_t j = b.spans[s].begin; j < b.spans[s].end; ++j)
      if (b.key_first[j] <= r && r < b.key_end[j]) return true;
  return false;
}

/// Calls all(at) for each whole vector of scores at scores[at] that the query sees, and
/// some(at, left, visible) for each of which it may see a part (`left` columns are in use).
template <class All, class Some>
HWY_INLINE void ForScores(const AttentionBlock& b, size_t row, const All& all, const Some& some) {
  const IntVec row_v = hn::Set(IntTag(), static_cast<int32_t>(row));
  for (size_t s = 0; s < b.span_count; ++s) {
    const Columns c(b.spans[s]);
    const size_t at = b.spans[s].column;
    for (size_t j = c.begin / kLanes * kLanes; j < c.end; j += kLanes) {
      if (j >= c.all_begin && j < c.all_end) {
        all(at + j);
      } else {
        some(at + j, c.end - j, Visible(b, c.base + j, c.end - j, row_v));
      }
    }
  }
}

/// scores = exp(scale * scores - max), 0 where invisible; returns their sum, and the max.
HWY_INLINE float SoftmaxRow(const AttentionBlock& b, size_t row, float* scores, float* max) {
  const Vec scale = Splat(b.scale);
  Vec largest = Splat(kMinusInfinity);
  ForScores(
      b, row, [&](size_t at) HWY_ATTR { largest = hn::Max(largest, Load(scores + at)); },
      [&](size_t at, size_t left, Mask visible) HWY_ATTR {
        const Vec score =
            hn::IfThenElse(visible, LoadUpTo(scores + at, left), Splat(kMinusInfinity));
        largest = hn::Max(largest, score);
      });
  *max = b.scale * Largest(largest);
  const Vec shift = Splat(*max);
  Vec sum = ZeroVec();
  ForScores(
      b, row,
      [&](size_t at) HWY_ATTR {
        const Vec e = Exp(hn::MulSub(scale, Load(scores + at), shift));
        Store(e, scores + at);
        sum = hn::Add(sum, e);
      },
      [&](size_t at, size_t left, Mask visible) HWY_ATTR {
        const Vec e =
            hn::IfThenElseZero(visible, Exp(hn::MulSub(scale, LoadUpTo(scores + at, left), shift)));
        StoreUpTo(e, scores + at, left);
        sum = hn::Add(sum, e);
      });
  return Sum(sum);
}

HWY_INLINE void ScaleRow(float* x, size_t n, float by) {
  const Vec factor = Splat(by);
  for (size_t i = 0; i < n; i += kLanes)
    StoreUpTo(hn::Mul(LoadUpTo(x + i, n - i), factor), x + i, n - i);
}

/// Finishes one row: lse, and what the weighted values are to be multiplied by.
HWY_INLINE float FinishRow(const AttentionBlock& b, size_t row, float max, float sum, float* lse) {
  if (max == kMinusInfinity && !SeesAny(b, row)) {
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

/// scores[h * stride + j] = q_h . k_j for n keys k_stride apart, four keys at a time.
template <size_t kHeads>
void QueryScores(const AttentionBlock& b, const float* first_key, size_t n, const float* q,
                 float* scores, size_t stride) {
  const StridedRows keys{first_key, b.k_stride};
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

/// o_h [E] = by_h * sum over keys of scores * v_j, four vectors of E at a time.
template <size_t kHeads>
void WeightedValues(const AttentionBlock& b, const float* scores, size_t stride, const float* by,
                    float* o) {
  const size_t E = b.E;
  for (size_t e = 0; e < E; e += 4 * kLanes) {
    const size_t left = E - e, whole = left / kLanes >= 4 ? 4 : (left + kLanes - 1) / kLanes;
    Vec sum[kHeads][4];
    NEEDLE_UNROLL
    for (size_t h = 0; h < kHeads; ++h) {
      NEEDLE_UNROLL
      for (size_t i = 0; i < 4; ++i) sum[h][i] = ZeroVec();
    }
    for (size_t s = 0; s < b.span_count; ++s) {
      const Columns c(b.spans[s]);
      const float* v = b.v + (c.base + c.begin) * b.v_stride + e;
      const float* weights = scores + b.spans[s].column;
      for (size_t j = c.begin; j < c.end; ++j, v += b.v_stride) {
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
void ForwardHeads(const AttentionBlock& b, size_t g, float* o, float* lse, float* scores) {
  const size_t stride = ScoreStride(b.columns);
  for (size_t s = 0; s < b.span_count; ++s) {
    const Columns c(b.spans[s]);
    QueryScores<kHeads>(b, b.k + (c.base + c.begin) * b.k_stride, c.end - c.begin, b.q + g * b.E,
                        scores + b.spans[s].column + c.begin, stride);
  }
  float by[kHeads];
  for (size_t h = 0; h < kHeads; ++h) {
    float max = 0;
    const float sum = SoftmaxRow(b, b.first_row, scores + h * stride, &max);
    by[h] = FinishRow(b, b.first_row, max, sum, lse + g + h);
  }
  WeightedValues<kHeads>(b, scores, stride, by, o + g * b.E);
}

void ForwardOne(const AttentionBlock& b, float* o, float* lse, float* scores) {
  size_t g = 0;
  for (; g + 2 <= b.group; g += 2) ForwardHeads<2>(b, g, o, lse, scores);
  for (; g < b.group; ++g) ForwardHeads<1>(b, g, o, lse, scores);
}

/// scores [m, columns] = x K^T over the panels `columns` of all rows.
void Scores(const AttentionBlock& b, const float* x, size_t x_stride, const float* columns,
            float* scores, size_t stride) {
  for (size_t s = 0; s < b.span_count; ++s) {
    const Columns c(b.spans[s]);
    const float* panels = columns + c.base * b.E;
    float* to = scores + b.spans[s].column;
    // The vectors of the first panel that hold no key of the span stay out.
    const size_t skip = c.begin / kTileLanes * kTileLanes;
    const size_t first = skip == 0 ? 0 : std::min(kPanelWidth, c.end);
    if (first > 0)
      GemmPanels(b.m, first - skip, b.E, x, x_stride, 1, panels + skip, b.E, to + skip, stride,
                 false);
    if (c.end > first)
      GemmPanels(b.m, c.end - first, b.E, x, x_stride, 1, panels + first * b.E, b.E, to + first,
                 stride, false);
  }
}

/// out [m, E] = weights times the panels `by_row` of all rows.
void WeightedRows(const AttentionBlock& b, const float* weights, size_t stride, const float* by_row,
                  float* out, size_t out_stride) {
  for (size_t s = 0; s < b.span_count; ++s) {
    const Columns c(b.spans[s]);
    GemmPanels(b.m, b.E, c.end - c.begin, weights + b.spans[s].column + c.begin, stride, 1,
               by_row + (c.base + c.begin) * kPanelWidth, b.rows, out, out_stride, s > 0);
  }
  for (size_t i = 0; i < b.m && b.span_count == 0; ++i)
    std::fill_n(out + i * out_stride, b.E, 0.0f);
}

void Forward(const AttentionBlock& b, float* o, size_t o_stride, float* lse, float* scratch) {
  if (b.m == 1) return ForwardOne(b, o, lse, scratch);
  const size_t stride = ScoreStride(b.columns);
  float *scores = scratch, *by = scores + b.m * stride;
  for (size_t g = 0; g < b.group; ++g) {
    Scores(b, b.q + g * b.E, b.q_stride, b.key_columns, scores, stride);
    for (size_t i = 0; i < b.m; ++i) {
      float max = 0;
      const float sum = SoftmaxRow(b, b.first_row + i, scores + i * stride, &max);
      by[i] = FinishRow(b, b.first_row + i, max, sum, lse + i * b.group + g);
    }
    float* out = o + g * b.E;
    WeightedRows(b, scores, stride, b.value_rows, out, o_stride);
    for (size_t i = 0; i < b.m; ++i) ScaleRow(out + i * o_stride, b.E, by[i]);
  }
}

/// p = exp(scale p - lse) where visible, 0 elsewhere, and ds = scale p (dp - delta) over dp.
HWY_INLINE void BackwardRow(const AttentionBlock& b, size_t row, float lse, float delta, float* p,
                            float* ds) {
  const Vec scale = Splat(b.scale), shift = Splat(lse), mean = Splat(delta);
  ForScores(
      b, row,
      [&](size_t at) HWY_ATTR {
        const Vec e = Exp(hn::MulSub(scale, Load(p + at), shift));
        Store(e, p + at);
        Store(hn::Mul(hn::Mul(scale, e), hn::Sub(Load(ds + at), mean)), ds + at);
      },
      [&](size_t at, size_t left, Mask visible) HWY_ATTR {
        const Vec e =
            hn::IfThenElseZero(visible, Exp(hn::MulSub(scale, LoadUpTo(p + at, left), shift)));
        StoreUpTo(e, p + at, left);
        const Vec d = hn::Mul(hn::Mul(scale, e), hn::Sub(LoadUpTo(ds + at, left), mean));
        StoreUpTo(hn::IfThenElseZero(visible, d), ds + at, left);
      });
}

/// Scratch of the backward, in floats from its start.
struct BackwardLayout {
  size_t stride, scores, d_scores, queries, d_out, end;
  BackwardLayout(size_t m, size_t score_stride, size_t group, size_t E) {
    const size_t rows = group * m;
    stride = score_stride;
    scores = 0;                              // P [group * m, columns]
    d_scores = scores + rows * stride;       // dS [group * m, columns]
    queries = d_scores + rows * stride;      // Q panels [group * m, E]
    d_out = queries + PanelFloats(rows, E);  // dO panels [group * m, E]
    end = d_out + PanelFloats(rows, E);
  }
};

/// to (row r at to + r * to_stride) += scores^T times panels [depth, E], for the keys of the spans.
void AddToKeys(const AttentionBlock& b, const float* scores, size_t stride, const float* panels,
               float* to, size_t to_stride) {
  const size_t depth = b.group * b.m;
  for (size_t s = 0; s < b.span_count; ++s) {
    const Columns c(b.spans[s]);
    GemmPanels(c.end - c.begin, b.E, depth, scores + b.spans[s].column + c.begin, 1, stride, panels,
               depth, to + (c.base + c.begin) * to_stride, to_stride, true);
  }
}

void Backward(const AttentionBlock& b, const float* o, size_t o_stride, const float* lse,
              const AttentionGradients& grad, float* scratch) {
  const size_t E = b.E, depth = b.group * b.m;
  const BackwardLayout at(b.m, ScoreStride(b.columns), b.group, E);
  for (size_t g = 0; g < b.group; ++g) {
    const float *q = b.q + g * E, *d_o = grad.d_o + g * E;
    float* p = scratch + at.scores + g * b.m * at.stride;
    float* ds = scratch + at.d_scores + g * b.m * at.stride;
    Scores(b, q, b.q_stride, b.key_columns, p, at.stride);
    Scores(b, d_o, grad.d_o_stride, b.value_columns, ds, at.stride);
    for (size_t i = 0; i < b.m; ++i) {
      const float delta = DotFloats(d_o + i * grad.d_o_stride, o + i * o_stride + g * E, E);
      BackwardRow(b, b.first_row + i, lse[i * b.group + g], delta, p + i * at.stride,
                  ds + i * at.stride);
    }
    WeightedRows(b, ds, at.stride, b.key_rows, grad.dq + g * E, grad.dq_stride);
    PackRows(StridedRows{q, b.q_stride}, b.m, E, {scratch + at.queries, depth, g * b.m, 0});
    PackRows(StridedRows{d_o, grad.d_o_stride}, b.m, E, {scratch + at.d_out, depth, g * b.m, 0});
  }
  AddToKeys(b, scratch + at.d_scores, at.stride, scratch + at.queries, grad.dk, grad.dk_stride);
  AddToKeys(b, scratch + at.scores, at.stride, scratch + at.d_out, grad.dv, grad.dv_stride);
}

size_t Scratch(size_t m, size_t columns, size_t group, size_t E) {
  return BackwardLayout(m, columns + 16, group, E).end + m;  // at least the stride, and growing
}

}  // namespace

void FillAttention(Kernels& table) {
  table.attention_forward = &Forward;
  table.attention_backward = &Backward;
  table.attention_scratch = &Scratch;
  table.query_block = kQueryBlock;
}

}  // namespace HWY_NAMESPACE
}  // namespace needle
HWY_AFTER_NAMESPACE();
