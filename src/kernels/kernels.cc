#include "kernels/kernels.h"

#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/tables-inl.h"

namespace needle {
namespace HWY_NAMESPACE {

const Kernels& Table() {
  static const Kernels table = [] {
    Kernels t;
#if HWY_TARGET == HWY_AVX3
    t.isa = Isa::kAvx512;
#elif HWY_TARGET == HWY_AVX2
    t.isa = Isa::kAvx2;
#elif HWY_TARGET == HWY_NEON
    t.isa = Isa::kNeon;
#else
    t.isa = Isa::kGeneric;
#endif
    FillGemm(t);
    FillAttention(t);
    FillElementwise(t);
    FillRows(t);
    FillLanes(t);
    FillQuantise(t);
    FillPeak(t);
    return t;
  }();
  return table;
}

}  // namespace HWY_NAMESPACE
}  // namespace needle

#if HWY_ONCE
#include "kernels/int24.h"

namespace needle {
#if HWY_TARGETS & HWY_AVX3
namespace {

const Kernels& Avx512VnniTable() {
  static const Kernels table = [] {
    Kernels t = N_AVX3::Table();
    t.isa = Isa::kAvx512Vnni;
    FillInt24(t);
    return t;
  }();
  return table;
}

}  // namespace
#endif

const Kernels& KernelsFor(Isa isa) {
  switch (isa) {
#if HWY_TARGETS & HWY_AVX3
    case Isa::kAvx512:
      return N_AVX3::Table();
    case Isa::kAvx512Vnni:
      return Avx512VnniTable();
#endif
#if HWY_TARGETS & HWY_AVX2
    case Isa::kAvx2:
      return N_AVX2::Table();
#endif
#if HWY_TARGETS & HWY_NEON
    case Isa::kNeon:
      return N_NEON::Table();
#endif
    default:
      return N_SCALAR::Table();
  }
}

const Kernels& BestKernels() { return KernelsFor(BestIsa()); }

}  // namespace needle
#endif
