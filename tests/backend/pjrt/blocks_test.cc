// Forests cut into blocks: every row and target is there, behind its ancestors, whatever the size.
#include "backend/pjrt/blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "ops/engram.h"

namespace needle::pjrt {
namespace {

ModelConfig Small() {
  ModelConfig c;
  c.d_model = 64;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.num_layers = 2;
  c.engram_layers = {1};
  c.engram_heads = 2;
  c.engram_slots = 97;
  return c;
}

/// Random sequences that share beginnings.
Forest RandomForest(uint32_t seed, size_t count, Packing packing) {
  std::mt19937 bits(seed);
  std::vector<std::vector<int32_t>> ids(count);
  std::vector<std::vector<float>> weights(count);
  for (size_t s = 0; s < count; ++s) {
    if (s > 0) {
      const std::vector<int32_t>& other = ids[bits() % s];
      ids[s].assign(other.begin(),
                    other.begin() + static_cast<std::ptrdiff_t>(bits() % other.size()));
    }
    for (size_t n = 5 + bits() % 60; n > 0; --n)
      ids[s].push_back(static_cast<int32_t>(4 + bits() % 50));
    ids[s].resize(std::min<size_t>(ids[s].size(), 120));
    for (size_t t = 0; t < ids[s].size(); ++t) weights[s].push_back(bits() % 3 == 0 ? 1.0f : 0.0f);
  }
  std::vector<Sequence> sequences;
  for (size_t s = 0; s < count; ++s) sequences.push_back({ids[s], weights[s]});
  return BuildForest(sequences, packing, 1.0f);
}

/// The tokens from the root to a row of a block.
std::vector<int32_t> PathOf(const Block& b, size_t row) {
  const size_t T = static_cast<size_t>(b.shape.rows), first = row / T * T;
  std::vector<int32_t> path;
  for (size_t j = first; j <= row; ++j)
    if (static_cast<int32_t>(row - first) < b.subtree_end[j]) path.push_back(b.tokens[j]);
  return path;
}

std::vector<int32_t> PathOf(const Forest& f, int32_t row) {
  std::vector<int32_t> path;
  for (; row >= 0; row = f.parent[static_cast<size_t>(row)])
    path.insert(path.begin(), f.tokens[static_cast<size_t>(row)]);
  return path;
}

using Asked = std::map<std::pair<std::vector<int32_t>, int32_t>, double>;

/// What a forest asks for: the weight of each (tokens before, token).
Asked AskedBy(const Forest& f) {
  Asked out;
  for (size_t n = 0; n < f.targets(); ++n)
    out[{PathOf(f, f.target_row[n]), f.target_id[n]}] += double{f.target_weight[n]};
  return out;
}

/// The same of blocks, which all have one shape.
Asked AskedBy(const std::vector<Block>& blocks) {
  Asked out;
  for (const Block& b : blocks) {
    EXPECT_EQ(b.shape, blocks[0].shape);
    EXPECT_EQ(b.target_row.size(), static_cast<size_t>(b.shape.targets));
    for (size_t n = 0; n < b.target_row.size(); ++n) {
      const auto row = static_cast<size_t>(b.target_row[n]);
      if (b.target_weight[n] == 0) continue;
      const std::vector<int32_t> path = PathOf(b, row);
      EXPECT_EQ(b.depth[row] + 1, static_cast<int32_t>(path.size()));
      out[{path, b.target_id[n]}] += double{b.target_weight[n]};
    }
  }
  return out;
}

TEST(Blocks, AskForEveryTargetOnceBehindTheSameTokens) {
  for (const Packing packing : {Packing::kTree, Packing::kChain})
    for (uint32_t seed = 1; seed <= 20; ++seed) {
      const Forest f = RandomForest(seed, 1 + seed, packing);
      const Asked want = AskedBy(f);
      for (const int64_t rows : {128, 256}) {
        BlockLimits limits;
        limits.group_rows = {rows};
        limits.block_rows = 512;
        limits.replicas = 1 + seed % 3;
        const std::vector<Block> blocks = BlocksOf(f, Small(), limits);
        EXPECT_EQ(blocks.size() % static_cast<size_t>(limits.replicas), 0u);
        EXPECT_EQ(AskedBy(blocks), want) << "seed " << seed << ", groups of " << rows;
      }
    }
}

TEST(Blocks, TargetsThatHaveNoRoomComeInAnotherRunOfTheirBlock) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    const Forest f = RandomForest(seed, 12, Packing::kTree);
    BlockLimits limits;
    limits.group_rows = {128};
    limits.block_rows = 256;
    const size_t usual = BlocksOf(f, Small(), limits).size();
    limits.replicas = 1 + seed % 3;
    const BlockShape small{2, 128, 16};
    limits.existing = {small};
    const std::vector<Block> blocks = BlocksOf(f, Small(), limits);
    EXPECT_EQ(blocks[0].shape, small);
    EXPECT_GT(blocks.size(), usual);
    EXPECT_EQ(blocks.size() % static_cast<size_t>(limits.replicas), 0u);
    EXPECT_EQ(AskedBy(blocks), AskedBy(f)) << "seed " << seed;
  }
}

