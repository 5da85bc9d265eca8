// A batch as a forest: many examples, shared beginnings once. Position = depth; row i sees row j
// iff j <= i and i < subtree_end[j]. Chains and padded rows are special cases.
// Source: shared-prefix training is exact (docs/numerics.md). Thread-safety: a value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace needle {

struct Forest {
  std::vector<int32_t> tokens;       // [T] depth-first order
  std::vector<int32_t> parent;       // [T] row before it in its example, -1 at a root
  std::vector<int32_t> depth;        // [T] position: 0 at a root
  std::vector<int32_t> subtree_end;  // [T] row i sees row j: j <= i && i < subtree_end[j]
  std::vector<int32_t> target_row;   // [N] ascending; a row may have several targets
  std::vector<int32_t> target_id;    // [N] logits only there
  std::vector<float> target_weight;  // [N] how many examples ask for it, over the normaliser

  size_t rows() const { return tokens.size(); }
  size_t targets() const { return target_row.size(); }
};

/// One example of a batch: ids, and per id whether (and how strongly) predicting it counts.
struct Sequence {
  std::span<const int32_t> ids;    // BOS, prompt, target, EOS; already cut
  std::span<const float> weights;  // same length; weights[0] is never read (nothing predicts it)
};

enum class Packing {
  kTree,    // shared beginnings once
  kChain,   // each example its own chain
  kPadded,  // each example its own chain, padded with id 0 to `padded_length`
};

/// Builds a forest. Every target weight is divided by `normaliser` (> 0): the sum of the weights of
/// the whole batch, or 1. Weights of 0 make no target; equal targets of one row are one target with
/// the sum of their weights, so in a tree examples with equal ids merge into weights. Targets of a
/// row are in order of first appearance, trees and branches too. Every token of every sequence has
/// a row, also one that no target depends on. `padded_length` is read by kPadded only. Shapes: T <=
/// sum of lengths.
Forest BuildForest(std::span<const Sequence> batch, Packing packing, float normaliser,
                   size_t padded_length = 0);

/// The number of distinct non-empty prefixes of the sequences: rows of the tree.
size_t DistinctPrefixes(std::span<const Sequence> batch);

}  // namespace needle
