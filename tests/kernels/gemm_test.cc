#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "kernels/kernel_support.h"
#include "kernels/kernels.h"

namespace needle {
namespace {

using test::NormalFloats;

/// C = A B and the sum of |terms| that bounds its rounding, in double.
struct Product {
  std::vector<double> value, magnitude;
};
Product PlainProduct(size_t M, size_t N, size_t K, const float* a, size_t a_row, size_t a_k,
                     const float* b, size_t b_k, size_t b_n) {
  Product p{std::vector<double>(M * N), std::vector<double>(M * N)};
  for (size_t i = 0; i < M; ++i)
    for (size_t j = 0; j < N; ++j)
      for (size_t k = 0; k < K; ++k) {
        const double term = double{a[i * a_row + k * a_k]} * b[k * b_k + j * b_n];
        p.value[i * N + j] += term;
        p.magnitude[i * N + j] += std::abs(term);
      }
  return p;
}

/// Each product and each sum rounds once: (K + 1) half units of the sum of |terms|.
::testing::AssertionResult Near(const Product& want, const std::vector<float>& c, size_t ldc,
                                size_t M, size_t N, size_t K, float before) {
  for (size_t i = 0; i < M; ++i)
    for (size_t j = 0; j < ldc; ++j) {
      const float got = c[i * ldc + j];
      if (j >= N) {
        if (got != -7.0f)
          return ::testing::AssertionFailure() << "wrote past row " << i << " at column " << j;
        continue;
      }
      const double value = want.value[i * N + j] + before;
      const double allowed = (static_cast<double>(K) + 1) * FLT_EPSILON *
                             (want.magnitude[i * N + j] + std::abs(before));
      if (!(std::abs(got - value) <= allowed))
        return ::testing::AssertionFailure() << "c(" << i << ", " << j << ") = " << got << ", want "
                                             << value << " +- " << allowed;
    }
  return ::testing::AssertionSuccess();
}

/// C with `before` in it and -7 in the columns that must stay.
std::vector<float> Target(size_t M, size_t N, size_t ldc, float before) {
  std::vector<float> c(M * ldc, -7.0f);
  for (size_t i = 0; i < M; ++i)
    for (size_t j = 0; j < N; ++j) c[i * ldc + j] = before;
  return c;
}

TEST(Gemm, AgreesWithPlainLoopsOnEveryIsaAndTail) {
  for (const Isa isa : SupportedIsas()) {
    const Kernels& k = KernelsFor(isa);
    for (const size_t M : {1, 2, 3, 5, 6, 7, 13, 14, 15, 16, 29, 43})
      for (const size_t N : {1, 3, 4, 8, 15, 16, 17, 31, 32, 33, 63, 65, 130})
        for (const size_t K : {1, 2, 7, 16, 65}) {
          const size_t lda = K + 3, ldb = N + 2, ldc = N + 1;
          const auto a = NormalFloats(M * lda, 1), b = NormalFloats(K * ldb, 2);
          std::vector<float> panels(k.PackedSize(K, N), NAN);
          k.PackB(b.data(), ldb, 1, K, N, panels.data());
          const Product want = PlainProduct(M, N, K, a.data(), lda, 1, b.data(), ldb, 1);
          for (const bool accumulate : {false, true}) {
            std::vector<float> c = Target(M, N, ldc, 0.5f);
            k.gemm(M, N, K, a.data(), lda, 1, panels.data(), c.data(), ldc, accumulate);
            EXPECT_TRUE(Near(want, c, ldc, M, N, K, accumulate ? 0.5f : 0.0f))
                << Name(isa) << " M " << M << " N " << N << " K " << K;
          }
        }
  }
}

TEST(Gemm, BlocksOfDepthAndWidePageStridesAgreeToo) {
  for (const Isa isa : SupportedIsas()) {
    const Kernels& k = KernelsFor(isa);
    for (const size_t K : {511, 512, 513, 1300})
      for (const size_t lda : {K, size_t{2048}}) {  // 2048: rows a whole page apart
        const size_t M = 17, N = 40;
        const auto a = NormalFloats(M * lda, 3), b = NormalFloats(N * K, 4);
        std::vector<float> panels(k.PackedSize(K, N)), c = Target(M, N, N, 0);
        k.PackB(b.data(), 1, K, K, N, panels.data());
        k.gemm(M, N, K, a.data(), lda, 1, panels.data(), c.data(), N, false);
        const Product want = PlainProduct(M, N, K, a.data(), lda, 1, b.data(), 1, K);
        EXPECT_TRUE(Near(want, c, N, M, N, K, 0)) << Name(isa) << " K " << K << " lda " << lda;
      }
  }
}

TEST(Gemm, PacksAnyStridesAlike) {
  for (const Isa isa : SupportedIsas()) {
    const Kernels& k = KernelsFor(isa);
    for (const size_t K : {1, 5, 16, 37})
      for (const size_t N : {1, 5, 32, 70}) {
        const auto b = NormalFloats(2 * K * N, 5);
        std::vector<float> rows(k.PackedSize(K, N), 0), columns = rows, apart = rows;
        std::vector<float> transposed(N * K), spread(2 * K * N);
        for (size_t i = 0; i < K; ++i)
          for (size_t j = 0; j < N; ++j) {
            transposed[j * K + i] = b[i * N + j];
            spread[2 * (i * N + j)] = b[i * N + j];
          }
        k.PackB(b.data(), N, 1, K, N, rows.data());
        k.PackB(transposed.data(), 1, K, K, N, columns.data());
        k.PackB(spread.data(), 2 * N, 2, K, N, apart.data());
        EXPECT_EQ(rows, columns) << Name(isa) << " K " << K << " N " << N;
        EXPECT_EQ(rows, apart) << Name(isa) << " K " << K << " N " << N;
      }
  }
}

TEST(Gemm, PiecesPackedSideBySideEqualTheWholePacked) {
  for (const Isa isa : SupportedIsas()) {
    const Kernels& k = KernelsFor(isa);
    const size_t K = 21, N = 101;
    const auto b = NormalFloats(K * N, 6);
    std::vector<float> whole(k.PackedSize(K, N), 0), pieces = whole;
    k.PackB(b.data(), N, 1, K, N, whole.data());
    const size_t cuts[] = {0, 32, 40, 43, 96, 101};
    for (size_t i = 0; i + 1 < std::size(cuts); ++i)
      k.PackColumns(b.data() + cuts[i], N, 1, K, cuts[i + 1] - cuts[i], pieces.data(), cuts[i]);
    EXPECT_EQ(whole, pieces) << Name(isa);
    std::fill(pieces.begin(), pieces.end(), 0.0f);
    for (const auto& [first, count] : {std::pair<size_t, size_t>{0, 8}, {8, 13}})
      k.pack(b.data() + first * N, N, 1, count, N, pieces.data(), K, first, 0);
    EXPECT_EQ(whole, pieces) << Name(isa);
  }
}

TEST(Gemm, ARowHasTheSameBitsInEveryBlock) {
  for (const Isa isa : SupportedIsas()) {
    const Kernels& k = KernelsFor(isa);
    const size_t M = 23, N = 75, K = 530;
    const auto a = NormalFloats(M * K, 7), b = NormalFloats(K * N, 8);
    std::vector<float> panels(k.PackedSize(K, N)), whole(M * N), alone(M * N);
    k.PackB(b.data(), N, 1, K, N, panels.data());
    k.gemm(M, N, K, a.data(), K, 1, panels.data(), whole.data(), N, false);
    for (size_t i = 0; i < M; ++i)
      k.gemm(1, N, K, a.data() + i * K, K, 1, panels.data(), alone.data() + i * N, N, false);
    EXPECT_EQ(whole, alone) << Name(isa);
  }
}

TEST(Gemm, AddsTheGradientOfAWeight) {
  for (const Isa isa : SupportedIsas()) {
    const Kernels& k = KernelsFor(isa);
    for (const size_t M : {1, 16, 30, 130})
      for (const size_t N : {1, 16, 33, 64, 70})
        for (const size_t T : {1, 9, 84, 515}) {
          const size_t lda = M + 5, ldb = N + 1, ldc = N + 3;
          const auto a = NormalFloats(T * lda, 9), b = NormalFloats(T * ldb, 10);
          std::vector<float> scratch(k.PackedSize(T, N)), c = Target(M, N, ldc, 0.25f);
          k.gemm_tn(M, N, T, a.data(), lda, b.data(), ldb, c.data(), ldc, scratch.data());
          const Product want = PlainProduct(M, N, T, a.data(), 1, lda, b.data(), ldb, 1);
          EXPECT_TRUE(Near(want, c, ldc, M, N, T, 0.25f))
              << Name(isa) << " M " << M << " N " << N << " T " << T;
        }
  }
}

TEST(Gemm, CarriesNanAndInfinityToTheirRowsAndColumnsOnly) {
  for (const Isa isa : SupportedIsas()) {
    const Kernels& k = KernelsFor(isa);
    const size_t M = 9, N = 20, K = 11;
    auto a = NormalFloats(M * K, 11), b = NormalFloats(K * N, 12);
    a[4 * K + 3] = NAN;
    b[2 * N + 19] = std::numeric_limits<float>::infinity();
    std::vector<float> panels(k.PackedSize(K, N)), c(M * N);
    k.PackB(b.data(), N, 1, K, N, panels.data());
    k.gemm(M, N, K, a.data(), K, 1, panels.data(), c.data(), N, false);
    for (size_t i = 0; i < M; ++i)
      for (size_t j = 0; j < N; ++j) {
        if (i == 4) {
          EXPECT_TRUE(std::isnan(c[i * N + j])) << Name(isa);
        } else if (j == 19) {
          EXPECT_TRUE(std::isinf(c[i * N + j])) << Name(isa);
        } else {
          EXPECT_TRUE(std::isfinite(c[i * N + j])) << Name(isa);
        }
      }
  }
}

TEST(Gemm, ADepthOfZeroAssignsZeros) {
  for (const Isa isa : SupportedIsas()) {
    std::vector<float> c(6, 5.0f);
    KernelsFor(isa).gemm(2, 3, 0, nullptr, 0, 1, nullptr, c.data(), 3, false);
    EXPECT_EQ(c, std::vector<float>(6, 0.0f)) << Name(isa);
  }
}

}  // namespace
}  // namespace needle
