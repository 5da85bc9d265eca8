// Bench support: one benchmark an instruction set, random arrays, operations a second.
#pragma once

#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace needle::bench {

inline std::vector<float> Normal(size_t n, uint32_t seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(bits);
  return x;
}

/// Registers run(state, kernels) as "name/isa" for every instruction set of the machine.
template <class Run>
void Register(const std::string& name, Run run) {
  for (const Isa isa : SupportedIsas())
    benchmark::RegisterBenchmark(
        (name + "/" + std::string(Name(isa))).c_str(),
        [run, isa](benchmark::State& state) mutable { run(state, KernelsFor(isa)); });
}

inline void CountFlops(benchmark::State& state, double flops_each) {
  state.counters["FLOP/s"] = benchmark::Counter(
      flops_each * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void RegisterPeak();
void RegisterGemm();
void RegisterAttention();
void RegisterRowKernels();

}  // namespace needle::bench
