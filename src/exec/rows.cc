#include "exec/rows.h"

#include <algorithm>
#include <limits>

#include "base/parallel.h"

namespace needle {
namespace {

/// Row numbers where the forest is cut, so that chunks have at most `max_rows` rows and few rows
/// are shared by chunks (memory holds those as well as a chunk), but no more chunks than that is
/// worth.
std::vector<size_t> Cuts(const Forest& f, size_t max_rows) {
  const size_t T = f.rows(), chunk_cost = CeilDiv(max_rows, 16);
  if (T <= max_rows) return {};
  // cost[t] of the best cuts of rows [0, t), the last one at t and the one before at previous[t].
  std::vector<size_t> cost(T + 1, std::numeric_limits<size_t>::max()), previous(T + 1);
  cost[0] = 0;
  for (size_t t = 1; t <= T; ++t) {
    size_t shared = 0;  // rows from s on above t: those before s are above s, too
    int32_t above = t < T ? f.parent[t] : -1;
    for (size_t s = t; s-- > 0 && t - s <= max_rows;) {
      if (above == static_cast<int32_t>(s)) {
        ++shared;
        above = f.parent[s];
      }
      if (const size_t sum = cost[s] + shared + chunk_cost; sum <= cost[t]) {
        cost[t] = sum;
        previous[t] = s;
      }
    }
  }
  std::vector<size_t> cuts;
  for (size_t t = previous[T]; t > 0; t = previous[t]) cuts.push_back(t);
  std::reverse(cuts.begin(), cuts.end());
  return cuts;
}

/// Which rows lie on the path of some cut.
std::vector<bool> SharedRows(const Forest& f, const std::vector<size_t>& cuts) {
  std::vector<bool> shared(f.rows());
  for (const size_t cut : cuts)
    for (int32_t t = f.parent[cut]; t >= 0 && !shared[static_cast<size_t>(t)];
         t = f.parent[static_cast<size_t>(t)])
      shared[static_cast<size_t>(t)] = true;
  return shared;
}

/// The part of the forest made of `members` (ascending), after the rows of `prefix` (ascending).
Rows Part(const Forest& f, const std::vector<int32_t>& prefix,
          const std::vector<int32_t>& members) {
  Rows rows;
  rows.first = prefix.size();
  std::vector<int32_t> local(f.rows(), -1);
  std::vector<int32_t> all = prefix;
  all.insert(all.end(), members.begin(), members.end());
  for (size_t i = 0; i < all.size(); ++i)
    local[static_cast<size_t>(all[i])] = static_cast<int32_t>(i);
  const auto member_at_or_after = [&](int32_t row) {
    const auto at = std::lower_bound(members.begin(), members.end(), row) - members.begin();
    return static_cast<int32_t>(prefix.size()) + static_cast<int32_t>(at);
  };
  for (size_t i = 0; i < all.size(); ++i) {
    const auto row = static_cast<size_t>(all[i]);
    rows.tokens.push_back(f.tokens[row]);
    rows.parent.push_back(f.parent[row] < 0 ? -1 : local[static_cast<size_t>(f.parent[row])]);
    rows.depth.push_back(f.depth[row]);
    // Depth-first order: the members below a row are consecutive.
    rows.key_first.push_back(member_at_or_after(all[i]));
    rows.key_end.push_back(member_at_or_after(f.subtree_end[row]));
  }
  for (size_t n = 0; n < f.targets(); ++n) {
    const int32_t at = local[static_cast<size_t>(f.target_row[n])];
    if (at < static_cast<int32_t>(rows.first)) continue;
    rows.target_row.push_back(at);
    rows.target_id.push_back(f.target_id[n]);
    rows.target_weight.push_back(f.target_weight[n]);
  }
  return rows;
}

ChunkPlan PlanWith(const Forest& forest, const std::vector<size_t>& cuts) {
  const std::vector<bool> shared = SharedRows(forest, cuts);
  std::vector<int32_t> prefix;
  for (size_t t = 0; t < forest.rows(); ++t)
    if (shared[t]) prefix.push_back(static_cast<int32_t>(t));
  ChunkPlan plan;
  plan.prefix = Part(forest, {}, prefix);
  size_t begin = 0;
  for (size_t c = 0; c <= cuts.size(); ++c) {
    const size_t end = c < cuts.size() ? cuts[c] : forest.rows();
    std::vector<int32_t> members;
    for (size_t t = begin; t < end; ++t)
      if (!shared[t]) members.push_back(static_cast<int32_t>(t));
    if (!members.empty()) plan.chunks.push_back(Part(forest, prefix, members));
    begin = end;
  }
  return plan;
}

/// Rows of the prefix and of the largest chunk.
size_t HeldRows(const Forest& f, const std::vector<size_t>& cuts) {
  const std::vector<bool> shared = SharedRows(f, cuts);
  size_t prefix = 0, largest = 0, begin = 0;
  for (size_t c = 0; c <= cuts.size(); ++c) {
    size_t own = 0;
    for (const size_t end = c < cuts.size() ? cuts[c] : f.rows(); begin < end; ++begin)
      ++(shared[begin] ? prefix : own);
    largest = std::max(largest, own);
  }
  return prefix + largest;
}

}  // namespace

ChunkPlan PlanChunks(const Forest& forest, size_t max_rows) {
  std::vector<size_t> best;
  size_t least = std::numeric_limits<size_t>::max();
  const auto consider = [&](size_t chunk_rows) {
    std::vector<size_t> cuts = Cuts(forest, chunk_rows);
    if (const size_t held = HeldRows(forest, cuts); held < least) {
      least = held;
      best = std::move(cuts);
    }
  };
  // Large chunks first: fewer of them take less time. Where nothing fits, the least is taken.
  constexpr size_t kSizes = 8;
  for (size_t size = kSizes; size > 0 && least > max_rows; --size)
    consider(std::max<size_t>(1, max_rows * size / kSizes));
  // Examples longer than a chunk: all their first parts would be held, one for each of them. A
  // chunk that has room for any example whole holds less.
  if (least > max_rows) {
    const int32_t deepest = *std::max_element(forest.depth.begin(), forest.depth.end());
    if (const size_t whole = static_cast<size_t>(deepest) + 1; whole > max_rows) consider(whole);
  }
  return PlanWith(forest, best);
}

size_t VisibleSpans(const Rows& rows, size_t begin, size_t count, size_t panel_width,
                    std::vector<KeySpan>* spans) {
  spans->clear();
  const auto low = static_cast<int32_t>(begin), high = static_cast<int32_t>(begin + count - 1);
  const auto width = static_cast<int32_t>(panel_width);
  const auto panel = [&](int32_t row) { return row / width * width; };
  for (int32_t j = 0; j <= high; ++j) {
    const auto row = static_cast<size_t>(j);
    if (rows.key_first[row] > high || rows.key_end[row] <= low) continue;
    if (spans->empty() || (j > spans->back().end && panel(j) > panel(spans->back().end - 1)))
      spans->push_back({j, j, j, 0});
    KeySpan& span = spans->back();
    span.end = j + 1;
    // Once a row between is missing, or not seen by all, the run of common rows has ended.
    if (span.all_end == j && rows.key_first[row] <= low && high < rows.key_end[row])
      span.all_end = j + 1;
  }
  size_t columns = 0;
  for (KeySpan& span : *spans) {
    span.column = columns;
    columns += CeilDiv(static_cast<size_t>(span.end - panel(span.begin)), 16) * 16;
  }
  return columns;
}

}  // namespace needle
