#include "kernels/bench_support.h"

namespace needle::bench {
namespace {

/// `matrices`: how many take turns, so that the panels come from further than the caches.
void Gemm(benchmark::State& state, const Kernels& k, size_t M, size_t N, size_t K,
          size_t matrices) {
  const auto a = Normal(M * K, 1), b = Normal(K * N, 2);
  const size_t size = k.PackedSize(K, N);
  Array<float> panels(size * matrices), c(M * N);
  for (size_t i = 0; i < matrices; ++i) k.PackB(b.data(), N, 1, K, N, panels.data() + i * size);
  size_t turn = 0;
  for (auto _ : state) {
    k.gemm(M, N, K, a.data(), K, 1, panels.data() + turn++ % matrices * size, c.data(), N, false);
    benchmark::ClobberMemory();
  }
  CountFlops(state, 2.0 * static_cast<double>(M * N * K));
}

void GemmInt24(benchmark::State& state, const Kernels& k, size_t M, size_t N, size_t K,
               size_t matrices) {
  const auto a = Normal(M * K, 1), columns = Normal(K * N, 2);
  std::vector<int8_t> level(M * K);
  std::vector<int32_t> sum(M);
  std::vector<float> scale(M), c(M * N);
  const size_t size = (N + 15) / 16 * Kernels::Int24PanelBytes(K);
  Array<uint8_t> panels(size * matrices);
  const Int8Rows x = {level.data(), K, scale.data(), sum.data()};
  k.quantise_int8({a.data(), M, K}, 8, x);
  for (size_t i = 0; i < matrices; ++i)
    k.pack_int24(columns.data(), K, N, panels.data() + i * size, 0);
  size_t turn = 0;
  for (auto _ : state) {
    k.gemm_int24(M, N, K, x, panels.data() + turn++ % matrices * size, c.data(), N);
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

/// A weight gradient [M, N] as training computes it: 128 columns of the longer side a call, over
/// rows that no cache holds.
void GemmTnColumns(benchmark::State& state, const Kernels& k, size_t M, size_t N, size_t T) {
  const size_t kColumns = 128, kMatrices = 16;
  const size_t m = M > N ? kColumns : M, n = M > N ? N : kColumns;
  const auto a = Normal(T * M * kMatrices, 1), b = Normal(T * N * kMatrices, 2);
  std::vector<float> scratch(k.PackedSize(T, n)), c(M * N);
  size_t i = 0;
  for (auto _ : state) {
    const size_t matrix = ++i % kMatrices;
    for (size_t from = 0; from < std::max(M, N); from += kColumns) {
      const size_t row = M > N ? from : 0, column = M > N ? 0 : from;
      k.gemm_tn(m, n, T, a.data() + matrix * T * M + row, M, b.data() + matrix * T * N + column, N,
                c.data() + row * N + column, N, scratch.data());
    }
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
  struct Shape {
    size_t M, N, K, matrices = 1;
    std::string Name() const {
      return std::to_string(M) + "x" + std::to_string(N) + "x" + std::to_string(K) +
             (matrices > 1 ? "/streamed" : "");
    }
  };
  constexpr size_t kLayers = 27;
  const std::vector<Shape> shapes = {{84, 1536, 512},         {84, 1600, 512},
                                     {84, 512, 1536},         {84, 512, 512},
                                     {84, 8192, 512},         {84, 512, 8192},
                                     {84, 24, 2048},          {84, 2048, 24},
                                     {84, 16, 512},           {84, 512, 16},
                                     {84, 64, 512},           {1, 1536, 512},
                                     {4, 1536, 512},          {56, 1536, 512, kLayers},
                                     {56, 512, 1536, kLayers}};
  for (const Shape& s : shapes)
    Register("gemm/" + s.Name(), [s](benchmark::State& state, const Kernels& k) {
      Gemm(state, k, s.M, s.N, s.K, s.matrices);
    });
  const std::vector<Shape> quantised = {
      {84, 1536, 512}, {84, 512, 512}, {56, 1536, 512, kLayers}, {1, 1536, 512}};
  for (const Shape& s : quantised)
    Register(
        "gemm_int24/" + s.Name(),
        [s](benchmark::State& state, const Kernels& k) {
          GemmInt24(state, k, s.M, s.N, s.K, s.matrices);
        },
        [](const Kernels& k) { return k.gemm_int24 != nullptr; });
  const size_t weights[][3] = {
      {512, 16, 84}, {512, 64, 84}, {512, 1536, 84}, {2048, 24, 84}, {512, 16, 512}};
  for (const auto& s : weights)
    Register(
        "gemm_tn/" + std::to_string(s[0]) + "x" + std::to_string(s[1]) + "x" + std::to_string(s[2]),
        [s = std::vector<size_t>(s, s + 3)](benchmark::State& state, const Kernels& k) {
          GemmTn(state, k, s[0], s[1], s[2]);
        });
  constexpr size_t streamed[][2] = {{16, 512}, {16, 1536}, {512, 64}, {512, 16}};
  for (const auto& s : streamed)
    Register("gemm_tn/" + std::to_string(s[0]) + "x" + std::to_string(s[1]) + "x700/streamed",
             [M = s[0], N = s[1]](benchmark::State& state, const Kernels& k) {
               GemmTnColumns(state, k, M, N, 700);
             });
  for (const bool by_rows : {true, false})
    Register(by_rows ? "pack/rows" : "pack/columns",
             [by_rows](benchmark::State& state, const Kernels& k) { Pack(state, k, by_rows); });
}

}  // namespace needle::bench
