// Products of 8-bit rows with 24-bit weights, where an instruction set has them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/kernel_support.h"
#include "kernels/kernels.h"

namespace needle {
namespace {

using test::NormalFloats;

std::vector<const Kernels*> TablesWithIntegers() {
  std::vector<const Kernels*> tables;
  for (const Isa isa : SupportedIsas())
    if (KernelsFor(isa).gemm_int24) tables.push_back(&KernelsFor(isa));
  return tables;
}

/// Rows quantised, and panels of B given as its columns.
struct Operands {
  Operands(const Kernels& k, MatView<const float> x, int bits, const std::vector<float>& columns)
      : stride((x.cols() + 3) / 4 * 4 + 4),
        level(x.rows() * stride, 77),
        scale(x.rows()),
        sum(x.rows()) {
    const size_t K = x.cols(), N = columns.size() / K;
    panels.resize((N + Kernels::kInt24Panel - 1) / Kernels::kInt24Panel *
                  Kernels::Int24PanelBytes(K));
    k.quantise_int8(x, bits, rows());
    k.pack_int24(columns.data(), K, N, panels.data(), 0);
  }
  Int8Rows rows() { return {level.data(), stride, scale.data(), sum.data()}; }

  size_t stride;
  std::vector<int8_t> level;
  std::vector<float> scale;
  std::vector<int32_t> sum;
  std::vector<uint8_t> panels;
};

TEST(Int24, TheSetsThatHaveOneOfTheThreeHaveAll) {
  for (const Isa isa : SupportedIsas()) {
    const Kernels& k = KernelsFor(isa);
    EXPECT_EQ(k.gemm_int24 != nullptr, isa == Isa::kAvx512Vnni) << Name(isa);
    EXPECT_EQ(k.gemm_int24 != nullptr, k.pack_int24 != nullptr) << Name(isa);
    EXPECT_EQ(k.gemm_int24 != nullptr, k.quantise_int8 != nullptr) << Name(isa);
  }
}

TEST(Int24, LevelsTimesScaleAreTheFakeQuantisedRows) {
  for (const Kernels* k : TablesWithIntegers())
    for (const int bits : {2, 4, 7, 8})
      for (const size_t K : {1, 3, 4, 15, 16, 17, 64, 130, 512}) {
        const size_t M = 5;
        std::vector<float> x = NormalFloats(M * K, 11);
        std::fill_n(x.data() + K, K, 0.0f);                              // a row of zeros
        for (size_t i = 0; i < K; ++i) x[2 * K + i] = static_cast<float>(i % 255) * 0.5f;  // halves
        Operands at(*k, {x.data(), M, K}, bits, std::vector<float>(K, 1));
        KernelsFor(Isa::kGeneric).fake_quantise_activations({x.data(), M, K}, bits);
        for (size_t i = 0; i < M; ++i) {
          int32_t sum = 0;
          for (size_t c = 0; c < (K + 3) / 4 * 4; ++c) {
            const int8_t level = at.level[i * at.stride + c];
            sum += level;
            ASSERT_EQ(at.scale[i] * level, c < K ? x[i * K + c] : 0.0f)
                << bits << " bits, row " << i << " of " << K << ", column " << c;
          }
          EXPECT_EQ(at.sum[i], sum);
          EXPECT_EQ(at.level[i * at.stride + at.stride - 1], 77) << "wrote past the row";
        }
      }
}

TEST(Int24, ProductsAreWithinTheStatedBoundOnEveryTail) {
  for (const Kernels* k : TablesWithIntegers())
    for (const size_t M : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 18, 19, 56})
      for (const size_t N : {1, 5, 15, 16, 17, 32, 33, 63, 64, 65, 81})
        for (const size_t K : {1, 2, 4, 7, 16, 65, 512}) {
          std::vector<float> x = NormalFloats(M * K, 12), columns = NormalFloats(N * K, 13);
          for (size_t i = 0; i < K; ++i) columns[i] *= 1e6f;  // scales differ from column to column
          Operands at(*k, {x.data(), M, K}, 8, columns);
          const size_t ldc = N + 3;
          std::vector<float> c(M * ldc, -7.0f);
          k->gemm_int24(M, N, K, at.rows(), at.panels.data(), c.data(), ldc);
          for (size_t i = 0; i < M; ++i)
            for (size_t j = 0; j < ldc; ++j) {
              if (j >= N) {
                ASSERT_EQ(c[i * ldc + j], -7.0f) << "wrote past row " << i;
                continue;
              }
              double want = 0, magnitude = 0, largest = 0;
              for (size_t e = 0; e < K; ++e) {
                const double q = double{at.scale[i]} * at.level[i * at.stride + e];
                want += q * columns[j * K + e];
                magnitude += std::abs(q);
                largest = std::max(largest, std::abs(double{columns[j * K + e]}));
              }
              ASSERT_NEAR(c[i * ldc + j], want, std::ldexp(magnitude * largest, -21))
                  << M << " x " << N << " x " << K << " at " << i << ", " << j;
            }
        }
}

TEST(Int24, ARowHasTheSameBitsInEveryBlockAndFromEveryPanel) {
  for (const Kernels* k : TablesWithIntegers()) {
    const size_t M = 23, N = 130, K = 100;
    const std::vector<float> x = NormalFloats(M * K, 14);
    Operands at(*k, {x.data(), M, K}, 8, NormalFloats(N * K, 15));
    std::vector<float> whole(M * N), part(M * N);
    k->gemm_int24(M, N, K, at.rows(), at.panels.data(), whole.data(), N);
    for (const size_t rows : {1, 2, 5, 9}) {
      for (size_t i = 0; i < M; i += rows) {
        const Int8Rows from = {at.level.data() + i * at.stride, at.stride, &at.scale[i],
                               &at.sum[i]};
        const size_t first = 32, m = std::min(rows, M - i);
        k->gemm_int24(m, first, K, from, at.panels.data(), &part[i * N], N);
        k->gemm_int24(m, N - first, K, from,
                      at.panels.data() + first / Kernels::kInt24Panel * Kernels::Int24PanelBytes(K),
                      &part[i * N + first], N);
      }
      EXPECT_EQ(part, whole) << rows;
    }
  }
}

TEST(Int24, ExtremesStayExact) {
  for (const Kernels* k : TablesWithIntegers()) {
    // The largest sums that 32 bits must hold: all levels and all weights at their ends.
    const size_t K = 4096;
    for (const float sign : {1.0f, -1.0f}) {
      const std::vector<float> x(K, 127.0f);
      Operands at(*k, {x.data(), 1, K}, 8, std::vector<float>(K, sign * 3.0f));
      float c = 0;
      k->gemm_int24(1, 1, K, at.rows(), at.panels.data(), &c, 1);
      EXPECT_NEAR(c, sign * 3.0 * 127 * K, 3.0 * 127 * K * 1e-6);
    }
    // Columns of zeros and of next to nothing.
    const std::vector<float> x = {1, 2, 3, 4};
    for (const float w : {0.0f, 1e-38f, -1e-31f}) {
      Operands at(*k, {x.data(), 1, 4}, 8, std::vector<float>(4, w));
      float c = NAN;
      k->gemm_int24(1, 1, 4, at.rows(), at.panels.data(), &c, 1);
      EXPECT_EQ(c, 0.0f) << w;
    }
  }
}

TEST(Int24, WhatIsNotFiniteBecomesNanInItsRowOrColumnOnly) {
  for (const Kernels* k : TablesWithIntegers())
    for (const float bad : {NAN, INFINITY, -INFINITY}) {
      const size_t M = 3, N = 20, K = 18;
      std::vector<float> x = NormalFloats(M * K, 16), columns = NormalFloats(N * K, 17);
      x[K + 17] = bad;
      columns[5 * K + 3] = bad;
      Operands at(*k, {x.data(), M, K}, 8, columns);
      std::vector<float> c(M * N);
      k->gemm_int24(M, N, K, at.rows(), at.panels.data(), c.data(), N);
      for (size_t i = 0; i < M; ++i)
        for (size_t j = 0; j < N; ++j)
          EXPECT_EQ(std::isfinite(c[i * N + j]), i != 1 && j != 5) << bad << " " << i << " " << j;
    }
}

}  // namespace
}  // namespace needle
