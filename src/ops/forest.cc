#include "ops/forest.h"

#include <algorithm>
#include <cassert>
#include <map>
#include <unordered_map>

namespace needle {
namespace {

/// A prefix of at least one sequence of the batch.
struct TrieNode {
  int32_t token = 0;
  int32_t first_child = -1;  // children in order of first appearance
  int32_t last_child = -1;
  int32_t next_sibling = -1;
  int32_t parent = -1;
  std::vector<std::pair<int32_t, double>> targets{};  // what follows, and how much it counts
};

/// Adds a weight to the target `id`; the same id of another example is the same target.
void AddTarget(std::vector<std::pair<int32_t, double>>& targets, int32_t id, float weight) {
  if (weight == 0) return;
  for (auto& [known, sum] : targets) {
    if (known != id) continue;
    sum += weight;
    return;
  }
  targets.emplace_back(id, weight);
}

class Trie {
 public:
  Trie() : nodes_(1) {}  // node 0 is the empty prefix

  void Insert(const Sequence& s) {
    int32_t at = 0;
    for (size_t t = 0; t < s.ids.size(); ++t) {
      at = Child(at, s.ids[t]);
      if (t + 1 < s.ids.size()) AddTarget(nodes_[at].targets, s.ids[t + 1], s.weights[t + 1]);
    }
  }

  const std::vector<TrieNode>& nodes() const { return nodes_; }

 private:
  int32_t Child(int32_t parent, int32_t token) {
    const uint64_t key =
        (uint64_t{static_cast<uint32_t>(parent)} << 32) | static_cast<uint32_t>(token);
    const auto [entry, is_new] = children_.emplace(key, static_cast<int32_t>(nodes_.size()));
    if (!is_new) return entry->second;
    const int32_t child = entry->second;
    nodes_.push_back({.token = token, .parent = parent});
    TrieNode& p = nodes_[parent];
    (p.first_child < 0 ? p.first_child : nodes_[p.last_child].next_sibling) = child;
    p.last_child = child;
    return child;
  }

  std::vector<TrieNode> nodes_;
  std::unordered_map<uint64_t, int32_t> children_;  // (parent, token) -> node
};

int32_t AppendRow(Forest& f, int32_t token, int32_t parent) {
  const auto row = static_cast<int32_t>(f.rows());
  f.tokens.push_back(token);
  f.parent.push_back(parent);
  f.depth.push_back(parent < 0 ? 0 : f.depth[parent] + 1);
  f.subtree_end.push_back(row + 1);  // SetSubtreeEnds widens it
  return row;
}

void AppendTarget(Forest& f, int32_t row, int32_t id, double weight, float normaliser) {
  f.target_row.push_back(row);
  f.target_id.push_back(id);
  f.target_weight.push_back(static_cast<float>(weight / normaliser));
}

/// Parents come before their children, so one walk backwards widens every subtree.
void SetSubtreeEnds(Forest& f) {
  for (size_t i = f.rows(); i-- > 0;) {
    const int32_t p = f.parent[i];
    if (p >= 0) f.subtree_end[p] = std::max(f.subtree_end[p], f.subtree_end[i]);
  }
}

/// The trie in depth-first order, children in order of first appearance.
Forest TreeForest(std::span<const Sequence> batch, float normaliser) {
  Trie trie;
  for (const Sequence& s : batch) trie.Insert(s);
  const std::vector<TrieNode>& nodes = trie.nodes();
  std::vector<int32_t> row_of(nodes.size(), -1);  // the empty prefix is "before the root", row -1
  Forest f;
  for (int32_t at = nodes[0].first_child; at > 0;) {
    const TrieNode& node = nodes[at];
    row_of[at] = AppendRow(f, node.token, row_of[node.parent]);
    for (const auto& [id, weight] : node.targets)
      AppendTarget(f, row_of[at], id, weight, normaliser);
    if (node.first_child >= 0) {
      at = node.first_child;
      continue;
    }
    while (at > 0 && nodes[at].next_sibling < 0) at = nodes[at].parent;
    if (at > 0) at = nodes[at].next_sibling;
  }
  return f;
}

void AppendChain(Forest& f, const Sequence& s, size_t length, float normaliser) {
  int32_t row = -1;
  for (size_t t = 0; t < length; ++t) {
    row = AppendRow(f, t < s.ids.size() ? s.ids[t] : 0, row);
    if (t + 1 >= s.ids.size() || s.weights[t + 1] == 0) continue;
    AppendTarget(f, row, s.ids[t + 1], s.weights[t + 1], normaliser);
  }
}

}  // namespace

Forest BuildForest(std::span<const Sequence> batch, Packing packing, float normaliser,
                   size_t padded_length) {
  assert(normaliser > 0);
  Forest f;
  if (packing == Packing::kTree) {
    f = TreeForest(batch, normaliser);
  } else {
    for (const Sequence& s : batch) {
      assert(packing != Packing::kPadded || s.ids.size() <= padded_length);
      AppendChain(f, s, packing == Packing::kPadded ? padded_length : s.ids.size(), normaliser);
    }
  }
  SetSubtreeEnds(f);
  return f;
}

size_t DistinctPrefixes(std::span<const Sequence> batch) {
  // Sorted, a sequence adds the prefixes that it does not share with the one before it.
  std::vector<std::span<const int32_t>> sorted;
  for (const Sequence& s : batch) sorted.push_back(s.ids);
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  });
  size_t count = 0;
  for (size_t i = 0; i < sorted.size(); ++i) {
    count += sorted[i].size();
    if (i == 0) continue;
    const auto [mine, theirs] = std::mismatch(sorted[i].begin(), sorted[i].end(),
                                              sorted[i - 1].begin(), sorted[i - 1].end());
    count -= static_cast<size_t>(mine - sorted[i].begin());
  }
  return count;
}

}  // namespace needle
