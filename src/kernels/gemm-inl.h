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

/// Rows of A times panels of B.
struct Sliver {
  size_t K;        // depth of this product
  const float* a;  // A(i, k) = a[i * a_row + k * a_k]
  size_t a_row, a_k;
  const float* b;  // panels, panel_stride floats apart
  size_t panel_stride;
  size_t N;  // columns; the last panel may be partly used
  float* c;
  size_t ldc;
  bool accumulate;
};

/// R rows times P panels, of which V vectors each are used; `width` columns are stored.
template <size_t R, size_t P, size_t V>
HWY_INLINE void Tile(const Sliver& s, const float* HWY_RESTRICT b, float* HWY_RESTRICT c,
                     size_t width) {
  TileVec sum[R][P * V];
  NEEDLE_UNROLL
  for (size_t i = 0; i < R; ++i) {
    NEEDLE_UNROLL
    for (size_t v = 0; v < P * V; ++v) sum[i][v] = TileZero();
  }
  const float* HWY_RESTRICT a = s.a;
  const size_t a_row = s.a_row, a_k = s.a_k, panel_stride = s.panel_stride;
  for (size_t k = 0; k < s.K; ++k, a += a_k, b += kPanelWidth) {
    TileVec row[P * V];
    NEEDLE_UNROLL
    for (size_t v = 0; v < P * V; ++v)
      row[v] = TileLoad(b + (v / V) * panel_stride + (v % V) * kTileLanes);
    NEEDLE_UNROLL
    for (size_t i = 0; i < R; ++i) {
      const TileVec x = TileSplat(a[i * a_row]);
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

template <size_t R>
HWY_NOINLINE void RunSliver(const Sliver& s) {
  constexpr size_t P = PanelsAtOnce(R);
  size_t n = 0;
  const float* b = s.b;
  if constexpr (P > 1) {
    for (; n + (P - 1) * kPanelWidth < s.N; n += P * kPanelWidth, b += P * s.panel_stride)
      Tile<R, P, kPanelVectors>(s, b, s.c + n, s.N - n);
  }
  for (; n < s.N; n += kPanelWidth, b += s.panel_stride) {
    if (s.N - n <= kTileLanes) {
      Tile<R, 1, 1>(s, b, s.c + n, s.N - n);
    } else {
      Tile<R, 1, kPanelVectors>(s, b, s.c + n, s.N - n);
    }
  }
}

using SliverFunction = void (*)(const Sliver&);
template <size_t... kIndex>
HWY_INLINE SliverFunction SliverFor(size_t rows, std::index_sequence<kIndex...>) {
  static constexpr SliverFunction kFunctions[] = {&RunSliver<kIndex + 1>...};
  return kFunctions[rows - 1];
}
HWY_INLINE void RunRows(size_t rows, const Sliver& s) {
  SliverFor(rows, std::make_index_sequence<kMaxRows>())(s);
}

/// Copies A(i, k), i < rows, k < K into `copy` and points the sliver at it. Rows a multiple of a
/// page apart evict each other from the cache, and so do columns of a wide matrix. `readable`: rows
/// of A from this one on.
HWY_INLINE void CopySliver(size_t rows, size_t readable, Sliver& s, float* copy) {
  if (s.a_row == 1) {  // columns of a row-major matrix: k outermost
    for (size_t k = 0; k < s.K; ++k) {
      const float* from = s.a + k * s.a_k;
      float* to = copy + k * kMaxRows;
      size_t i = 0;
      // Whole vectors where A has that many rows; what is too much is written over by the next k.
      for (; i < rows && i + kLanes <= readable; i += kLanes) Store(Load(from + i), to + i);
      for (; i < rows; ++i) to[i] = from[i];
    }
    s.a_k = kMaxRows;
  } else {
    for (size_t i = 0; i < rows; ++i) CopyFloats(s.a + i * s.a_row, copy + i * kCopyRow, s.K);
    s.a_row = kCopyRow;
  }
  s.a = copy;
}

/// C (+)= A B where the panels have panels_k rows, of which the first K are used.
inline HWY_NOINLINE void GemmPanels(size_t M, size_t N, size_t K, const float* a, size_t a_row,
                                    size_t a_k, const float* panels, size_t panels_k, float* c,
                                    size_t ldc, bool accumulate) {
  if (M == 0 || N == 0) return;
  const size_t panel_stride = panels_k * kPanelWidth;
  const size_t slivers = (M + kMaxRows - 1) / kMaxRows;
  const bool copy_a = M > 1 && ((a_row == 1 && a_k != 1) || (a_k == 1 && a_row % 1024 == 0));
  const auto first_row = [&](size_t i) { return i * M / slivers; };
  for (size_t k0 = 0; k0 == 0 || k0 < K; k0 += kKBlock) {
    const size_t depth = std::min(kKBlock, K - k0);
    const bool add = accumulate || k0 > 0;
    for (size_t p = 0; p < N && !copy_a; p += slivers == 1 ? N : kPanelWidth) {
      const size_t width = slivers == 1 ? N : std::min(kPanelWidth, N - p);
      const float* b = panels + (p / kPanelWidth) * panel_stride + k0 * kPanelWidth;
      for (size_t i = 0; i < slivers; ++i) {
        const size_t row = first_row(i);
        RunRows(first_row(i + 1) - row, {depth, a + row * a_row + k0 * a_k, a_row, a_k, b,
                                         panel_stride, width, c + row * ldc + p, ldc, add});
      }
    }
    for (size_t i = 0; i < slivers && copy_a; ++i) {
      const size_t row = first_row(i), rows = first_row(i + 1) - row;
      HWY_ALIGN float copy[kMaxRows * kCopyRow];
      Sliver s = {depth,
                  a + row * a_row + k0 * a_k,
                  a_row,
                  a_k,
                  panels + k0 * kPanelWidth,
                  panel_stride,
                  N,
                  c + row * ldc,
                  ldc,
                  add};
      CopySliver(rows, M - row, s, copy);
      RunRows(rows, s);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace needle
HWY_AFTER_NAMESPACE();
#endif
