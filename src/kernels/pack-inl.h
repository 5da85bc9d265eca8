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

/// B(k, n) = columns(n)[k], for 4 columns of one panel.
template <class Rows>
HWY_INLINE void PackFourColumns(const Rows& columns, size_t n, size_t K, float* to) {
  const float *c0 = columns(n), *c1 = columns(n + 1), *c2 = columns(n + 2), *c3 = columns(n + 3);
  size_t k = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::CappedTag<float, 4> d;
  for (; k + 4 <= K; k += 4, to += 4 * kPanelWidth) {
    const auto x0 = hn::LoadU(d, c0 + k), x1 = hn::LoadU(d, c1 + k);
    const auto x2 = hn::LoadU(d, c2 + k), x3 = hn::LoadU(d, c3 + k);
    const auto low01 = hn::InterleaveLower(d, x0, x1), low23 = hn::InterleaveLower(d, x2, x3);
    const auto up01 = hn::InterleaveUpper(d, x0, x1), up23 = hn::InterleaveUpper(d, x2, x3);
    hn::StoreU(hn::ConcatLowerLower(d, low23, low01), d, to);
    hn::StoreU(hn::ConcatUpperUpper(d, low23, low01), d, to + kPanelWidth);
    hn::StoreU(hn::ConcatLowerLower(d, up23, up01), d, to + 2 * kPanelWidth);
    hn::StoreU(hn::ConcatUpperUpper(d, up23, up01), d, to + 3 * kPanelWidth);
  }
#endif
  for (; k < K; ++k, to += kPanelWidth) {
    to[0] = c0[k];
    to[1] = c1[k];
    to[2] = c2[k];
    to[3] = c3[k];
  }
}

/// B(k, n) = columns(n)[k]
template <class Rows>
HWY_NOINLINE void PackColumns(const Rows columns, size_t K, size_t N, const PanelPlace place) {
  for (size_t n = 0; n < N;) {
    if (place.Run(n, N) >= 4) {
      PackFourColumns(columns, n, K, place.At(0, n));
      n += 4;
    } else {
      const float* from = columns(n);
      float* to = place.At(0, n);
      for (size_t k = 0; k < K; ++k) to[k * kPanelWidth] = from[k];
      ++n;
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
