#include "kernels/bench_support.h"

namespace needle::bench {
namespace {

void Gemm(benchmark::State& state, const Kernels& k, size_t M, size_t N, size_t K) {
  const auto a = Normal(M * K, 1), b = Normal(K * N, 2);
  std::vector<float> panels(k.PackedSize(K, N)), c(M * N);
  k.PackB(b.data(), N, 1, K, N, panels.data());
  for (auto _ : state) {
    k.gemm(M, N, K, a.data(), K, 1, panels.data(), c.data(), N, false);
    benchmark::ClobberMemory();
  }
  CountFlops(state, 2.0 * static_cast<double>(M * N * K));
}

void GemmTn(benchmark::State& state, const Kernels& k, size_t M, size_t N, size_t T) {
  const auto a = Normal(T * M, 1), b = Normal(T * N, 2);
  std::vector<float> scratch(k.PackedSize(T, N)), c(M * N);
  for (auto _ : state) {
    k.gemm_tn(M, N, T, a.data(), M, b.data(), N, c.data(), N, scratch.data());
    benchmark::ClobberMemory();
  }
  CountFlops(state, 2.0 * static_cast<double>(M * N * T));
}

void Pack(benchmark::State& state, const Kernels& k, bool by_rows) {
  const size_t K = 512, N = 1536;
  const auto b = Normal(K * N, 2);
  std::vector<float> panels(k.PackedSize(K, N));
  for (auto _ : state) {
    k.PackB(b.data(), by_rows ? N : 1, by_rows ? 1 : K, K, N, panels.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(K * N * sizeof(float)));
}

}  // namespace

void RegisterGemm() {
  const size_t shapes[][3] = {{84, 1536, 512}, {84, 1600, 512}, {84, 512, 1536}, {84, 512, 512},
                              {84, 8192, 512}, {84, 512, 8192}, {84, 24, 2048},  {84, 2048, 24},
                              {84, 16, 512},   {84, 512, 16},   {84, 64, 512},   {1, 1536, 512},
                              {4, 1536, 512}};
  for (const auto& s : shapes)
    Register(
        "gemm/" + std::to_string(s[0]) + "x" + std::to_string(s[1]) + "x" + std::to_string(s[2]),
        [s = std::vector<size_t>(s, s + 3)](benchmark::State& state, const Kernels& k) {
          Gemm(state, k, s[0], s[1], s[2]);
        });
  const size_t weights[][3] = {
      {512, 16, 84}, {512, 64, 84}, {512, 1536, 84}, {2048, 24, 84}, {512, 16, 512}};
  for (const auto& s : weights)
    Register(
        "gemm_tn/" + std::to_string(s[0]) + "x" + std::to_string(s[1]) + "x" + std::to_string(s[2]),
        [s = std::vector<size_t>(s, s + 3)](benchmark::State& state, const Kernels& k) {
          GemmTn(state, k, s[0], s[1], s[2]);
        });
  for (const bool by_rows : {true, false})
    Register(by_rows ? "pack/rows" : "pack/columns",
             [by_rows](benchmark::State& state, const Kernels& k) { Pack(state, k, by_rows); });
}

}  // namespace needle::bench
