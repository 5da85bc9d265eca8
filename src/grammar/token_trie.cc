#include "grammar/token_trie.h"

#include <algorithm>
#include <bitset>

namespace needle::grammar {

size_t TokenMask::Count() const {
  size_t n = 0;
  for (const uint64_t word : words_) n += std::bitset<64>(word).count();
  return n;
}

bool TokenMask::Any() const {
  return std::any_of(words_.begin(), words_.end(), [](uint64_t word) { return word != 0; });
}

TokenTrie::TokenTrie(std::vector<std::pair<std::string, int32_t>> tokens) {
  std::sort(tokens.begin(), tokens.end());
  std::vector<uint32_t> open;  // nodes of the current path
  std::string path;
  const auto close = [&](size_t depth) {
    for (; open.size() > depth; open.pop_back())
      nodes_[open.back()].end = static_cast<uint32_t>(nodes_.size());
    path.resize(depth);
  };
  for (const auto& [bytes, id] : tokens) {
    if (bytes.empty() || bytes.size() > 0xFFFF) continue;
    const auto differs = std::mismatch(path.begin(), path.end(), bytes.begin(), bytes.end());
    close(static_cast<size_t>(differs.first - path.begin()));
    while (path.size() < bytes.size()) {
      const auto next = static_cast<uint32_t>(ids_.size());
      open.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({static_cast<uint8_t>(bytes[path.size()]),
                        static_cast<uint16_t>(path.size()), 0, next, next});
      path.push_back(bytes[path.size()]);
    }
    ids_.push_back(id);
    nodes_[open.back()].last = static_cast<uint32_t>(ids_.size());
  }
  close(0);
}

void TokenTrie::Walk(ByteAutomaton* automaton, ByteAutomaton::State state, TokenMask* mask) const {
  std::vector<ByteAutomaton::State> at = {state};  // at[d]: after d bytes of the current path
  for (size_t i = 0; i < nodes_.size();) {
    const TrieNode& node = nodes_[i];
    const ByteAutomaton::State next = automaton->Next(at[node.depth], node.byte);
    if (next == ByteAutomaton::kDead) {
      i = node.end;
      continue;
    }
    at.resize(node.depth + size_t{1});
    at.push_back(next);
    for (uint32_t t = node.first; t < node.last; ++t) mask->Set(ids_[t]);
    ++i;
  }
}

std::vector<int32_t> TokenTrie::Exactly(const std::string& bytes) const {
  size_t begin = 0, end = nodes_.size();
  for (size_t d = 0; d < bytes.size(); ++d) {
    while (begin < end && nodes_[begin].byte != static_cast<uint8_t>(bytes[d]))
      begin = nodes_[begin].end;
    if (begin >= end) return {};
    if (d + 1 == bytes.size())
      return {ids_.begin() + nodes_[begin].first, ids_.begin() + nodes_[begin].last};
    end = nodes_[begin].end;
    ++begin;
  }
  return {};
}

}  // namespace needle::grammar
