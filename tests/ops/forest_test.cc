#include "ops/forest.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace needle {
namespace {

using Ids = std::vector<int32_t>;

/// Owns what Sequence only looks at.
struct Batch {
  std::vector<Ids> ids;
  std::vector<std::vector<float>> weights;

  std::vector<Sequence> view() const {
    std::vector<Sequence> out;
    for (size_t i = 0; i < ids.size(); ++i) out.push_back({ids[i], weights[i]});
    return out;
  }
};

/// Every token counts 1, but the first `prompt` of each sequence.
Batch BatchOf(std::vector<Ids> ids, size_t prompt = 1) {
  Batch b{std::move(ids), {}};
  for (const Ids& s : b.ids) {
    b.weights.emplace_back(s.size(), 1.0f);
    std::fill_n(b.weights.back().begin(), std::min(prompt, s.size()), 0.0f);
  }
  return b;
}

/// The tokens from the root to a row.
Ids PrefixOf(const Forest& f, int32_t row) {
  Ids path;
  for (; row >= 0; row = f.parent[row]) path.push_back(f.tokens[row]);
  std::reverse(path.begin(), path.end());
  return path;
}

/// The weight of each (prefix, next token): what a forest asks for, however it is laid out.
std::map<std::pair<Ids, int32_t>, double> Asked(const Forest& f) {
  std::map<std::pair<Ids, int32_t>, double> sums;
  for (size_t n = 0; n < f.targets(); ++n)
    sums[{PrefixOf(f, f.target_row[n]), f.target_id[n]}] += f.target_weight[n];
  return sums;
}

std::map<std::pair<Ids, int32_t>, double> AskedBy(const Batch& b, double normaliser) {
  std::map<std::pair<Ids, int32_t>, double> sums;
  for (size_t i = 0; i < b.ids.size(); ++i)
    for (size_t t = 1; t < b.ids[i].size(); ++t)
      if (b.weights[i][t] != 0)
        sums[{Ids(b.ids[i].begin(), b.ids[i].begin() + static_cast<long>(t)), b.ids[i][t]}] +=
            b.weights[i][t] / normaliser;
  return sums;
}

std::multiset<Ids> PrefixesOf(const Forest& f) {
  std::multiset<Ids> all;
  for (size_t row = 0; row < f.rows(); ++row) all.insert(PrefixOf(f, static_cast<int32_t>(row)));
  return all;
}

/// Whether ancestors are exactly what the subtree ends say, and all else that Forest promises.
void ExpectSound(const Forest& f) {
  const auto T = static_cast<int32_t>(f.rows());
  for (int32_t i = 0; i < T; ++i) {
    ASSERT_LT(f.parent[i], i);
    ASSERT_EQ(f.depth[i], f.parent[i] < 0 ? 0 : f.depth[f.parent[i]] + 1);
    std::vector<bool> want(T), sees(T);
    for (int32_t p = i; p >= 0; p = f.parent[p]) want[p] = true;
    for (int32_t j = 0; j < T; ++j) sees[j] = j <= i && i < f.subtree_end[j];
    ASSERT_TRUE(sees == want) << "row " << i;
  }
  ASSERT_TRUE(std::is_sorted(f.target_row.begin(), f.target_row.end()));
  ASSERT_EQ(f.target_id.size(), f.target_row.size());
  ASSERT_EQ(f.target_weight.size(), f.target_row.size());
  std::set<std::pair<int32_t, int32_t>> seen;
  for (size_t n = 0; n < f.targets(); ++n)
    ASSERT_TRUE(seen.insert({f.target_row[n], f.target_id[n]}).second) << "target " << n;
}

/// Short sequences over few tokens, so that beginnings are often shared; weights in quarters, so
/// that sums are exact.
rc::Gen<Batch> AnyBatch() {
  const auto sequence = rc::gen::container<Ids>(rc::gen::inRange(0, 3));
  const auto sequences = rc::gen::scale(0.3, rc::gen::container<std::vector<Ids>>(sequence));
  return rc::gen::mapcat(sequences, [](std::vector<Ids> ids) {
    size_t total = 0;
    for (const Ids& s : ids) total += s.size();
    return rc::gen::map(rc::gen::container<std::vector<int>>(total, rc::gen::inRange(0, 5)),
                        [ids](const std::vector<int>& quarters) {
                          Batch b{ids, {}};
                          size_t at = 0;
                          for (const Ids& s : ids) {
                            b.weights.emplace_back();
                            for (size_t t = 0; t < s.size(); ++t)
                              b.weights.back().push_back(static_cast<float>(quarters[at++]) / 4);
                          }
                          return b;
                        });
  });
}

TEST(Forest, SharesBeginningsInOrderOfFirstAppearance) {
  const Batch b = BatchOf({{2, 5, 6, 1}, {2, 7, 1}, {2, 5, 8, 1}});
  const Forest f = BuildForest(b.view(), Packing::kTree, 1);
  EXPECT_EQ(f.tokens, (Ids{2, 5, 6, 1, 8, 1, 7, 1}));
  EXPECT_EQ(f.parent, (Ids{-1, 0, 1, 2, 1, 4, 0, 6}));
  EXPECT_EQ(f.depth, (Ids{0, 1, 2, 3, 2, 3, 1, 2}));
  EXPECT_EQ(f.subtree_end, (Ids{8, 6, 4, 4, 6, 6, 8, 8}));
  EXPECT_EQ(f.target_row, (Ids{0, 0, 1, 1, 2, 4, 6}));
  EXPECT_EQ(f.target_id, (Ids{5, 7, 6, 8, 1, 1, 1}));
  EXPECT_EQ(f.target_weight, (std::vector<float>{2, 1, 1, 1, 1, 1, 1}));
}

TEST(Forest, DividesWeightsByTheNormaliser) {
  const Batch b = BatchOf({{2, 5, 1}, {2, 5, 1}});
  const Forest f = BuildForest(b.view(), Packing::kTree, 4);
  EXPECT_EQ(f.target_weight, (std::vector<float>{0.5f, 0.5f}));
}

TEST(Forest, KeepsRowsThatNoTargetDependsOn) {
  Batch b = BatchOf({{2, 5, 6}});
  b.weights[0] = {0, 1, 0};
  const Forest f = BuildForest(b.view(), Packing::kTree, 1);
  EXPECT_EQ(f.rows(), 3u);
  EXPECT_EQ(f.targets(), 1u);
}

TEST(Forest, HasNoRowsForAnEmptyBatch) {
  const Batch b = BatchOf({{}, {}});
  EXPECT_EQ(BuildForest(b.view(), Packing::kTree, 1).rows(), 0u);
  EXPECT_EQ(BuildForest(b.view(), Packing::kChain, 1).rows(), 0u);
}

TEST(Forest, PadsWithIdZeroAndNoTargets) {
  const Batch b = BatchOf({{2, 5}, {2, 6, 7}});
  const Forest f = BuildForest(b.view(), Packing::kPadded, 1, 4);
  EXPECT_EQ(f.tokens, (Ids{2, 5, 0, 0, 2, 6, 7, 0}));
  EXPECT_EQ(f.parent, (Ids{-1, 0, 1, 2, -1, 4, 5, 6}));
  EXPECT_EQ(f.target_row, (Ids{0, 4, 5}));
}

RC_GTEST_PROP(ForestProperties, TreeAsksForTheSameTargetsAndHasEachPrefixOnce, ()) {
  const Batch b = *AnyBatch();
  const Forest f = BuildForest(b.view(), Packing::kTree, 2);
  ExpectSound(f);
  RC_ASSERT(Asked(f) == AskedBy(b, 2));
  std::set<Ids> want;
  for (const Ids& s : b.ids)
    for (size_t n = 1; n <= s.size(); ++n)
      want.insert(Ids(s.begin(), s.begin() + static_cast<long>(n)));
  RC_ASSERT(PrefixesOf(f) == std::multiset<Ids>(want.begin(), want.end()));
  RC_ASSERT(f.rows() == DistinctPrefixes(b.view()));
}

RC_GTEST_PROP(ForestProperties, ChainAsksForTheSameTargetsInTheBatchsOrder, ()) {
  const Batch b = *AnyBatch();
  const Forest f = BuildForest(b.view(), Packing::kChain, 2);
  ExpectSound(f);
  RC_ASSERT(Asked(f) == AskedBy(b, 2));
  Ids want;
  for (const Ids& s : b.ids) want.insert(want.end(), s.begin(), s.end());
  RC_ASSERT(f.tokens == want);
}

RC_GTEST_PROP(ForestProperties, PaddedHasOneGroupOfEqualLengthAnExample, ()) {
  const Batch b = *AnyBatch();
  size_t length = *rc::gen::inRange<size_t>(0, 5);
  for (const Ids& s : b.ids) length = std::max(length, s.size());
  const Forest f = BuildForest(b.view(), Packing::kPadded, 2, length);
  ExpectSound(f);
  RC_ASSERT(f.rows() == b.ids.size() * length);
  RC_ASSERT(Asked(f) == AskedBy(b, 2));
  for (size_t i = 0; i < b.ids.size(); ++i)
    for (size_t t = 0; t < length; ++t)
      RC_ASSERT(f.tokens[i * length + t] == (t < b.ids[i].size() ? b.ids[i][t] : 0));
}

}  // namespace
}  // namespace needle
