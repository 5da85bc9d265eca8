#include "kernels/bench_support.h"

namespace needle::bench {

void RegisterPeak() {
  Register("peak", [](benchmark::State& state, const Kernels& k) {
    constexpr size_t kRounds = 100000;
    float value = 1e-3f;
    double flop = 0;
    for (auto _ : state) {
      benchmark::DoNotOptimize(value);
      flop = k.multiply_adds(kRounds, &value);
      value = 1e-3f;
    }
    CountFlops(state, flop);
  });
}

}  // namespace needle::bench
