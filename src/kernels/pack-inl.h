// Packing of a matrix into the panels of gemm-inl.h, from rows or from columns in memory.
#if defined(NEEDLE_KERNELS_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NEEDLE_KERNELS_PACK_INL_H_
#undef NEEDLE_KERNELS_PACK_INL_H_
#else
#define NEEDLE_KERNELS_PACK_INL_H_
#endif

#include <algorithm>

#include "kernels/gemm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace needle {
namespace HWY_NAMESPACE {

/// Where packing puts B: rows from k0, columns from n0, of panels with panels_k rows.
struct PanelPlace {
  float* panels;
  size_t panels_k, k0, n0;

  /// Address of B(k, n).
  float* At(size_t k, size_t n) const {
    const size_t column = n0 + n;
    return panels + (column / kPanelWidth) * panels_k * kPanelWidth + (k0 + k) * kPanelWidth +
           column % kPanelWidth;
  }
  /// How many columns from n, at most N - n, share the panel of column n.
  size_t Run(size_t n, size_t N) const {
    return std::min(N - n, kPanelWidth - (n0 + n) % kPanelWidth);
  }
};

/// Rows a fixed distance apart.
struct StridedRows {
  const float* base;
  size_t stride;
  const float* operator()(size_t r) const { return base + r * stride; }
};

/// B(k, n) = rows(k)[n]
template <class Rows>
HWY_NOINLINE void PackRows(const Rows rows, size_t K, size_t N, const PanelPlace place) {
  for (size_t n = 0, run = 0; n < N; n += run) {
    run = place.Run(n, N);
    float* to = place.At(0, n);
    if (run == kPanelWidth) {
      for (size_t k = 0; k < K; ++k, to += kPanelWidth) {
        const float* from = rows(k) + n;
        NEEDLE_UNROLL
        for (size_t v = 0; v < kPanelWidth; v += kLanes) Store(Load(from + v), to + v);
      }
    } else {
      for (size_t k = 0; k < K; ++k, to += kPanelWidth) CopyFloats(rows(k) + n, to, run);
    }
  }
}

#if HWY_TARGET == HWY_SCALAR
inline constexpr size_t kColumnsAtOnce = 4;
#else
using PackTag = hn::CappedTag<float, 8>;  // as many columns as there are registers for addresses
inline constexpr size_t kColumnsAtOnce = hn::MaxLanes(PackTag());

/// Four floats from k of each fourth of the columns, one after the other.
template <class D>
HWY_INLINE hn::VFromD<D> LoadFourths(D d, const float* const* columns, size_t k) {
  constexpr size_t kBlocks = hn::MaxLanes(D()) / 4;
  if constexpr (kBlocks == 1) {
    return hn::LoadU(d, columns[0] + k);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadFourths(half, columns + kBlocks / 2 * 4, k),
                       LoadFourths(half, columns, k));
  }
}
#endif

/// B(k, n) = columns(n)[k], for kColumnsAtOnce columns of one panel, from k to K.
template <class Rows>
HWY_INLINE void PackSomeColumns(const Rows& columns, size_t n, size_t k, size_t K, float* to) {
  const float* from[kColumnsAtOnce];
  for (size_t i = 0; i < kColumnsAtOnce; ++i) from[i] = columns(n + i);
#if HWY_TARGET != HWY_SCALAR
  // Squares of 4 x 4 are transposed side by side.
  const PackTag d;
  const hn::Repartition<double, PackTag> pairs;
  for (; k + 4 <= K; k += 4, to += 4 * kPanelWidth) {
    const auto x0 = LoadFourths(d, from, k), x1 = LoadFourths(d, from + 1, k);
    const auto x2 = LoadFourths(d, from + 2, k), x3 = LoadFourths(d, from + 3, k);
    const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, x0, x1));
    const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, x2, x3));
    const auto up01 = hn::BitCast(pairs, hn::InterleaveUpper(d, x0, x1));
    const auto up23 = hn::BitCast(pairs, hn::InterleaveUpper(d, x2, x3));
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, to);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, to + kPanelWidth);
    hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, up01, up23)), d, to + 2 * kPanelWidth);
    hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, up01, up23)), d, to + 3 * kPanelWidth);
  }
#endif
  for (; k < K; ++k, to += kPanelWidth)
    for (size_t i = 0; i < kColumnsAtOnce; ++i) to[i] = from[i][k];
}

inline constexpr size_t kPackDepth = 128;  // rows of a panel that the first-level cache keeps

/// B(k, n) = columns(n)[k]
template <class Rows>
HWY_NOINLINE void PackColumns(const Rows columns, size_t K, size_t N, const PanelPlace place) {
  for (size_t n = 0, run = 0; n < N; n += run) {
    run = place.Run(n, N);
    // A part of the panel at a time, until all its columns are there.
    for (size_t k = 0; k < K; k += kPackDepth) {
      const size_t end = std::min(K, k + kPackDepth);
      size_t i = 0;
      for (; i + kColumnsAtOnce <= run; i += kColumnsAtOnce)
        PackSomeColumns(columns, n + i, k, end, place.At(k, n + i));
      for (; i < run; ++i) {
        const float* from = columns(n + i);
        float* to = place.At(k, n + i);
        for (size_t at = k; at < end; ++at, to += kPanelWidth) *to = from[at];
      }
    }
  }
}

/// B(k, n) = b[k * stride_k + n * stride_n]
HWY_INLINE void PackStrided(const float* b, size_t stride_k, size_t stride_n, size_t K, size_t N,
                            const PanelPlace& place) {
  if (stride_n == 1) return PackRows(StridedRows{b, stride_k}, K, N, place);
  if (stride_k == 1) return PackColumns(StridedRows{b, stride_n}, K, N, place);
  for (size_t n = 0; n < N; ++n) {
    float* to = place.At(0, n);
    for (size_t k = 0; k < K; ++k) to[k * kPanelWidth] = b[k * stride_k + n * stride_n];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace needle
HWY_AFTER_NAMESPACE();
#endif
