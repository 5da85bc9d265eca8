// Table entries of the packed GEMM, one set a target.
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/gemm-inl.h"
#include "kernels/pack-inl.h"
#include "kernels/tables-inl.h"

HWY_BEFORE_NAMESPACE();
namespace needle {
namespace HWY_NAMESPACE {
namespace {

void Pack(const float* b, size_t stride_k, size_t stride_n, size_t K, size_t N, float* panels,
          size_t panels_k, size_t k0, size_t n0) {
  PackStrided(b, stride_k, stride_n, K, N, {panels, panels_k, k0, n0});
}

void Gemm(size_t M, size_t N, size_t K, const float* a, size_t a_row_stride, size_t a_k_stride,
          const float* panels, float* c, size_t ldc, bool accumulate) {
  GemmPanels(M, N, K, a, a_row_stride, a_k_stride, panels, K, c, ldc, accumulate);
}

void GemmTn(size_t M, size_t N, size_t T, const float* a, size_t lda, const float* b, size_t ldb,
            float* c, size_t ldc, float* scratch) {
  // Few rows of C read B once or twice: then packing it would cost as much as the product.
  if (M <= 2 * kMaxRows && N % kPanelWidth == 0)
    return GemmOver(M, N, T, a, 1, lda, {b, kPanelWidth, ldb}, c, ldc, true);
  PackRows(StridedRows{b, ldb}, T, N, {scratch, T, 0, 0});
  GemmPanels(M, N, T, a, 1, lda, scratch, T, c, ldc, true);
}

}  // namespace

void FillGemm(Kernels& table) {
  table.panel_width = kPanelWidth;
  table.pack = &Pack;
  table.gemm = &Gemm;
  table.gemm_tn = &GemmTn;
}

}  // namespace HWY_NAMESPACE
}  // namespace needle
HWY_AFTER_NAMESPACE();
