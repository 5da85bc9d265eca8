// A forest as blocks of fixed shape, which is what a compiled program takes: G groups of T rows,
// attention only inside a group. A tree that does not fit is cut: the rest goes on in the next
// group, behind a copy of its ancestors (rows depend on their ancestors alone, so a copy is exact;
// each target is asked for once). Free rows are roots of their own that nothing asks about.
// Shapes: N = G * T rows; P targets (free ones have weight 0); O = conv taps - 1.
// Source: MODEL.md 4.3 (n-grams and taps walk up the parents). Thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "ops/forest.h"

namespace needle::pjrt {

/// What a program is compiled for.
struct BlockShape {
  int64_t groups = 1;   // G
  int64_t rows = 256;   // T, of a group
  int64_t targets = 0;  // P
  int64_t total_rows() const { return groups * rows; }
  // clang-tidy 14 takes the comparison with 0 inside a defaulted <=> for a null pointer.
  // NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const BlockShape&, const BlockShape&) = default;
};

struct Block {
  BlockShape shape;
  std::vector<int32_t> tokens, depth;  // [N]
  std::vector<int32_t> subtree_end;    // [N] within the group: row i sees j <= i < end[j]
  std::vector<int32_t> conv_rows;      // [O, N] row of the block that each tap reads, or -1
  std::vector<int32_t> slots;          // [N, tables] row of the joint n-gram table, or -1
  std::vector<int32_t> target_row;     // [P] row of the block
  std::vector<int32_t> target_id;      // [P]
  std::vector<float> target_weight;    // [P]
  size_t asked = 0;                    // targets that are not free
};

/// Which rows of a forest, copies included, make up one group.
struct Group {
  std::vector<int32_t> source;  // row of the forest
  std::vector<int32_t> parent;  // row of the group, or -1
  std::vector<bool> is_copy;
};

/// Groups of at most `rows` rows that cover the forest. Wants every depth < rows.
std::vector<Group> CutIntoGroups(const Forest& forest, int64_t rows);

struct BlockLimits {
  std::vector<int64_t> group_rows = {256, 512, 1024, 2048};  // T: one of these, or larger powers
  int64_t block_rows = 4096;                                 // G * T at most (or one group)
  int64_t replicas = 1;                                      // blocks come in multiples of this
  /// Shapes that programs exist for. One with the chosen T is taken as it is, so that there is one
  /// program a T: a batch with more groups takes more blocks, and a block whose targets have no
  /// room comes again with the rest of them (which is exact: a loss is a sum over targets).
  std::vector<BlockShape> existing = {};
};

/// Cuts and fills. All blocks of a batch have one shape: groups and targets are powers of two, and
/// a new shape has room for a quarter more targets than are asked for. T is the one that costs the
/// least. Blocks added for the replicas hold no target.
std::vector<Block> BlocksOf(const Forest& forest, const ModelConfig& config,
                            const BlockLimits& limits);

}  // namespace needle::pjrt
