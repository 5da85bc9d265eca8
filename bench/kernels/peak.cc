// The multiply-add peak of the machine, by which the other numbers are read: 16 independent chains
// in registers (check in the disassembly that none is spilled).
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/peak.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace needle {
namespace HWY_NAMESPACE {

/// 2 * 12 * lanes * rounds operations.
HWY_NOINLINE float MultiplyAdds(size_t rounds, float start) {
  const Vec x = Splat(start), y = Splat(start * 0.5f);
  Vec sum[12];
  NEEDLE_UNROLL
  for (size_t i = 0; i < 12; ++i) sum[i] = Splat(static_cast<float>(i) * start);
  for (size_t r = 0; r < rounds; ++r) {
    NEEDLE_UNROLL
    for (size_t i = 0; i < 12; ++i) sum[i] = hn::MulAdd(x, y, sum[i]);
  }
  Vec all = sum[0];
  NEEDLE_UNROLL
  for (size_t i = 1; i < 12; ++i) all = hn::Add(all, sum[i]);
  return Sum(all);
}

size_t Lanes() { return kLanes; }

}  // namespace HWY_NAMESPACE
}  // namespace needle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/bench_support.h"

namespace needle::bench {
namespace {

void Peak(benchmark::State& state, float (*run)(size_t, float), size_t lanes) {
  constexpr size_t kRounds = 100000;
  float start = 1e-3f;
  for (auto _ : state) {
    benchmark::DoNotOptimize(start);
    benchmark::DoNotOptimize(run(kRounds, start));
  }
  CountFlops(state, 24.0 * static_cast<double>(lanes * kRounds));
}

}  // namespace

void RegisterPeak() {
  Register("peak", [](benchmark::State& state, const Kernels& k) {
    switch (k.isa) {
#if HWY_TARGETS & HWY_AVX3
      case Isa::kAvx512:
        return Peak(state, &N_AVX3::MultiplyAdds, N_AVX3::Lanes());
#endif
#if HWY_TARGETS & HWY_AVX2
      case Isa::kAvx2:
        return Peak(state, &N_AVX2::MultiplyAdds, N_AVX2::Lanes());
#endif
#if HWY_TARGETS & HWY_NEON
      case Isa::kNeon:
        return Peak(state, &N_NEON::MultiplyAdds, N_NEON::Lanes());
#endif
      default:
        return Peak(state, &N_SCALAR::MultiplyAdds, N_SCALAR::Lanes());
    }
  });
}

}  // namespace needle::bench
#endif
