#include "kernels/bench_support.h"

int main(int argc, char** argv) {
  needle::bench::RegisterPeak();
  needle::bench::RegisterGemm();
  needle::bench::RegisterAttention();
  needle::bench::RegisterRowKernels();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
