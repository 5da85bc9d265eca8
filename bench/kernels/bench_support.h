// Bench support: one benchmark an instruction set, random arrays, operations a second.
#pragma once

#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "base/array_memory.h"
#include "kernels/kernels.h"

namespace needle::bench {

/// Allocates as the executor's buffers do, so that streams meet the same pages.
template <class T>
struct ArrayAllocator {
  using value_type = T;
  ArrayAllocator() = default;
  template <class U>
  explicit ArrayAllocator(const ArrayAllocator<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(AllocateArray(n * sizeof(T))); }
  void deallocate(T* p, size_t n) { FreeArray(p, n * sizeof(T)); }
  bool operator==(const ArrayAllocator&) const { return true; }
  bool operator!=(const ArrayAllocator&) const { return false; }
};
template <class T>
using Array = std::vector<T, ArrayAllocator<T>>;

inline std::vector<float> Normal(size_t n, uint32_t seed) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(bits);
  return x;
}

/// Registers run(state, kernels) as "name/isa" for every instruction set of the machine of which
/// has(kernels).
template <class Run, class Has>
void Register(const std::string& name, Run run, Has has) {
  for (const Isa isa : SupportedIsas())
    if (has(KernelsFor(isa)))
      benchmark::RegisterBenchmark(
          (name + "/" + std::string(Name(isa))).c_str(),
          [run, isa](benchmark::State& state) mutable { run(state, KernelsFor(isa)); });
}
template <class Run>
void Register(const std::string& name, Run run) {
  Register(name, run, [](const Kernels&) { return true; });
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
