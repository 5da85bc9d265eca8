// Single operations against upstream's own arrays: rotary positions, n-gram hashes, Walsh-Hadamard.
#include <gtest/gtest.h>

#include "ops/engram.h"
#include "ops/hadamard_mlp.h"
#include "ops/rope.h"
#include "support/mismatch.h"
#include "support/npz.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

Npz Pieces() { return ReadNpz(Golden("ops/pieces.npz")); }

TEST(RopeParity, TablesAreUpstreams) {
  const Npz golden = Pieces();
  const std::vector<int64_t> rows = golden.at("rope_rows").As<int64_t>();
  const std::vector<float> want_cos = golden.at("rope_cos_64_1e5").As<float>();
  const std::vector<float> want_sin = golden.at("rope_sin_64_1e5").As<float>();
  const RopeTable<float> table(static_cast<size_t>(rows.back()) + 1, 64, 1e5);
  const size_t half = 32;
  for (size_t r = 0; r < rows.size(); ++r) {
    // The frequency is a float32 power: one unit in the last place of it is position * 6e-8 of
    // angle.
    const double allowed = 1.2e-7 * (1 + static_cast<double>(rows[r]));
    const size_t at = static_cast<size_t>(rows[r]) * half;
    EXPECT_EQ("", Mismatch(std::span<const float>(&table.cos[at], half),
                           std::span<const float>(&want_cos[r * half], half), 0, allowed));
    EXPECT_EQ("", Mismatch(std::span<const float>(&table.sin[at], half),
                           std::span<const float>(&want_sin[r * half], half), 0, allowed));
  }
}

TEST(RopeParity, RotationIsUpstreams) {
  const Npz golden = Pieces();
  const NpyArray& in = golden.at("rope_x");  // [1, heads, T, E]
  const size_t H = static_cast<size_t>(in.shape[1]), T = static_cast<size_t>(in.shape[2]);
  const size_t E = static_cast<size_t>(in.shape[3]);
  std::vector<float> x = in.As<float>();
  const RopeTable<float> table(T, E, 1e4);
  std::vector<int32_t> position(T);
  for (size_t t = 0; t < T; ++t) position[t] = static_cast<int32_t>(t);
  for (size_t h = 0; h < H; ++h)
    RopeInPlace<float>(MatView<float>(&x[h * T * E], T, E), position, table, 1);
  EXPECT_EQ("", Mismatch(x, golden.at("rope_y").As<float>(), 3e-7, 0));
}

TEST(EngramParity, SlotsAreUpstreams) {
  const Npz golden = Pieces();
  const std::vector<int32_t> tokens = golden.at("hash_tokens").As<int32_t>();
  std::vector<int32_t> parent;
  for (size_t t = 0; t < tokens.size(); ++t) parent.push_back(static_cast<int32_t>(t) - 1);
  const struct {
    const char* name;
    std::vector<int> orders;
    int heads;
    uint32_t slots;
  } cases[] = {{"hash_o23_h2_s8192", {2, 3}, 2, 8192},
               {"hash_o23_h2_s97", {2, 3}, 2, 97},
               {"hash_o234_h1_s61", {2, 3, 4}, 1, 61}};
  for (const auto& c : cases) {
    const std::vector<int32_t> want = golden.at(c.name).As<int32_t>();
    const size_t tables = c.orders.size() * static_cast<size_t>(c.heads);
    std::vector<int32_t> got(tables);
    for (size_t t = 0; t < tokens.size(); ++t) {
      EngramSlots(tokens, parent, static_cast<int32_t>(t), c.orders, c.heads, c.slots, got);
      for (size_t j = 0; j < tables; ++j) {
        const auto reach = static_cast<size_t>(c.orders[j / static_cast<size_t>(c.heads)] - 1);
        // Upstream hashes what does not fit too (and multiplies its vector by zero); ours says -1.
        EXPECT_EQ(got[j], t >= reach ? want[t * tables + j] : -1) << c.name << " " << t << " " << j;
      }
    }
  }
}

TEST(WalshParity, EightPointsAndScalesAreUpstreams) {
  const Npz golden = Pieces();
  const std::vector<float> want = golden.at("walsh8").As<float>();
  for (size_t i = 0; i < 8; ++i) {
    std::vector<float> x(8);
    x[i] = 1;
    WalshHadamard<float>(x);
    EXPECT_EQ("", Mismatch(x, std::span<const float>(&want[i * 8], 8), 1e-7, 0)) << i;
  }
  const std::vector<float> scale = golden.at("walsh_scale").As<float>();
  const size_t sizes[] = {64, 128, 512, 1024};
  ASSERT_EQ(scale.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    std::vector<float> x(sizes[i]);
    x[0] = 1;
    WalshHadamard<float>(x);
    EXPECT_NEAR(x[0], scale[i], 1e-7 * scale[i]) << sizes[i];
  }
}

TEST(Walsh, TwiceIsTheIdentityAndItIsSymmetric) {
  std::vector<double> x(16);
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 16; ++j) x[j] = i == j;
    WalshHadamard<double>(x);
    for (size_t j = 0; j < 16; ++j) {
      std::vector<double> other(16);
      other[j] = 1;
      WalshHadamard<double>(other);
      EXPECT_DOUBLE_EQ(x[j], other[i]);
    }
    WalshHadamard<double>(x);
    for (size_t j = 0; j < 16; ++j) EXPECT_NEAR(x[j], i == j, 1e-15);
  }
}

}  // namespace
}  // namespace needle
