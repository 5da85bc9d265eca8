#include <numeric>

#include "kernels/bench_support.h"

namespace needle::bench {
namespace {

constexpr size_t kGroup = 2, kE = 64, kWidth = 1536;
constexpr size_t kGradWidth = 512;  // of a row of key and value gradients, all heads

/// The last m rows of a chain of n; q, k, v side by side in rows of kWidth.
struct Chain {
  std::vector<float> rows, key_columns, value_rows, value_columns, key_rows;
  std::vector<int32_t> key_first, key_end;
  KeySpan span;
  AttentionBlock block;
  Chain(const Kernels& kernels, size_t m, size_t n)
      : rows(Normal(n * kWidth, 1)), key_first(n), key_end(n) {
    std::iota(key_first.begin(), key_first.end(), 0);
    std::fill(key_end.begin(), key_end.end(), static_cast<int32_t>(n));
    span.end = static_cast<int32_t>(n);
    span.all_end = static_cast<int32_t>(n - m + 1);
    block.m = m;
    block.group = kGroup;
    block.E = kE;
    block.first_row = n - m;
    block.q = rows.data() + (n - m) * kWidth;
    block.k = rows.data() + 512;
    block.v = rows.data() + 768;
    block.q_stride = block.k_stride = block.v_stride = kWidth;
    block.spans = &span;
    block.span_count = 1;
    block.columns = (n + 15) / 16 * 16;
    block.key_first = key_first.data();
    block.key_end = key_end.data();
    block.scale = 0.125f;
    const auto pack = [&](std::vector<float>& to, const float* from, bool columns) {
      to.resize(columns ? kernels.PackedSize(kE, n) : kernels.PackedSize(n, kE));
      kernels.PackB(from, columns ? 1 : kWidth, columns ? kWidth : 1, columns ? kE : n,
                    columns ? n : kE, to.data());
      return to.data();
    };
    block.rows = n;
    block.key_columns = pack(key_columns, block.k, true);
    block.value_rows = pack(value_rows, block.v, false);
    block.value_columns = pack(value_columns, block.v, true);
    block.key_rows = pack(key_rows, block.k, false);
  }
  Chain(const Chain&) = delete;
  /// Multiply-adds of one product over the visible keys, times two.
  double Flops() const {
    const double m = static_cast<double>(block.m), n = span.end;
    return 2 * kGroup * kE * m * (n - (m - 1) / 2);
  }
};

void Forward(benchmark::State& state, const Kernels& k, size_t m, size_t n) {
  const Chain c(k, m, n);
  std::vector<float> scratch(k.attention_scratch(m, c.block.columns, kGroup, kE));
  std::vector<float> o(m * kGroup * kE), lse(m * kGroup);
  for (auto _ : state) {
    k.attention_forward(c.block, o.data(), kGroup * kE, lse.data(), scratch.data());
    benchmark::ClobberMemory();
  }
  CountFlops(state, 2 * c.Flops());
}

void Backward(benchmark::State& state, const Kernels& k, size_t m, size_t n) {
  const Chain c(k, m, n);
  const size_t width = kGroup * kE;
  std::vector<float> scratch(k.attention_scratch(m, c.block.columns, kGroup, kE));
  std::vector<float> o(m * width), lse(m * kGroup), dq(m * width), dk(n * kGradWidth),
      dv(n * kGradWidth);
  const auto d_o = Normal(m * width, 2);
  k.attention_forward(c.block, o.data(), width, lse.data(), scratch.data());
  for (auto _ : state) {
    k.attention_backward(
        c.block, o.data(), width, lse.data(),
        {d_o.data(), width, dq.data(), width, dk.data(), kGradWidth, dv.data(), kGradWidth},
        scratch.data());
    benchmark::ClobberMemory();
  }
  CountFlops(state, 5 * c.Flops());
}

}  // namespace

void RegisterAttention() {
  const size_t shapes[][2] = {{1, 704}, {28, 28}, {28, 128}, {28, 200}, {28, 400}, {28, 1260}};
  for (const auto& s : shapes) {
    const size_t m = s[0], n = s[1];
    const std::string shape = std::to_string(m) + "of" + std::to_string(n);
    Register("attention_forward/" + shape,
             [m, n](benchmark::State& state, const Kernels& k) { Forward(state, k, m, n); });
    if (m == 1) continue;
    Register("attention_backward/" + shape,
             [m, n](benchmark::State& state, const Kernels& k) { Backward(state, k, m, n); });
  }
}

}  // namespace needle::bench