TEST(Blocks, ARunNeedsOneProgramForEachLengthOfAGroup) {
  BlockLimits limits;
  limits.group_rows = {128, 256, 512, 1024};
  std::set<BlockShape> shapes;
  std::set<int64_t> lengths;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    const Forest f = RandomForest(seed, 1 + seed * seed % 37, Packing::kTree);
    limits.existing.assign(shapes.begin(), shapes.end());
    const std::vector<Block> blocks = BlocksOf(f, Small(), limits);
    EXPECT_EQ(AskedBy(blocks), AskedBy(f)) << "seed " << seed;
    shapes.insert(blocks[0].shape);
    lengths.insert(blocks[0].shape.rows);
  }
  EXPECT_EQ(shapes.size(), lengths.size());
  EXPECT_GT(lengths.size(), 1u);
}

TEST(Blocks, MemoriesReadTheSameNgramsAndTapsAsTheForest) {
  const ModelConfig c = Small();
  const Forest f = RandomForest(5, 12, Packing::kTree);
  const auto tables = static_cast<size_t>(c.EngramTables());
  std::map<std::vector<int32_t>, std::vector<int32_t>> slots;  // by path
  for (size_t t = 0; t < f.rows(); ++t) {
    std::vector<int32_t>& s = slots[PathOf(f, static_cast<int32_t>(t))];
    s.resize(tables);
    EngramSlots(f.tokens, f.parent, static_cast<int32_t>(t), c.engram_orders, c.EngramHeads(),
                static_cast<uint32_t>(c.engram_slots), s);
    for (size_t j = 0; j < tables; ++j)
      if (s[j] >= 0) s[j] += static_cast<int32_t>(j) * c.engram_slots;
  }
  BlockLimits limits;
  limits.group_rows = {128};
  size_t checked = 0;
  for (const Block& b : BlocksOf(f, c, limits)) {
    const size_t N = b.tokens.size();
    for (size_t row = 0; row < N; ++row) {
      if (b.tokens[row] == c.pad_token_id) continue;
      ++checked;
      const std::vector<int32_t> path = PathOf(b, row);
      EXPECT_EQ(
          std::vector<int32_t>(b.slots.begin() + static_cast<std::ptrdiff_t>(row * tables),
                               b.slots.begin() + static_cast<std::ptrdiff_t>((row + 1) * tables)),
          slots.at(path));
      for (size_t k = 0; k + 1 < kConvTaps; ++k) {
        const size_t back = (k + 1) * static_cast<size_t>(c.ConvDilation());
        const int32_t read = b.conv_rows[k * N + row];
        if (path.size() <= back) {
          EXPECT_EQ(read, -1);
        } else {
          EXPECT_EQ(
              PathOf(b, static_cast<size_t>(read)),
              std::vector<int32_t>(path.begin(), path.end() - static_cast<std::ptrdiff_t>(back)));
        }
      }
    }
  }
  EXPECT_GE(checked, f.rows());
}

TEST(Blocks, FreeRowsSeeThemselvesOnlyAndAskForNothing) {
  const Forest f = RandomForest(3, 2, Packing::kChain);
  for (const Block& b : BlocksOf(f, Small(), {}))
    for (size_t row = f.rows(); row < b.tokens.size(); ++row) {
      EXPECT_EQ(PathOf(b, row).size(), 1u);
      EXPECT_EQ(std::count(b.target_row.begin(),
                           b.target_row.begin() + static_cast<std::ptrdiff_t>(b.asked),
                           static_cast<int32_t>(row)),
                0);
    }
}

TEST(Blocks, AnExampleThatFitsAGroupIsNotCut) {
  const Forest f = RandomForest(9, 30, Packing::kChain);
  for (const Group& g : CutIntoGroups(f, 128))
    EXPECT_EQ(std::count(g.is_copy.begin(), g.is_copy.end(), true), 0);
}

TEST(Blocks, ARowDeeperThanEveryGroupGetsLargerGroups) {
  std::vector<int32_t> ids(3000, 7);
  std::vector<float> weights(3000, 0.0f);
  weights.back() = 1;
  const std::vector<Sequence> one = {{ids, weights}};
  const std::vector<Block> blocks = BlocksOf(BuildForest(one, Packing::kTree, 1.0f), Small(), {});
  ASSERT_EQ(blocks.size(), 1u);
  EXPECT_EQ(blocks[0].shape.rows, 4096);
  EXPECT_EQ(blocks[0].asked, 1u);
}

}  // namespace
}  // namespace needle::pjrt
