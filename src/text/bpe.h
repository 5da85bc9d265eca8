// Byte-pair encoding of code points: repeatedly joins the adjacent pair whose concatenation is the
// piece with the highest score, the leftmost on ties. O(n log n) in the length of a stretch.
// Source: SentencePiece's BPE model; docs/numerics.md "Tokenizer". Thread-safety: const calls are
// thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "text/tokenizer.h"

namespace needle {

/// A fixed hash table from 64-bit keys to ids, filled once.
class IdTable {
 public:
  IdTable() = default;
  /// Room for `entries` of them.
  explicit IdTable(size_t entries);
  /// The first value of a key stays.
  void Insert(uint64_t key, int32_t value);
  /// -1 when the key is absent.
  int32_t Find(uint64_t key) const;

 private:
  size_t Slot(uint64_t key) const;

  int shift_ = 63;
  std::vector<uint64_t> keys_;
  std::vector<int32_t> values_;  // -1 marks an empty slot
};

class BpeMerger {
 public:
  /// Learns the merges that the normal and user-defined pieces allow. Texts are valid UTF-8.
  explicit BpeMerger(std::span<const Piece> pieces);

  /// One stretch of code points between markers, merged and appended to `ids`. A code point that is
  /// no piece becomes its UTF-8 bytes through `byte_ids` [256].
  void Encode(std::span<const char32_t> stretch, std::span<const int32_t> byte_ids,
              std::vector<int32_t>& ids) const;

 private:
  struct Node;
  struct Candidate;
  class Agenda;

  std::vector<Node> NodesOf(std::span<const char32_t> stretch) const;
  void Propose(std::span<const Node> nodes, int32_t left, Agenda& agenda) const;
  void Merge(std::span<Node> nodes) const;

  int32_t pieces_ = 0;          // V; symbols from here on are code points that are no piece
  IdTable code_points_;         // code point -> symbol
  IdTable pairs_;               // (left symbol, right symbol) -> the piece that they make
  std::vector<uint32_t> rank_;  // [V] 0 is merged first; equal scores share a rank
};

}  // namespace needle
