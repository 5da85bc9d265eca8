#include "backend/pjrt/blocks.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>

#include "ops/engram.h"

namespace needle::pjrt {
namespace {

constexpr int64_t kFewestTargets = 64;

int64_t CeilDiv(int64_t n, int64_t by) { return (n + by - 1) / by; }

int64_t PowerOfTwo(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

/// Fills groups with rows of a forest in depth-first order.
class Cutter {
 public:
  Cutter(const Forest& forest, int64_t rows) : f_(forest), rows_(rows), local_(forest.rows(), -1) {}

  std::vector<Group> Run() {
    for (size_t row = 0; row < f_.rows(); ++row) {
      if (groups_.empty() || !StaysIn(row)) Start(static_cast<int32_t>(row));
      Append(static_cast<int32_t>(row), false);
    }
    return std::move(groups_);
  }

 private:
  /// A full group ends. So does one in which the coming example (or branch) would be cut though a
  /// fresh group holds it whole, when little is lost.
  bool StaysIn(size_t row) const {
    const int64_t room = rows_ - static_cast<int64_t>(groups_.back().source.size());
    if (room == 0) return false;
    const bool new_branch = f_.parent[row] != static_cast<int32_t>(row) - 1;
    const int64_t size = f_.subtree_end[row] - static_cast<int64_t>(row);
    if (!new_branch || size <= room) return true;
    const bool whole_later = f_.depth[row] + size <= rows_;
    return !whole_later || (f_.depth[row] > 0 && room >= rows_ / 8);
  }

  void Start(int32_t row) {
    groups_.emplace_back();
    std::vector<int32_t> ancestors;
    for (int32_t a = f_.parent[static_cast<size_t>(row)]; a >= 0;
         a = f_.parent[static_cast<size_t>(a)])
      ancestors.push_back(a);
    assert(static_cast<int64_t>(ancestors.size()) < rows_);
    for (size_t i = ancestors.size(); i-- > 0;) Append(ancestors[i], true);
  }

  void Append(int32_t row, bool is_copy) {
    Group& g = groups_.back();
    const int32_t parent = f_.parent[static_cast<size_t>(row)];
    g.parent.push_back(parent < 0 ? -1 : local_[static_cast<size_t>(parent)]);
    local_[static_cast<size_t>(row)] = static_cast<int32_t>(g.source.size());
    g.source.push_back(row);
    g.is_copy.push_back(is_copy);
  }

  const Forest& f_;
  int64_t rows_;
  std::vector<int32_t> local_;  // where a row of the forest is in the group at hand
  std::vector<Group> groups_;
};

/// Work of a group's rows, in multiply-adds a layer: projections, and attention over its keys.
double CostOf(const ModelConfig& c, int64_t rows) {
  const double D = c.d_model, A = c.AttnDim(), KE = c.KvDim();
  const double projections = D * (2 * A + 2 * KE) + A * D, others = 20 * D * c.mhc_lanes;
  return static_cast<double>(rows) * (projections + others + 2 * A * static_cast<double>(rows));
}

/// How a forest is laid out in groups of `shape.rows` rows; the shape's targets are chosen later.
struct Plan {
  BlockShape shape;
  std::vector<Group> groups;
  int64_t blocks = 0;  // a multiple of the replicas
};

const BlockShape* Existing(const BlockLimits& limits, int64_t rows) {
  for (const BlockShape& shape : limits.existing)
    if (shape.rows == rows) return &shape;
  return nullptr;
}

Plan PlanFor(const Forest& forest, int64_t rows, const BlockLimits& limits) {
  Plan plan;
  plan.groups = CutIntoGroups(forest, rows);
  const auto count = static_cast<int64_t>(plan.groups.size());
  if (const BlockShape* existing = Existing(limits, rows)) {
    plan.shape = *existing;
  } else {
    plan.shape.rows = rows;
    plan.shape.groups = std::min(PowerOfTwo(CeilDiv(count, limits.replicas)),
                                 std::max<int64_t>(1, limits.block_rows / rows));
  }
  plan.blocks = CeilDiv(CeilDiv(count, plan.shape.groups), limits.replicas) * limits.replicas;
  return plan;
}

Plan CheapestPlan(const Forest& forest, const ModelConfig& config, const BlockLimits& limits) {
  int64_t deepest = 0;
  for (const int32_t d : forest.depth) deepest = std::max<int64_t>(deepest, d);
  std::vector<int64_t> sizes;
  for (const int64_t rows : limits.group_rows)
    if (rows > deepest) sizes.push_back(rows);
  if (sizes.empty()) sizes.push_back(PowerOfTwo(deepest + 1));
  Plan best;
  double least = std::numeric_limits<double>::infinity();
  for (const int64_t rows : sizes) {
    Plan plan = PlanFor(forest, rows, limits);
    const double cost = CostOf(config, rows) * static_cast<double>(plan.blocks * plan.shape.groups);
    if (cost >= least) continue;
    least = cost;
    best = std::move(plan);
  }
  return best;
}

/// Targets [first, last) of a block's groups, in the order of their rows.
struct TargetRange {
  int64_t first = 0, last = 0;
};

class Filler {
 public:
  Filler(const Forest& forest, const ModelConfig& config, const BlockShape& shape)
      : f_(forest), c_(config), shape_(shape), first_target_(forest.rows() + 1) {
    for (const int32_t row : f_.target_row) ++first_target_[static_cast<size_t>(row) + 1];
    for (size_t i = 0; i < f_.rows(); ++i) first_target_[i + 1] += first_target_[i];
  }

  /// Rows of the groups; of their targets those in the range, which has room in the shape.
  Block Fill(std::span<const Group> groups, const TargetRange& range) const {
    Block b;
    b.shape = shape_;
    const auto N = static_cast<size_t>(shape_.total_rows());
    const auto tables = static_cast<size_t>(c_.engram_layers.empty() ? 0 : c_.EngramTables());
    b.tokens.assign(N, c_.pad_token_id);
    b.depth.assign(N, 0);
    b.subtree_end.resize(N);
    for (size_t i = 0; i < N; ++i)  // a free row sees itself
      b.subtree_end[i] = static_cast<int32_t>(i % static_cast<size_t>(shape_.rows)) + 1;
    b.conv_rows.assign((kConvTaps - 1) * N, -1);
    b.slots.assign(N * tables, -1);
    int64_t seen = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      const size_t first = g * static_cast<size_t>(shape_.rows);
      FillGroup(groups[g], first, b);
      for (size_t i = 0; i < groups[g].source.size(); ++i)
        if (!groups[g].is_copy[i])
          FillTargets(groups[g].source[i], static_cast<int32_t>(first + i), range, &seen, b);
    }
    b.asked = b.target_row.size();
    b.target_row.resize(static_cast<size_t>(shape_.targets));
    b.target_id.resize(static_cast<size_t>(shape_.targets));
    b.target_weight.resize(static_cast<size_t>(shape_.targets));
    return b;
  }

  int64_t TargetsOf(std::span<const Group> groups) const {
    int64_t n = 0;
    for (const Group& g : groups)
      for (size_t i = 0; i < g.source.size(); ++i)
        if (!g.is_copy[i]) n += Targets(g.source[i]);
    return n;
  }

 private:
  int64_t Targets(int32_t row) const {
    return first_target_[static_cast<size_t>(row) + 1] - first_target_[static_cast<size_t>(row)];
  }

  void FillGroup(const Group& g, size_t first, Block& b) const {
    const size_t n = g.source.size();
    std::vector<int32_t> tokens(n);
    for (size_t i = 0; i < n; ++i) {
      const auto source = static_cast<size_t>(g.source[i]);
      tokens[i] = b.tokens[first + i] = f_.tokens[source];
      b.depth[first + i] = f_.depth[source];
    }
    for (size_t i = n; i-- > 0;) {  // parents come first, so one walk backwards widens subtrees
      if (g.parent[i] < 0) continue;
      int32_t& end = b.subtree_end[first + static_cast<size_t>(g.parent[i])];
      end = std::max(end, b.subtree_end[first + i]);
    }
    if (!c_.engram_layers.empty()) FillMemory(g, tokens, first, b);
  }

  void FillMemory(const Group& g, const std::vector<int32_t>& tokens, size_t first,
                  Block& b) const {
    const size_t N = b.tokens.size(), tables = b.slots.size() / N;
    for (size_t i = 0; i < g.source.size(); ++i) {
      const std::span<int32_t> slots{&b.slots[(first + i) * tables], tables};
      EngramSlots(tokens, g.parent, static_cast<int32_t>(i), c_.engram_orders, c_.EngramHeads(),
                  static_cast<uint32_t>(c_.engram_slots), slots);
      for (size_t j = 0; j < tables; ++j)
        if (slots[j] >= 0) slots[j] += static_cast<int32_t>(j) * c_.engram_slots;
      int32_t row = static_cast<int32_t>(i);
      for (size_t k = 0; k + 1 < kConvTaps; ++k) {
        row = Ancestor(g.parent, row, c_.ConvDilation());
        if (row >= 0) b.conv_rows[k * N + first + i] = static_cast<int32_t>(first) + row;
      }
    }
  }

  void FillTargets(int32_t source, int32_t row, const TargetRange& range, int64_t* seen,
                   Block& b) const {
    for (int64_t t = first_target_[static_cast<size_t>(source)];
         t < first_target_[static_cast<size_t>(source) + 1]; ++t, ++*seen) {
      if (*seen < range.first || *seen >= range.last) continue;
      b.target_row.push_back(row);
      b.target_id.push_back(f_.target_id[static_cast<size_t>(t)]);
      b.target_weight.push_back(f_.target_weight[static_cast<size_t>(t)]);
    }
  }

  const Forest& f_;
  const ModelConfig& c_;
  BlockShape shape_;
  std::vector<int64_t> first_target_;  // targets are in order of their rows
};

}  // namespace

std::vector<Group> CutIntoGroups(const Forest& forest, int64_t rows) {
  return Cutter(forest, rows).Run();
}

std::vector<Block> BlocksOf(const Forest& forest, const ModelConfig& config,
                            const BlockLimits& limits) {
  Plan plan = CheapestPlan(forest, config, limits);
  const auto count = static_cast<int64_t>(plan.groups.size());
  const auto groups_of = [&](int64_t block) {
    const auto first = static_cast<size_t>(std::min(block * plan.shape.groups, count));
    const auto last = static_cast<size_t>(std::min((block + 1) * plan.shape.groups, count));
    return std::span<const Group>(plan.groups).subspan(first, last - first);
  };
  std::vector<int64_t> targets;
  const Filler counter(forest, config, plan.shape);
  for (int64_t i = 0; i < plan.blocks; ++i) targets.push_back(counter.TargetsOf(groups_of(i)));
  int64_t& room = plan.shape.targets;
  if (room == 0) {
    const int64_t most = *std::max_element(targets.begin(), targets.end());
    room = std::min(PowerOfTwo(std::max(most + most / 4, kFewestTargets)),
                    PowerOfTwo(std::max(plan.shape.total_rows(), most)));
  }
  const Filler filler(forest, config, plan.shape);
  std::vector<Block> out;
  for (int64_t i = 0; i < plan.blocks; ++i) {
    int64_t first = 0;
    do {  // again while there are targets that had no room
      out.push_back(filler.Fill(groups_of(i), {first, first + room}));
      first += room;
    } while (first < targets[static_cast<size_t>(i)]);
  }
  while (out.size() % static_cast<size_t>(limits.replicas) != 0) out.push_back(filler.Fill({}, {}));
  return out;
}

}  // namespace needle::pjrt
