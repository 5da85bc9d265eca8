#include <gtest/gtest.h>

#include <cmath>

#include "exec/weights.h"
#include "kernels/kernel_support.h"

namespace needle {
namespace {

using test::NormalFloats;

TEST(Multiplier, GivesTheColumnsThatAreAskedForOnEveryIsa) {
  for (const Isa isa : SupportedIsas())
    for (const int act_bits : {0, 4, 8, 12}) {
      const Kernels& k = KernelsFor(isa);
      const size_t M = 7, N = 100, K = 36;
      std::vector<float> values = NormalFloats(M * K, 18);
      const std::vector<float> columns = NormalFloats(N * K, 19);
      Multiplier w;
      w.Reserve(k, K, N, act_bits);
      EXPECT_EQ(w.OfIntegers(), k.gemm_int24 && act_bits > 0 && act_bits <= 8);
      w.PackColumns(k, columns.data(), 48, 0);
      w.PackColumns(k, columns.data() + 48 * K, N - 48, 48);
      std::vector<int8_t> level(M * K);
      std::vector<float> scale(M), want_x = values, y(M * N, -7.0f);
      std::vector<int32_t> sum(M);
      const Inputs x = {{values.data(), M, K}, {level.data(), K, scale.data(), sum.data()}};
      w.Quantise(k, x.values, x.levels);
      if (act_bits)
        KernelsFor(Isa::kGeneric).fake_quantise_activations({want_x.data(), M, K}, act_bits);
      w.Product(k, M - 2, x.From(2), 48, 90, {y.data() + 2 * N, M - 2, N});
      for (size_t i = 0; i < M; ++i)
        for (size_t j = 0; j < N; ++j) {
          if (i < 2 || j >= 90) {
            ASSERT_EQ(y[i * N + j], -7.0f) << Name(isa) << " " << i << " " << j;
          } else if (j >= 48) {
            double want = 0;
            for (size_t e = 0; e < K; ++e) want += double{want_x[i * K + e]} * columns[j * K + e];
            ASSERT_NEAR(y[i * N + j], want, 3e-5) << Name(isa) << " " << act_bits << " bits";
          }
        }
    }
}

}  // namespace
}  // namespace needle
