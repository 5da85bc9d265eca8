#include "grammar/byte_automaton.h"

#include <algorithm>
#include <cassert>
#include <string_view>
#include <utility>

#include "grammar/utf8.h"

namespace needle::grammar {
namespace {

// A schema whose alternatives overlap at every level could make ever larger states. Beyond this
// many stacks (plus what one union needs) the later ones are left out: still sound, never stuck.
constexpr size_t kMaxStacks = 1024;

// Phases of kString: 0..7 are Utf8 states inside the body.
constexpr uint32_t kOpenQuote = 16, kEscape = 17, kHex1 = 18, kHex2 = 19, kHex3 = 20, kHexLow = 21,
                   kHexHigh = 22;
// Phases of kNumber and kInteger.
enum NumberPhase : uint32_t {
  kSign,
  kMinus,
  kZero,
  kDigits,
  kPoint,
  kFraction,
  kExponent,
  kExponentSign,
  kExponentDigit,
  kExponentDigits
};
// Phases of kArray, kObject and kMap.
enum ListPhase : uint32_t { kClosed, kOpened, kKey, kColon, kAfterValue, kAfterComma };

bool IsDigit(uint8_t b) { return b >= '0' && b <= '9'; }

/// texts[*lo..*hi) whose byte `pos` is `byte` (all share the bytes before it; sorted).
void Narrow(const std::vector<std::string>& texts, uint32_t pos, uint8_t byte, uint32_t* lo,
            uint32_t* hi) {
  // A text that ends at pos sorts first.
  const auto at = [&](const std::string& text) {
    return text.size() > pos ? static_cast<int>(static_cast<uint8_t>(text[pos])) : -1;
  };
  const auto begin = texts.begin() + *lo, end = texts.begin() + *hi;
  const auto first = std::lower_bound(begin, end, int{byte},
                                      [&](const std::string& text, int b) { return at(text) < b; });
  const auto last = std::upper_bound(first, end, int{byte},
                                     [&](int b, const std::string& text) { return b < at(text); });
  *lo = static_cast<uint32_t>(first - texts.begin());
  *hi = static_cast<uint32_t>(last - texts.begin());
}

}  // namespace

size_t ByteAutomaton::FrameHash::operator()(const Frame& f) const {
  uint64_t h = 0x9E3779B97F4A7C15ull;
  for (const uint32_t v : {f.parent, f.node, f.phase, f.lo, f.hi, f.pos, f.extra}) {
    h = (h ^ v) * 0xFF51AFD7ED558CCDull;
    h ^= h >> 32;
  }
  return static_cast<size_t>(h);
}

ByteAutomaton::ByteAutomaton(std::shared_ptr<const SchemaGraph> graph)
    : graph_(std::move(graph)), max_stacks_(kMaxStacks + graph_->largest_union) {
  Clear();
}

void ByteAutomaton::Clear() {
  stacks_.assign(1, Frame{});
  stack_ids_.clear();
  seen_sets_.assign(1, {});
  seen_ids_ = {{{}, 0}};
  states_.clear();
  state_ids_.clear();
  Stacks first;
  Push(graph_->root, 0, &first);
  start_ = InternState(std::move(first));
}

ByteAutomaton::State ByteAutomaton::Compact(State keep) {
  if (keep == kDead) {
    Clear();
    return kDead;
  }
  const std::vector<Frame> old = std::move(stacks_);
  const std::vector<std::vector<uint32_t>> old_seen = std::move(seen_sets_);
  const Stacks kept = std::move(states_[Index(keep)].stacks);
  Clear();
  std::unordered_map<StackId, StackId> moved = {{0, 0}};
  Stacks stacks;
  for (StackId id : kept) {
    std::vector<StackId> path;  // from the top down to a stack that was moved already
    for (; moved.find(id) == moved.end(); id = old[id].parent) path.push_back(id);
    for (; !path.empty(); path.pop_back()) {
      Frame frame = old[path.back()];
      frame.parent = moved[frame.parent];
      if (NodeOf(frame).kind == NodeKind::kObject) {
        uint32_t seen = 0;
        for (const uint32_t property : old_seen[frame.extra]) seen = WithSeen(seen, property);
        frame.extra = seen;
      }
      moved[path.back()] = Intern(frame);
    }
  }
  for (const StackId id : kept) stacks.push_back(moved[id]);
  return InternState(std::move(stacks));
}

ByteAutomaton::StackId ByteAutomaton::Intern(const Frame& frame) {
  const auto [it, inserted] = stack_ids_.emplace(frame, static_cast<StackId>(stacks_.size()));
  if (inserted) stacks_.push_back(frame);
  return it->second;
}

ByteAutomaton::State ByteAutomaton::InternState(Stacks stacks) {
  std::sort(stacks.begin(), stacks.end());
  stacks.erase(std::unique(stacks.begin(), stacks.end()), stacks.end());
  if (stacks.size() > max_stacks_) stacks.resize(max_stacks_);
  if (stacks.empty()) return kDead;
  const auto [it, inserted] = state_ids_.emplace(stacks, static_cast<State>(states_.size()));
  if (!inserted) return it->second;
  StateData data;
  data.accepts = std::any_of(stacks.begin(), stacks.end(), [&](StackId s) { return Complete(s); });
  data.stacks = std::move(stacks);
  states_.push_back(std::move(data));
  return it->second;
}

uint32_t ByteAutomaton::WithSeen(uint32_t seen, uint32_t property) {
  std::vector<uint32_t> set = seen_sets_[seen];
  set.insert(std::lower_bound(set.begin(), set.end(), property), property);
  const auto [it, inserted] =
      seen_ids_.emplace(std::move(set), static_cast<uint32_t>(seen_sets_.size()));
  if (inserted) seen_sets_.push_back(it->first);
  return it->second;
}

bool ByteAutomaton::Seen(uint32_t seen, uint32_t property) const {
  const std::vector<uint32_t>& set = seen_sets_[seen];
  return std::binary_search(set.begin(), set.end(), property);
}

/// True if the smallest value of `node` still fits under `depth` open lists and objects.
bool ByteAutomaton::Fits(uint32_t node, uint32_t depth) const {
  return depth + graph_->nodes[node].min_depth <= kMaxDepth;
}

void ByteAutomaton::Push(uint32_t node, StackId parent, Stacks* out) {
  const uint32_t depth = stacks_[parent].depth;
  const Node& n = graph_->nodes[node];
  if (!Fits(node, depth)) return;
  if (n.kind == NodeKind::kUnion) {
    for (const uint32_t child : n.children) Push(child, parent, out);
    return;
  }
  Frame frame;
  frame.parent = parent;
  frame.node = node;
  frame.hi = static_cast<uint32_t>(n.texts.size());
  frame.depth = depth;
  if (n.kind == NodeKind::kString) frame.phase = kOpenQuote;
  if (n.kind == NodeKind::kArray || n.kind == NodeKind::kObject || n.kind == NodeKind::kMap)
    ++frame.depth;
  if (n.kind == NodeKind::kSequence) frame.hi = 0;
  out->push_back(Intern(frame));
}

ByteAutomaton::State ByteAutomaton::Next(State state, uint8_t byte) {
  if (state == kDead) return kDead;
  if (states_[Index(state)].next == nullptr) {
    states_[Index(state)].next = std::make_unique<std::array<State, 256>>();
    states_[Index(state)].next->fill(kUnknown);
  }
  if (const State known = (*states_[Index(state)].next)[byte]; known != kUnknown) return known;
  Stacks out;
  const Stacks stacks = states_[Index(state)].stacks;
  for (const StackId stack : stacks) Step(stack, byte, &out);
  const State next = InternState(std::move(out));
  (*states_[Index(state)].next)[byte] = next;
  return next;
}

ByteAutomaton::State ByteAutomaton::Next(State state, std::string_view text) {
  for (const char c : text) state = Next(state, static_cast<uint8_t>(c));
  return state;
}

/// True if nothing more needs to be read for this frame, though more may be.
bool ByteAutomaton::MayEnd(const Frame& frame) const {
  const Node& node = NodeOf(frame);
  switch (node.kind) {
    case NodeKind::kLiterals:  // a shorter text that is the beginning of longer ones sorts first
      return node.texts[frame.lo].size() == frame.pos;
    case NodeKind::kInteger:
    case NodeKind::kNumber:
      return frame.phase == kZero || frame.phase == kDigits || frame.phase == kFraction ||
             frame.phase == kExponentDigits;
    case NodeKind::kText:
      return frame.phase == static_cast<uint32_t>(Utf8::kBoundary);
    default:
      return false;
  }
}

bool ByteAutomaton::Complete(StackId stack) const {
  while (stack != 0 && MayEnd(stacks_[stack])) stack = stacks_[stack].parent;
  return stack == 0;
}

void ByteAutomaton::Step(StackId stack, uint8_t byte, Stacks* out) {
  if (stack == 0) return;
  const Frame frame = stacks_[stack];
  switch (NodeOf(frame).kind) {
    case NodeKind::kLiterals:
      StepLiterals(frame, byte, out);
      break;
    case NodeKind::kString:
      StepString(frame, byte, out);
      break;
    case NodeKind::kText:
      StepText(frame, byte, out);
      break;
    case NodeKind::kInteger:
    case NodeKind::kNumber:
      StepNumber(frame, byte, out);
      break;
    case NodeKind::kArray:
      StepArray(frame, byte, out);
      break;
    case NodeKind::kObject:
      StepObject(frame, byte, out);
      break;
    case NodeKind::kMap:
      StepMap(frame, byte, out);
      break;
    case NodeKind::kSequence:
      StepSequence(frame, byte, out);
      break;
    case NodeKind::kUnion:
      assert(false);
      break;
  }
  if (MayEnd(frame)) Step(frame.parent, byte, out);
}

void ByteAutomaton::StepLiterals(const Frame& frame, uint8_t byte, Stacks* out) {
  const std::vector<std::string>& texts = NodeOf(frame).texts;
  Frame next = frame;
  Narrow(texts, frame.pos, byte, &next.lo, &next.hi);
  if (next.lo == next.hi) return;
  ++next.pos;
  const bool only = next.hi - next.lo == 1 && texts[next.lo].size() == next.pos;
  out->push_back(only ? frame.parent : Intern(next));
}

void ByteAutomaton::StepString(Frame frame, uint8_t byte, Stacks* out) {
  const bool hex = IsDigit(byte) || (byte >= 'a' && byte <= 'f');
  const auto go = [&](bool allowed, uint32_t phase) {
    frame.phase = phase;
    if (allowed) out->push_back(Intern(frame));
  };
  switch (frame.phase) {
    case kOpenQuote:
      return go(byte == '"', 0);
    case kEscape:
      if (byte == 'u') return go(true, kHex1);
      return go(
          std::string_view("\"\\nrtfb").find(static_cast<char>(byte)) != std::string_view::npos, 0);
    case kHex1:
      return go(byte == '0', kHex2);
    case kHex2:
      return go(byte == '0', kHex3);
    case kHex3:
      return go(byte == '0' || byte == '1', byte == '0' ? kHexLow : kHexHigh);
    case kHexLow:  // 08 09 0a 0c 0d have short forms, which Python writes
      return go(IsDigit(byte) ? byte < '8' : byte == 'b' || byte == 'e' || byte == 'f', 0);
    case kHexHigh:
      return go(hex, 0);
    default:
      break;
  }
  if (frame.phase == 0) {
    if (byte == '"') return out->push_back(frame.parent);
    if (byte == '\\') return go(true, kEscape);
    if (byte < 0x20) return;
  }
  const Utf8 next = Utf8Next(static_cast<Utf8>(frame.phase), byte);
  go(next != Utf8::kInvalid, static_cast<uint32_t>(next));
}

void ByteAutomaton::StepText(Frame frame, uint8_t byte, Stacks* out) {
  const Utf8 next = Utf8Next(static_cast<Utf8>(frame.phase), byte);
  frame.phase = static_cast<uint32_t>(next);
  if (next != Utf8::kInvalid) out->push_back(Intern(frame));
}

void ByteAutomaton::StepNumber(Frame frame, uint8_t byte, Stacks* out) {
  const bool real = NodeOf(frame).kind == NodeKind::kNumber;
  const auto go = [&](uint32_t phase) {
    frame.phase = phase;
    out->push_back(Intern(frame));
  };
  switch (frame.phase) {
    case kSign:
      if (byte == '-') return go(kMinus);
      [[fallthrough]];
    case kMinus:
      if (byte == '0' && (real || frame.phase == kSign)) return go(kZero);  // the integer -0 is 0
      if (byte >= '1' && byte <= '9') return go(kDigits);
      return;
    case kDigits:
      if (IsDigit(byte)) return go(kDigits);
      [[fallthrough]];
    case kZero:
      if (real && byte == '.') return go(kPoint);
      if (real && byte == 'e') return go(kExponent);
      return;
    case kPoint:
      if (IsDigit(byte)) go(kFraction);
      return;
    case kFraction:
      if (IsDigit(byte)) return go(kFraction);
      if (byte == 'e') go(kExponent);
      return;
    case kExponent:
      if (byte == '+' || byte == '-') go(kExponentSign);
      return;
    case kExponentSign:
      if (IsDigit(byte)) go(kExponentDigit);
      return;
    default:  // Python writes two exponent digits or more
      if (IsDigit(byte)) go(kExponentDigits);
      return;
  }
}

void ByteAutomaton::StepArray(Frame frame, uint8_t byte, Stacks* out) {
  const StackId parent = frame.parent;
  const Node& node = NodeOf(frame);
  const auto wait = [&](uint32_t phase) {
    frame.phase = phase;
    return Intern(frame);
  };
  const auto item = [&](Stacks* to) {  // this frame continues after the item
    if (frame.extra >= node.max_items) return;
    // Beyond both limits the count no longer matters, so that a long list does not need new states.
    const uint32_t cap = node.max_items == kNoLimit ? node.min_items : node.max_items;
    Frame after = frame;
    after.extra = std::min(frame.extra + 1, cap);
    after.phase = kAfterValue;
    Push(node.children[0], Intern(after), to);
  };
  if (frame.phase == kClosed) {
    if (byte == '[') out->push_back(wait(kOpened));
    return;
  }
  if (byte == ']' && (frame.phase == kOpened || frame.phase == kAfterValue)) {
    if (frame.extra >= node.min_items) out->push_back(parent);
    return;
  }
  if (frame.phase == kAfterValue) {
    if (byte != ',' || frame.extra >= node.max_items) return;
    out->push_back(wait(kAfterComma));
    return;
  }
  Stacks first;  // kOpened or kAfterComma: the byte begins an item
  item(&first);
  for (const StackId stack : first) Step(stack, byte, out);
}

bool ByteAutomaton::OffersKey(const Frame& frame, uint32_t property) const {
  return !Seen(frame.extra, property) && Fits(NodeOf(frame).children[property], frame.depth);
}

bool ByteAutomaton::OffersAnyKey(const Frame& frame, uint32_t lo, uint32_t hi) const {
  for (uint32_t i = lo; i < hi; ++i)
    if (OffersKey(frame, i)) return true;
  return false;
}

bool ByteAutomaton::HasAllRequired(const Frame& frame) const {
  const Node& node = NodeOf(frame);
  for (uint32_t i = 0; i < node.required.size(); ++i)
    if (node.required[i] && !Seen(frame.extra, i)) return false;
  return true;
}

void ByteAutomaton::StepObject(const Frame& frame, uint8_t byte, Stacks* out) {
  Frame next = frame;
  switch (frame.phase) {
    case kClosed:
      next.phase = kOpened;
      if (byte == '{') out->push_back(Intern(next));
      return;
    case kOpened:
    case kAfterValue:
      if (byte == '}') {
        if (HasAllRequired(frame)) out->push_back(frame.parent);
        return;
      }
      if (frame.phase == kOpened) return StepKey(frame, byte, out);
      next.phase = kAfterComma;
      if (byte == ',' && OffersAnyKey(frame, 0, frame.hi)) out->push_back(Intern(next));
      return;
    default:
      return StepKey(frame, byte, out);
  }
}

/// Between keys lo and hi cover all of them; inside one they cover those that begin as read.
void ByteAutomaton::StepKey(Frame frame, uint8_t byte, Stacks* out) {
  const Node& node = NodeOf(frame);
  Narrow(node.texts, frame.pos, byte, &frame.lo, &frame.hi);
  if (!OffersAnyKey(frame, frame.lo, frame.hi)) return;
  frame.phase = kKey;
  ++frame.pos;
  if (node.texts[frame.lo].size() > frame.pos) {
    out->push_back(Intern(frame));
    return;
  }
  const uint32_t property = frame.lo;  // the key ends in `":`, so no other begins with it
  frame.extra = WithSeen(frame.extra, property);
  frame.phase = kAfterValue;
  frame.lo = frame.pos = 0;
  frame.hi = static_cast<uint32_t>(node.texts.size());
  Push(node.children[property], Intern(frame), out);
}

void ByteAutomaton::StepMap(Frame frame, uint8_t byte, Stacks* out) {
  const StackId parent = frame.parent;
  const Node& node = NodeOf(frame);
  const auto wait = [&](uint32_t phase) {
    frame.phase = phase;
    return Intern(frame);
  };
  switch (frame.phase) {
    case kClosed:
      if (byte == '{') out->push_back(wait(kOpened));
      return;
    case kColon:
      if (byte == ':') Push(node.children[0], wait(kAfterValue), out);
      return;
    case kAfterValue:
      if (byte == '}') return out->push_back(parent);
      if (byte == ',') out->push_back(wait(kAfterComma));
      return;
    default: {
      if (byte == '}' && frame.phase == kOpened) return out->push_back(parent);
      if (!Fits(node.children[0], frame.depth)) return;
      Stacks key;
      Push(node.children[1], wait(kColon), &key);
      for (const StackId stack : key) Step(stack, byte, out);
    }
  }
}

void ByteAutomaton::StepSequence(Frame frame, uint8_t byte, Stacks* out) {
  const Node& node = NodeOf(frame);
  const std::string& text = node.texts[frame.lo];
  if (static_cast<uint8_t>(text[frame.pos]) != byte) return;
  ++frame.pos;
  if (frame.pos < text.size()) {
    out->push_back(Intern(frame));
  } else if (frame.lo == node.children.size()) {
    out->push_back(frame.parent);
  } else {
    const uint32_t child = node.children[frame.lo++];
    frame.pos = 0;
    Push(child, Intern(frame), out);
  }
}

}  // namespace needle::grammar
