#include "text/bpe.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/utf8.h"

namespace needle {

IdTable::IdTable(size_t entries) {
  const size_t slots = std::bit_ceil(2 * entries + 2);  // at most half full, so probes end soon
  shift_ = 64 - std::countr_zero(slots);
  keys_.resize(slots);
  values_.assign(slots, -1);
}

size_t IdTable::Slot(uint64_t key) const {
  const size_t mask = keys_.size() - 1;
  size_t slot = (key * 0x9E3779B97F4A7C15u) >> shift_;  // the high bits depend on the whole key
  while (values_[slot] >= 0 && keys_[slot] != key) slot = (slot + 1) & mask;
  return slot;
}

void IdTable::Insert(uint64_t key, int32_t value) {
  const size_t slot = Slot(key);
  if (values_[slot] >= 0) return;
  keys_[slot] = key;
  values_[slot] = value;
}

int32_t IdTable::Find(uint64_t key) const { return keys_.empty() ? -1 : values_[Slot(key)]; }

namespace {

bool Mergeable(const Piece& piece) {
  return piece.type == PieceType::kNormal || piece.type == PieceType::kUserDefined;
}

uint64_t PairKey(int32_t left, int32_t right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}

/// Ranks by score, the highest first; equal scores share a rank, so that ties go to the leftmost.
std::vector<uint32_t> RanksOf(std::span<const Piece> pieces) {
  std::vector<float> scores;
  for (const Piece& piece : pieces) scores.push_back(piece.score);
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  std::vector<uint32_t> ranks;
  for (const Piece& piece : pieces)
    ranks.push_back(static_cast<uint32_t>(
        std::lower_bound(scores.begin(), scores.end(), piece.score, std::greater<>()) -
        scores.begin()));
  return ranks;
}

/// Symbols while the tables are built: every mergeable piece, and every code point inside one.
class SymbolTable {
 public:
  explicit SymbolTable(std::span<const Piece> pieces) : next_(static_cast<int32_t>(pieces.size())) {
    for (size_t id = 0; id < pieces.size(); ++id)
      if (Mergeable(pieces[id])) by_text_.emplace(pieces[id].text, static_cast<int32_t>(id));
    for (const Piece& piece : pieces)
      if (Mergeable(piece)) AddCodePoints(piece.text);
  }

  int32_t Find(std::string_view text) const {
    const auto found = by_text_.find(text);
    return found == by_text_.end() ? -1 : found->second;
  }
  const std::vector<std::pair<char32_t, int32_t>>& code_points() const { return code_points_; }

 private:
  void AddCodePoints(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
      const CodePoint c = DecodeUtf8(text, at);
      assert(c.length > 0);
      const auto [entry, is_new] = by_text_.emplace(text.substr(at, c.length), next_);
      next_ += is_new ? 1 : 0;
      code_points_.emplace_back(c.value, entry->second);
      at += c.length;
    }
  }

  int32_t next_;
  std::unordered_map<std::string_view, int32_t> by_text_;  // views into the pieces
  std::vector<std::pair<char32_t, int32_t>> code_points_;  // with repetitions
};

struct LearntPair {
  uint64_t key;
  int32_t piece;
};

/// Every way to cut `text` into two symbols.
void AppendPairs(std::string_view text, int32_t piece, const SymbolTable& symbols,
                 std::vector<LearntPair>& pairs) {
  for (size_t cut = DecodeUtf8(text, 0).length; cut < text.size();
       cut += DecodeUtf8(text, cut).length) {
    const int32_t left = symbols.Find(text.substr(0, cut));
    const int32_t right = symbols.Find(text.substr(cut));
    if (left >= 0 && right >= 0) pairs.push_back({PairKey(left, right), piece});
  }
}

}  // namespace

