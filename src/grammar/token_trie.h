// The vocabulary as a tree of bytes, so that the tokens an automaton allows are found in one walk
// that steps over each shared beginning once; and the mask that the walk fills.
// Thread-safety: const after construction.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "grammar/byte_automaton.h"

namespace needle::grammar {

/// A set of token ids.
class TokenMask {
 public:
  explicit TokenMask(size_t vocabulary = 0) : words_((vocabulary + 63) / 64), size_(vocabulary) {}
  void Set(int32_t id) { words_[static_cast<size_t>(id) / 64] |= uint64_t{1} << (id % 64); }
  bool Test(int32_t id) const {
    return id >= 0 && static_cast<size_t>(id) < size_ &&
           ((words_[static_cast<size_t>(id) / 64] >> (id % 64)) & 1) != 0;
  }
  size_t size() const { return size_; }
  size_t Count() const;
  bool Any() const;

 private:
  std::vector<uint64_t> words_;
  size_t size_ = 0;
};

class TokenTrie {
 public:
  /// From (bytes, id) pairs; tokens without bytes are left out.
  explicit TokenTrie(std::vector<std::pair<std::string, int32_t>> tokens);

  /// Adds to `mask` every token whose bytes the automaton can read from `state` on.
  void Walk(ByteAutomaton* automaton, ByteAutomaton::State state, TokenMask* mask) const;
  /// Ids of the tokens that are exactly these bytes.
  std::vector<int32_t> Exactly(const std::string& bytes) const;

 private:
  struct TrieNode {
    uint8_t byte;
    uint16_t depth;        // bytes before this one
    uint32_t end;          // index after the nodes below this one
    uint32_t first, last;  // ids_[first..last) end here
  };
  std::vector<TrieNode> nodes_;  // depth first
  std::vector<int32_t> ids_;
};

}  // namespace needle::grammar
