// The multiply-add peak of the machine, by which the other numbers are read: independent chains in
// registers, as many as keep every unit busy (check in the disassembly that none is spilled).
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/peak.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/simd-inl.h"
#include "kernels/tables-inl.h"

HWY_BEFORE_NAMESPACE();
namespace needle {
namespace HWY_NAMESPACE {
namespace {

constexpr size_t kChains = 12;

HWY_NOINLINE double MultiplyAdds(size_t rounds, float* value) {
  const Vec x = Splat(*value), y = Splat(*value * 0.5f);
  Vec sum[kChains];
  NEEDLE_UNROLL
  for (size_t i = 0; i < kChains; ++i) sum[i] = Splat(static_cast<float>(i) * *value);
  for (size_t r = 0; r < rounds; ++r) {
    NEEDLE_UNROLL
    for (size_t i = 0; i < kChains; ++i) sum[i] = hn::MulAdd(x, y, sum[i]);
  }
  Vec all = sum[0];
  NEEDLE_UNROLL
  for (size_t i = 1; i < kChains; ++i) all = hn::Add(all, sum[i]);
  *value = Sum(all);
  return 2.0 * static_cast<double>(kChains * kLanes * rounds);
}

}  // namespace

void FillPeak(Kernels& table) { table.multiply_adds = &MultiplyAdds; }

}  // namespace HWY_NAMESPACE
}  // namespace needle
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <chrono>
#include <vector>

#include "kernels/peak.h"

namespace needle {

double MeasuredPeak(const Kernels& kernels, ThreadPool& pool) {
  using Clock = std::chrono::steady_clock;
  constexpr size_t kRounds = 2000000;
  const auto threads = static_cast<size_t>(pool.threads());
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::vector<double> flop(threads);
    const auto begin = Clock::now();
    pool.Run(threads, [&](size_t task, int) {
      float value = 1e-3f;
      flop[task] = kernels.multiply_adds(kRounds, &value);
    });
    double total = 0;
    for (const double f : flop) total += f;
    best = std::max(best, total / std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

}  // namespace needle
#endif
