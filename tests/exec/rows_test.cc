// Chunk plans: whatever the cuts, prefix and chunks are the forest.
#include "exec/rows.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace needle {
namespace {

/// Random examples that share beginnings often.
struct Examples {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<float>> weights;
};

Examples RandomExamples() {
  Examples out;
  const size_t count = *rc::gen::inRange<size_t>(1, 7);
  for (size_t i = 0; i < count; ++i) {
    std::vector<int32_t> ids =
        *rc::gen::container<std::vector<int32_t>>(rc::gen::inRange<int32_t>(0, 3));
    if (!out.ids.empty()) {  // go on from a piece of an earlier one
      const auto& from = out.ids[*rc::gen::inRange<size_t>(0, out.ids.size())];
      const size_t kept = *rc::gen::inRange<size_t>(0, from.size() + 1);
      ids.insert(ids.begin(), from.begin(), from.begin() + static_cast<std::ptrdiff_t>(kept));
    }
    if (ids.empty()) ids.push_back(0);
    out.weights.emplace_back();
    for (size_t t = 0; t < ids.size(); ++t)
      out.weights.back().push_back(*rc::gen::element(0.0f, 1.0f, 0.5f));
    out.ids.push_back(std::move(ids));
  }
  return out;
}

Forest Build(const Examples& e, Packing packing) {
  std::vector<Sequence> batch;
  for (size_t i = 0; i < e.ids.size(); ++i) batch.push_back({e.ids[i], e.weights[i]});
  return BuildForest(batch, packing, 1);
}

/// Names of a plan's rows in the forest: for each Rows, the forest's row of each local row.
/// A row is known by its tokens from the root and, in a chain, by which of the equal ones it is.
using Path = std::vector<int32_t>;

std::vector<Path> Paths(const std::vector<int32_t>& tokens, const std::vector<int32_t>& parent) {
  std::vector<Path> out;
  for (size_t t = 0; t < tokens.size(); ++t) {
    Path path = parent[t] < 0 ? Path{} : out[static_cast<size_t>(parent[t])];
    path.push_back(tokens[t]);
    out.push_back(std::move(path));
  }
  return out;
}

/// Everything that must not depend on the cuts, as sorted lists.
struct Summary {
  std::vector<Path> rows;               // of computed rows
  std::vector<std::vector<Path>> seen;  // row, then all that it sees (itself included)
  std::vector<std::tuple<Path, int32_t, float>> targets;
  friend bool operator==(const Summary&, const Summary&) = default;
  void Sort() {
    std::sort(rows.begin(), rows.end());
    std::sort(seen.begin(), seen.end());
    std::sort(targets.begin(), targets.end());
  }
};

void Add(const Rows& r, Summary* s) {
  const std::vector<Path> paths = Paths(r.tokens, r.parent);
  for (size_t i = r.first; i < r.total(); ++i) {
    RC_ASSERT(r.depth[i] == static_cast<int32_t>(paths[i].size()) - 1);
    s->rows.push_back(paths[i]);
    std::vector<Path> seen = {paths[i]};
    std::vector<Path> keys;
    const auto row = static_cast<int32_t>(i);
    for (size_t j = 0; j < r.total(); ++j)
      if (r.key_first[j] <= row && row < r.key_end[j]) keys.push_back(paths[j]);
    std::sort(keys.begin(), keys.end());
    seen.insert(seen.end(), keys.begin(), keys.end());
    s->seen.push_back(std::move(seen));
  }
  for (size_t n = 0; n < r.target_row.size(); ++n) {
    RC_ASSERT(r.target_row[n] >= static_cast<int32_t>(r.first));
    s->targets.emplace_back(paths[static_cast<size_t>(r.target_row[n])], r.target_id[n],
                            r.target_weight[n]);
  }
}

Summary OfForest(const Forest& f) {
  Rows all;
  all.tokens = f.tokens;
  all.parent = f.parent;
  all.depth = f.depth;
  for (size_t t = 0; t < f.rows(); ++t) all.key_first.push_back(static_cast<int32_t>(t));
  all.key_end = f.subtree_end;
  all.target_row = f.target_row;
  all.target_id = f.target_id;
  all.target_weight = f.target_weight;
  Summary s;
  Add(all, &s);
  s.Sort();
  return s;
}

void ExpectPlanIsTheForest(const Forest& forest, size_t max_rows) {
  const ChunkPlan plan = PlanChunks(forest, max_rows);
  Summary got;
  RC_ASSERT(plan.prefix.first == 0u);
  const size_t longest =
      1 + static_cast<size_t>(*std::max_element(forest.depth.begin(), forest.depth.end()));
  Add(plan.prefix, &got);
  for (const Rows& chunk : plan.chunks) {
    RC_ASSERT(chunk.first == plan.prefix.total());
    RC_ASSERT(chunk.count() > 0u);
    RC_ASSERT(chunk.count() <= std::max(max_rows, longest));
    RC_ASSERT(std::is_sorted(chunk.target_row.begin(), chunk.target_row.end()));
    RC_ASSERT(
        std::equal(plan.prefix.tokens.begin(), plan.prefix.tokens.end(), chunk.tokens.begin()));
    for (size_t i = 0; i < chunk.total(); ++i) RC_ASSERT(chunk.parent[i] < static_cast<int32_t>(i));
    Add(chunk, &got);
  }
  got.Sort();
  RC_ASSERT(got == OfForest(forest));
}

RC_GTEST_PROP(PlanChunks, PrefixAndChunksAreTheForestsRowsSightAndTargetsEachOnce, ()) {
  const Examples examples = RandomExamples();
  const size_t max_rows = *rc::gen::inRange<size_t>(1, 20);
  for (const Packing packing : {Packing::kTree, Packing::kChain})
    ExpectPlanIsTheForest(Build(examples, packing), max_rows);
}

RC_GTEST_PROP(PlanChunks, AForestThatFitsIsOneChunkWithoutAPrefix, ()) {
  const Forest forest = Build(RandomExamples(), Packing::kTree);
  const ChunkPlan plan = PlanChunks(forest, forest.rows());
  RC_ASSERT(plan.prefix.total() == 0u);
  RC_ASSERT(plan.chunks.size() == 1u);
  RC_ASSERT(plan.chunks[0].tokens == forest.tokens);
}

TEST(PlanChunks, CutsBetweenTreesShareNothing) {
  Examples examples;
  for (int32_t tree = 0; tree < 20; ++tree) {
    examples.ids.emplace_back(8, tree);
    examples.weights.emplace_back(8, 1.0f);
  }
  const ChunkPlan plan = PlanChunks(Build(examples, Packing::kTree), 35);
  EXPECT_EQ(plan.prefix.total(), 0u);
  EXPECT_EQ(plan.chunks.size(), 5u);
}

/// Examples with one beginning of `shared` rows, each with `own` rows of its own after it.
Examples Branches(int32_t count, size_t shared, size_t own) {
  Examples examples;
  for (int32_t branch = 0; branch < count; ++branch) {
    std::vector<int32_t> ids(shared, 1);
    ids.resize(shared + own, 100 + branch);
    examples.ids.push_back(ids);
    examples.weights.emplace_back(shared + own, 1.0f);
  }
  return examples;
}

TEST(PlanChunks, TakesSmallerChunksWhereTheyShareMuch) {
  // One beginning of 60 rows and 10 branches of 10: with chunks of 100 rows, 160 would be held.
  const ChunkPlan plan = PlanChunks(Build(Branches(10, 60, 10), Packing::kTree), 100);
  EXPECT_EQ(plan.prefix.total(), 60u);
  for (const Rows& chunk : plan.chunks) EXPECT_LE(chunk.total(), 100u);
}

TEST(PlanChunks, HoldsALongExampleWholeRatherThanTheFirstPartsOfAll) {
  // Eight examples of 100 rows: cut at 75, six prefixes of 75 rows would be held at once.
  const ChunkPlan plan = PlanChunks(Build(Branches(8, 0, 100), Packing::kTree), 75);
  EXPECT_EQ(plan.prefix.total(), 0u);
  EXPECT_EQ(plan.chunks.size(), 8u);
}

TEST(PlanChunks, CutsWhereTheSharedBeginningEnds) {
  // One beginning of 10 rows and 4 branches of 12: every cut is at a branch, and nothing else is
  // shared.
  const ChunkPlan plan = PlanChunks(Build(Branches(4, 10, 12), Packing::kTree), 25);
  EXPECT_EQ(plan.prefix.total(), 10u);
  for (const Rows& chunk : plan.chunks) EXPECT_EQ(chunk.count() % 12, 0u);
}

RC_GTEST_PROP(VisibleSpans, HoldEveryKeyThatSomeQueryOfTheBlockSees, ()) {
  const Forest forest = Build(RandomExamples(), Packing::kTree);
  const ChunkPlan plan = PlanChunks(forest, *rc::gen::inRange<size_t>(1, 20));
  const size_t width = *rc::gen::inRange<size_t>(1, 6);
  for (const Rows& rows : plan.chunks) {
    const size_t begin = *rc::gen::inRange<size_t>(rows.first, rows.total());
    const size_t count = *rc::gen::inRange<size_t>(1, rows.total() - begin + 1);
    std::vector<KeySpan> spans;
    const size_t columns = VisibleSpans(rows, begin, count, width, &spans);
    const auto sees = [&](size_t i, size_t j) {
      return rows.key_first[j] <= static_cast<int32_t>(i) &&
             static_cast<int32_t>(i) < rows.key_end[j];
    };
    std::vector<bool> covered(rows.total());
    size_t next_panel = 0, next_column = 0;
    for (const KeySpan& span : spans) {
      const size_t first = static_cast<size_t>(span.begin), end = static_cast<size_t>(span.end);
      RC_ASSERT(first / width >= next_panel);  // panels of two spans are apart
      next_panel = (end - 1) / width + 1;
      RC_ASSERT(span.column == next_column);
      next_column += (end - first / width * width + 15) / 16 * 16;
      for (size_t j = first; j < end; ++j) covered[j] = true;
      for (size_t j = first; j < static_cast<size_t>(span.all_end); ++j)
        for (size_t i = begin; i < begin + count; ++i) RC_ASSERT(sees(i, j));
    }
    RC_ASSERT(columns == next_column);
    for (size_t j = 0; j < rows.total(); ++j)
      for (size_t i = begin; i < begin + count; ++i) RC_ASSERT(!sees(i, j) || covered[j]);
  }
}

}  // namespace
}  // namespace needle