BpeMerger::BpeMerger(std::span<const Piece> pieces)
    : pieces_(static_cast<int32_t>(pieces.size())), rank_(RanksOf(pieces)) {
  const SymbolTable symbols(pieces);
  code_points_ = IdTable(symbols.code_points().size());
  for (const auto& [c, symbol] : symbols.code_points()) code_points_.Insert(c, symbol);
  std::vector<LearntPair> pairs;
  for (size_t id = 0; id < pieces.size(); ++id)
    if (Mergeable(pieces[id]))
      AppendPairs(pieces[id].text, static_cast<int32_t>(id), symbols, pairs);
  pairs_ = IdTable(pairs.size());
  for (const LearntPair& pair : pairs) pairs_.Insert(pair.key, pair.piece);
}

/// A symbol of the stretch, in a doubly linked list; a joined one lives on in its left part.
struct BpeMerger::Node {
  int32_t symbol = -1;      // -1: a code point that no piece contains
  int32_t next = -1;        // -1 at the end
  int32_t previous = -1;    // -1 at the beginning
  int32_t code_points = 1;  // 0: absorbed by the node before
  char32_t code_point = 0;  // the first one
};

struct BpeMerger::Candidate {
  uint64_t order;       // rank of the result, then position: the smallest is merged first
  int32_t right;        // the left node is the position in `order`
  int32_t piece;        // what the two become
  int32_t code_points;  // of both together; differs once one of them has grown

  bool operator<(const Candidate& other) const { return order > other.order; }
};

class BpeMerger::Agenda : public std::priority_queue<Candidate> {
 public:
  void Reserve(size_t n) { c.reserve(n); }
};

std::vector<BpeMerger::Node> BpeMerger::NodesOf(std::span<const char32_t> stretch) const {
  std::vector<Node> nodes(stretch.size());
  for (size_t i = 0; i < stretch.size(); ++i) {
    nodes[i].symbol = code_points_.Find(stretch[i]);
    nodes[i].previous = static_cast<int32_t>(i) - 1;
    nodes[i].next = i + 1 < stretch.size() ? static_cast<int32_t>(i) + 1 : -1;
    nodes[i].code_point = stretch[i];
  }
  return nodes;
}

void BpeMerger::Propose(std::span<const Node> nodes, int32_t left, Agenda& agenda) const {
  if (left < 0 || nodes[left].next < 0) return;
  const Node& l = nodes[left];
  const Node& r = nodes[l.next];
  if (l.symbol < 0 || r.symbol < 0) return;
  const int32_t piece = pairs_.Find(PairKey(l.symbol, r.symbol));
  if (piece < 0) return;
  const uint64_t order = (uint64_t{rank_[piece]} << 32) | static_cast<uint32_t>(left);
  agenda.push({order, l.next, piece, l.code_points + r.code_points});
}

void BpeMerger::Merge(std::span<Node> nodes) const {
  Agenda agenda;
  agenda.Reserve(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) Propose(nodes, static_cast<int32_t>(i), agenda);
  while (!agenda.empty()) {
    const Candidate best = agenda.top();
    agenda.pop();
    const auto left = static_cast<int32_t>(best.order & 0xFFFFFFFF);
    Node& l = nodes[left];
    Node& r = nodes[best.right];
    const bool stale = l.code_points == 0 || r.code_points == 0 ||
                       l.code_points + r.code_points != best.code_points;
    if (stale) continue;
    l.symbol = best.piece;
    l.code_points = best.code_points;
    l.next = r.next;
    r.code_points = 0;
    if (l.next >= 0) nodes[l.next].previous = left;
    Propose(nodes, l.previous, agenda);
    Propose(nodes, left, agenda);
  }
}

void BpeMerger::Encode(std::span<const char32_t> stretch, std::span<const int32_t> byte_ids,
                       std::vector<int32_t>& ids) const {
  std::vector<Node> nodes = NodesOf(stretch);
  Merge(nodes);
  for (int32_t at = nodes.empty() ? -1 : 0; at >= 0; at = nodes[at].next) {
    const Node& node = nodes[at];
    if (node.symbol >= 0 && node.symbol < pieces_) {
      ids.push_back(node.symbol);
      continue;
    }
    std::string utf8;
    AppendUtf8(utf8, node.code_point);
    for (const char byte : utf8) ids.push_back(byte_ids[static_cast<uint8_t>(byte)]);
  }
}

}  // namespace needle
