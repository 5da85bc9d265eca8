// GEMM over packed panels, compiled once for each target; see kernels.h for what it computes.
//
// A tile is kMaxRows x kPanelWidth results held in registers. Each result is one chain of
// multiply-adds over k (in blocks of kKBlock), so it does not depend on the shape of the tile, on
// the other rows of the block, or on where a panel starts.
#if defined(NEEDLE_KERNELS_GEMM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NEEDLE_KERNELS_GEMM_INL_H_
#undef NEEDLE_KERNELS_GEMM_INL_H_
#else
#define NEEDLE_KERNELS_GEMM_INL_H_
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <utility>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace needle {
namespace HWY_NAMESPACE {

// Registers: rows x vectors accumulators, one vector of B a panel vector, one broadcast of A.
#if HWY_TARGET == HWY_AVX3
inline constexpr size_t kMaxRows = 14, kPanelVectors = 2, kAccumulators = 28;
#elif HWY_TARGET == HWY_AVX2
inline constexpr size_t kMaxRows = 6, kPanelVectors = 2, kAccumulators = 12;
#elif HWY_TARGET == HWY_NEON
inline constexpr size_t kMaxRows = 6, kPanelVectors = 4, kAccumulators = 24;
#else
inline constexpr size_t kMaxRows = 6, kPanelVectors = 2, kAccumulators = 12;
#endif

// The vectors of a tile. Highway's plain target has one lane, but every compiler that we support
// knows vectors of four, which the baseline of x86-64 and ARM64 has in hardware.
#if HWY_TARGET == HWY_SCALAR
typedef float TileVec __attribute__((vector_size(16)));
typedef float TileVecUnaligned __attribute__((vector_size(16), aligned(4), may_alias));
inline constexpr size_t kTileLanes = 4;
HWY_INLINE TileVec TileZero() { return TileVec{0, 0, 0, 0}; }
HWY_INLINE TileVec TileSplat(float x) { return TileVec{x, x, x, x}; }
HWY_INLINE TileVec TileLoad(const float* p) {
  return *reinterpret_cast<const TileVecUnaligned*>(p);
}
HWY_INLINE void TileStore(TileVec v, float* p) { *reinterpret_cast<TileVecUnaligned*>(p) = v; }
HWY_INLINE TileVec TileAdd(TileVec a, TileVec b) { return a + b; }
HWY_INLINE TileVec TileMulAdd(TileVec a, TileVec b, TileVec c) { return a * b + c; }
HWY_INLINE TileVec TileLoadN(const float* p, size_t n) {
  float lanes[kTileLanes] = {};
  for (size_t i = 0; i < n; ++i) lanes[i] = p[i];
  return TileLoad(lanes);
}
HWY_INLINE void TileStoreN(TileVec v, float* p, size_t n) {
  float lanes[kTileLanes];
  TileStore(v, lanes);
  for (size_t i = 0; i < n; ++i) p[i] = lanes[i];
}
#else
using TileVec = Vec;
inline constexpr size_t kTileLanes = kLanes;
HWY_INLINE TileVec TileZero() { return ZeroVec(); }
HWY_INLINE TileVec TileSplat(float x) { return Splat(x); }
HWY_INLINE TileVec TileLoad(const float* p) { return Load(p); }
HWY_INLINE void TileStore(TileVec v, float* p) { Store(v, p); }
HWY_INLINE TileVec TileAdd(TileVec a, TileVec b) { return hn::Add(a, b); }
HWY_INLINE TileVec TileMulAdd(TileVec a, TileVec b, TileVec c) { return hn::MulAdd(a, b, c); }
HWY_INLINE TileVec TileLoadN(const float* p, size_t n) { return LoadN(p, n); }
HWY_INLINE void TileStoreN(TileVec v, float* p, size_t n) { StoreN(v, p, n); }
#endif
inline constexpr size_t kPanelWidth = kPanelVectors * kTileLanes;
inline constexpr size_t kKBlock = 512;
inline constexpr size_t kCopyRow = kKBlock + 16;  // a row of A, copied: not a multiple of a page
inline constexpr size_t kCacheLineFloats = 16;
inline constexpr size_t kCopies = 4;         // slivers of A copied at once
inline constexpr size_t kPrefetchRows = 32;  // rows of a panel from the one in use to the one
                                             // that is asked for

/// Rows of A times panels of B.
struct Sliver {
  size_t K;        // depth of this product
  const float* a;  // A(i, k) = a[i * row + k * step]: see enum A
  size_t a_row;
  const float* b;  // panels, panel_stride floats apart, their rows b_step apart
  size_t panel_stride, b_step;
  size_t N;  // columns; the last panel may be partly used
  float* c;
  size_t ldc;
  bool accumulate;
  // Where the panel after this one lies, of which this product asks for a part: K lines, each
  // ahead_bytes further.
  const char* ahead = nullptr;
  size_t ahead_bytes = 0;
};

/// How A lies in memory. Strides that the compiler knows keep address arithmetic out of the loop.
enum class A {
  kInPlace,  // step 1, rows a_row apart
  kRows,     // step 1, rows kCopyRow apart
  kColumns,  // step kMaxRows, rows 1 apart
};

/// R rows times P panels, of which V vectors each are used; `width` columns are stored.
template <A kA, size_t R, size_t P, size_t V>
HWY_INLINE void Tile(const Sliver& s, const float* HWY_RESTRICT b, float* HWY_RESTRICT c,
                     size_t width) {
  TileVec sum[R][P * V];
  NEEDLE_UNROLL
  for (size_t i = 0; i < R; ++i) {
    NEEDLE_UNROLL
    for (size_t v = 0; v < P * V; ++v) sum[i][v] = TileZero();
  }
  const float* HWY_RESTRICT a = s.a;
  constexpr size_t kStep = kA == A::kColumns ? kMaxRows : 1;
  const size_t row_stride = kA == A::kInPlace ? s.a_row : kA == A::kRows ? kCopyRow : 1;
  const size_t panel_stride = s.panel_stride, b_step = s.b_step;
  const char* ahead = s.ahead;
  for (size_t k = 0; k < s.K; ++k, a += kStep, b += b_step) {
    if constexpr (P == 1 && V == kPanelVectors) {
      // A panel does not fit the first-level cache, and the hardware looks ahead too little. The
      // next panel comes from further away: all slivers together ask for it in time.
      for (size_t i = 0; i < kPanelWidth; i += kCacheLineFloats)
        hwy::Prefetch(b + kPrefetchRows * b_step + i);
      __builtin_prefetch(ahead, 0, 2);
      ahead += s.ahead_bytes;
    }
    TileVec row[P * V];
    NEEDLE_UNROLL
    for (size_t v = 0; v < P * V; ++v)
      row[v] = TileLoad(b + (v / V) * panel_stride + (v % V) * kTileLanes);
    NEEDLE_UNROLL
    for (size_t i = 0; i < R; ++i) {
      const TileVec x = TileSplat(a[i * row_stride]);
      NEEDLE_UNROLL
      for (size_t v = 0; v < P * V; ++v) sum[i][v] = TileMulAdd(x, row[v], sum[i][v]);
    }
  }
  NEEDLE_UNROLL
  for (size_t v = 0; v < P * V; ++v) {
    const size_t column = (v / V) * kPanelWidth + (v % V) * kTileLanes;
    if (column + kTileLanes <= width) {
      NEEDLE_UNROLL
      for (size_t i = 0; i < R; ++i) {
        float* at = c + i * s.ldc + column;
        TileStore(s.accumulate ? TileAdd(TileLoad(at), sum[i][v]) : sum[i][v], at);
      }
    } else if (column < width) {
      const size_t left = width - column;
      NEEDLE_UNROLL
      for (size_t i = 0; i < R; ++i) {
        float* at = c + i * s.ldc + column;
        TileStoreN(s.accumulate ? TileAdd(TileLoadN(at, left), sum[i][v]) : sum[i][v], at, left);
      }
    }
  }
}

/// Panels that R rows take at once, so that few rows still keep many multiply-adds in flight.
constexpr size_t PanelsAtOnce(size_t rows) {
  const size_t panels = kAccumulators / (rows * kPanelVectors);
  return panels >= 4 ? 4 : panels >= 2 ? 2 : 1;
}

template <A kA, size_t R>
HWY_NOINLINE void RunSliver(const Sliver& s) {
  constexpr size_t P = PanelsAtOnce(R);
  size_t n = 0;
  const float* b = s.b;
  if constexpr (P > 1) {
    for (; n + (P - 1) * kPanelWidth < s.N; n += P * kPanelWidth, b += P * s.panel_stride)
      Tile<kA, R, P, kPanelVectors>(s, b, s.c + n, s.N - n);
  }
  for (; n < s.N; n += kPanelWidth, b += s.panel_stride) {
    if (s.N - n <= kTileLanes) {
      Tile<kA, R, 1, 1>(s, b, s.c + n, s.N - n);
    } else {
      Tile<kA, R, 1, kPanelVectors>(s, b, s.c + n, s.N - n);
    }
  }
}

template <A kA, size_t... kIndex>
HWY_INLINE void RunRows(size_t rows, const Sliver& s, std::index_sequence<kIndex...>) {
  static constexpr void (*kFunctions[])(const Sliver&) = {&RunSliver<kA, kIndex + 1>...};
  kFunctions[rows - 1](s);
}
template <A kA>
HWY_INLINE void RunRows(size_t rows, const Sliver& s) {
  RunRows<kA>(rows, s, std::make_index_sequence<kMaxRows>());
}

/// Copies A(i, k) = a[i * a_row + k * a_k], i < rows, k < K. `readable`: rows of A from this one
/// on.
template <A kA>
HWY_INLINE void CopyRows(size_t rows, size_t readable, size_t K, const float* a, size_t a_row,
                         size_t a_k, float* copy) {
  if constexpr (kA == A::kRows) {
    for (size_t i = 0; i < rows; ++i) CopyFloats(a + i * a_row, copy + i * kCopyRow, K);
    return;
  }
  for (size_t k = 0; k < K; ++k) {
    const float* from = a + k * a_k;
    float* to = copy + k * kMaxRows;
    size_t i = 0;
    // Whole vectors where A has that many rows; what is too much is written over by the next k.
    if (a_row == 1)
      for (; i < rows && i + kLanes <= readable; i += kLanes) Store(Load(from + i), to + i);
    for (; i < rows; ++i) to[i] = from[i * a_row];
  }
}

/// Equal slivers of at most kMaxRows rows.
struct Slivers {
  size_t M, count;
  explicit Slivers(size_t rows) : M(rows), count((rows + kMaxRows - 1) / kMaxRows) {}
  size_t First(size_t i) const { return i * M / count; }
  size_t Rows(size_t i) const { return First(i + 1) - First(i); }
};

/// C (+)= A B, at most kKBlock deep, with slivers of A copied so that all that a tile reads lies in
/// a row. (Rows a multiple of a page apart evict each other, and so do columns of a wide matrix.)
/// Each panel serves all copies while it is in the second-level cache.
template <A kA>
HWY_NOINLINE void GemmCopied(size_t M, Sliver s, size_t a_k) {
  const Slivers slivers(M);
  const float* const a = s.a;
  const size_t a_row = s.a_row, groups = (slivers.count + kCopies - 1) / kCopies;
  HWY_ALIGN float copy[kCopies][kMaxRows * kCopyRow];
  for (size_t g = 0; g < groups; ++g) {
    const size_t begin = g * slivers.count / groups, end = (g + 1) * slivers.count / groups;
    for (size_t i = begin; i < end; ++i)
      CopyRows<kA>(slivers.Rows(i), M - slivers.First(i), s.K, a + slivers.First(i) * a_row, a_row,
                   a_k, copy[i - begin]);
    const size_t columns = end - begin == 1 ? s.N : kPanelWidth;
    const size_t ahead_bytes = s.b_step * sizeof(float) / (end - begin);
    for (size_t n = 0; n < s.N; n += columns) {
      const float* b = s.b + n / kPanelWidth * s.panel_stride;
      const float* next = n + columns < s.N ? b + s.panel_stride : s.b;
      for (size_t i = begin; i < end; ++i)
        RunRows<kA>(
            slivers.Rows(i),
            {s.K, copy[i - begin], 0, b, s.panel_stride, s.b_step, std::min(columns, s.N - n),
             s.c + slivers.First(i) * s.ldc + n, s.ldc, s.accumulate,
             reinterpret_cast<const char*>(next) + (i - begin) * s.K * ahead_bytes, ahead_bytes});
    }
  }
}

/// The same without copies: for products so narrow that a copy would be read once or twice.
inline HWY_NOINLINE void GemmInPlace(size_t M, Sliver s) {
  const Slivers slivers(M);
  const float* const a = s.a;
  float* const c = s.c;
  for (size_t i = 0; i < slivers.count; ++i) {
    s.a = a + slivers.First(i) * s.a_row;
    s.c = c + slivers.First(i) * s.ldc;
    RunRows<A::kInPlace>(slivers.Rows(i), s);
  }
}

/// B as panels, or as it lies in memory: then N is a multiple of kPanelWidth.
struct PanelsOf {
  const float* b;
  size_t panel_stride, b_step;
};

/// C (+)= A B
inline HWY_NOINLINE void GemmOver(size_t M, size_t N, size_t K, const float* a, size_t a_row,
                                  size_t a_k, const PanelsOf& panels, float* c, size_t ldc,
                                  bool accumulate) {
  if (M == 0 || N == 0) return;
  const bool in_place = a_k == 1 && (M == 1 || (N <= 2 * kPanelWidth && a_row % 1024 != 0));
  for (size_t k0 = 0; k0 == 0 || k0 < K; k0 += kKBlock) {
    const Sliver s = {std::min(kKBlock, K - k0),
                      a + k0 * a_k,
                      a_row,
                      panels.b + k0 * panels.b_step,
                      panels.panel_stride,
                      panels.b_step,
                      N,
                      c,
                      ldc,
                      accumulate || k0 > 0};
    if (in_place) {
      GemmInPlace(M, s);
    } else if (a_k == 1) {
      GemmCopied<A::kRows>(M, s, a_k);
    } else {
      GemmCopied<A::kColumns>(M, s, a_k);
    }
  }
}

/// C (+)= A B where the panels have panels_k rows, of which the first K are used.
inline void GemmPanels(size_t M, size_t N, size_t K, const float* a, size_t a_row, size_t a_k,
                       const float* panels, size_t panels_k, float* c, size_t ldc,
                       bool accumulate) {
  GemmOver(M, N, K, a, a_row, a_k, {panels, panels_k * kPanelWidth, kPanelWidth}, c, ldc,
           accumulate);
}

}  // namespace HWY_NAMESPACE
}  // namespace needle
HWY_AFTER_NAMESPACE();
#endif
