#include "kernels/profiled.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/profile.h"
#include "kernels/kernel_support.h"
#include "kernels/peak.h"

namespace needle {
namespace {

using test::NormalFloats;

TEST(ProfiledKernels, GiveTheSameResultsAndCountTheirFlop) {
  const Kernels& plain = BestKernels();
  const Profile profile;
  const Kernels& timed = ProfiledKernels(plain);
  EXPECT_EQ(timed.isa, plain.isa);
  EXPECT_EQ(timed.panel_width, plain.panel_width);
  const size_t M = 20, N = 40, K = 30;
  const auto a = NormalFloats(M * K, 1), b = NormalFloats(K * N, 2);
  std::vector<float> panels(plain.PackedSize(K, N)), want(M * N), got(M * N);
  timed.PackB(b.data(), N, 1, K, N, panels.data());
  plain.gemm(M, N, K, a.data(), K, 1, panels.data(), want.data(), N, false);
  timed.gemm(M, N, K, a.data(), K, 1, panels.data(), got.data(), N, false);
  EXPECT_EQ(want, got);
  double flop = 0;
  uint64_t calls = 0;
  for (const Profile::Row& row : profile.Rows())
    if (row.operation == "gemm") {
      flop += row.flop;
      calls += row.calls;
    }
  EXPECT_EQ(calls, 1u);
  EXPECT_EQ(flop, 2.0 * M * N * K);
}

TEST(MeasuredPeak, IsPositiveOnEveryInstructionSet) {
  ThreadPool pool(1);
  for (const Isa isa : SupportedIsas())
    EXPECT_GT(MeasuredPeak(KernelsFor(isa), pool), 0) << Name(isa);
}

}  // namespace
}  // namespace needle
