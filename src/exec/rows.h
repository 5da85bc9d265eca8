// Rows: the row block that one executor call computes, and the ancestors it may read.
// A training chunk, a shared prefix, a prefill block and one decoded row are all this.
// A forest that is too large is run as one prefix (the rows that several chunks share) and chunks:
// each row is computed once, whatever the cuts. Thread-safety: values.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/kernels.h"
#include "ops/forest.h"

namespace needle {

/// Rows are numbered locally: [0, first) are context, computed before; [first, total) are computed
/// now. A parent has a smaller number than its child, -1 at a root.
struct Rows {
  size_t first = 0;
  std::vector<int32_t> tokens, parent, depth;  // [total]
  /// Row i sees key row j iff key_first[j] <= i && i < key_end[j].
  std::vector<int32_t> key_first, key_end;  // [total]
  std::vector<int32_t> target_row;          // [N] ascending, >= first
  std::vector<int32_t> target_id;           // [N]
  std::vector<float> target_weight;         // [N]

  size_t total() const { return tokens.size(); }
  size_t count() const { return tokens.size() - first; }  // T
};

/// `prefix` (first = 0, may have no rows) is computed before the chunks and differentiated after
/// them; each chunk sees it as its context (chunk.first == prefix.total()).
struct ChunkPlan {
  Rows prefix;
  std::vector<Rows> chunks;
};

/// Cuts a forest into chunks (each at least one row) so that the prefix and a chunk together have
/// at most `max_rows` rows, if cuts allow that; otherwise about as few as they allow. A chunk alone
/// has more only where a single example has. The rows of prefix and chunks together are the
/// forest's rows, each once.
ChunkPlan PlanChunks(const Forest& forest, size_t max_rows);

/// The keys that some query in rows [begin, begin + count) sees, as spans for the attention
/// kernels (spans whose panels touch are one span, rows between them seen by none), and the floats
/// that they take in a row of scores.
size_t VisibleSpans(const Rows& rows, size_t begin, size_t count, size_t panel_width,
                    std::vector<KeySpan>* spans);

}  // namespace needle
