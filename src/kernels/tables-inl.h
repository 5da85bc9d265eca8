// Each group of kernels fills its entries of the table, once for each target.
// Included inside HWY_TARGET_INCLUDE files, after Highway: declares for the current target.
#if defined(NEEDLE_KERNELS_TABLES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NEEDLE_KERNELS_TABLES_INL_H_
#undef NEEDLE_KERNELS_TABLES_INL_H_
#else
#define NEEDLE_KERNELS_TABLES_INL_H_
#endif

#include "kernels/kernels.h"

namespace needle {
namespace HWY_NAMESPACE {

void FillGemm(Kernels& table);
void FillAttention(Kernels& table);
void FillElementwise(Kernels& table);
void FillRows(Kernels& table);
void FillLanes(Kernels& table);
void FillQuantise(Kernels& table);
void FillPeak(Kernels& table);

const Kernels& Table();

}  // namespace HWY_NAMESPACE
}  // namespace needle
#endif
