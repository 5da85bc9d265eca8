// Reads the texts of a SchemaGraph byte by byte: an automaton whose states are made when first
// reached. A state is a set of stacks (what may still come, innermost first); stacks are stored
// once each, so that equal states have equal numbers, copying one is copying an int, and a repeated
// step is a table look-up.
//
// From every state other than kDead some text leads to acceptance.
// Thread-safety: none (Next fills tables); use one automaton a thread over a shared graph.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "grammar/schema_graph.h"

namespace needle::grammar {

class ByteAutomaton {
 public:
  using State = int32_t;
  static constexpr State kDead = -1;

  explicit ByteAutomaton(std::shared_ptr<const SchemaGraph> graph);

  State Start() const { return start_; }
  /// The state after one more byte, or kDead.
  State Next(State state, uint8_t byte);
  /// Next over a text.
  State Next(State state, std::string_view text);
  /// True if the text read so far is complete.
  bool Accepts(State state) const { return state != kDead && states_[Index(state)].accepts; }

  /// States made so far: what the tables cost.
  size_t size() const { return states_.size(); }
  /// Forgets every state but Start and `keep`; answers keep's new number. All others are void.
  State Compact(State keep);

 private:
  using StackId = uint32_t;  // into stacks_; 0 is the empty stack: the text is complete
  struct Frame {
    StackId parent = 0;  // what continues when this frame is done
    uint32_t node = 0;   // into the graph
    uint32_t phase = 0;  // by kind: see the .cc
    uint32_t lo = 0;     // kLiterals, kObject: texts[lo..hi) start with what was read;
    uint32_t hi = 0;     //   kSequence: lo is the part
    uint32_t pos = 0;    // bytes read of a literal or key
    uint32_t extra = 0;  // kArray: items so far (up to min_items); kObject: the seen set
    uint32_t depth = 0;  // open lists and objects, this one included; follows from the others
    bool operator==(const Frame&) const = default;
  };
  struct FrameHash {
    size_t operator()(const Frame& frame) const;
  };
  struct StateData {
    std::vector<StackId> stacks;  // sorted
    bool accepts = false;
    std::unique_ptr<std::array<State, 256>> next;  // made at the first step from here
  };
  using Stacks = std::vector<StackId>;
  static constexpr State kUnknown = -2;

  static size_t Index(State state) { return static_cast<size_t>(state); }
  const Node& NodeOf(const Frame& frame) const { return graph_->nodes[frame.node]; }
  StackId Intern(const Frame& frame);
  State InternState(Stacks stacks);
  uint32_t WithSeen(uint32_t seen, uint32_t property);
  bool Seen(uint32_t seen, uint32_t property) const;
  void Clear();

  bool Fits(uint32_t node, uint32_t depth) const;
  void Push(uint32_t node, StackId parent, Stacks* out);
  void Step(StackId stack, uint8_t byte, Stacks* out);
  void StepLiterals(const Frame& frame, uint8_t byte, Stacks* out);
  void StepString(Frame frame, uint8_t byte, Stacks* out);
  void StepText(Frame frame, uint8_t byte, Stacks* out);
  void StepNumber(Frame frame, uint8_t byte, Stacks* out);
  void StepArray(Frame frame, uint8_t byte, Stacks* out);
  void StepObject(const Frame& frame, uint8_t byte, Stacks* out);
  void StepKey(Frame frame, uint8_t byte, Stacks* out);
  void StepMap(Frame frame, uint8_t byte, Stacks* out);
  void StepSequence(Frame frame, uint8_t byte, Stacks* out);
  bool OffersKey(const Frame& frame, uint32_t property) const;
  bool OffersAnyKey(const Frame& frame, uint32_t lo, uint32_t hi) const;
  bool HasAllRequired(const Frame& frame) const;
  bool MayEnd(const Frame& frame) const;
  bool Complete(StackId stack) const;

  std::shared_ptr<const SchemaGraph> graph_;
  size_t max_stacks_ = 0;
  std::vector<Frame> stacks_;
  std::unordered_map<Frame, StackId, FrameHash> stack_ids_;
  std::vector<std::vector<uint32_t>> seen_sets_;  // sorted property numbers; 0 is the empty set
  std::map<std::vector<uint32_t>, uint32_t> seen_ids_;
  std::vector<StateData> states_;
  std::map<Stacks, State> state_ids_;
  State start_ = kDead;
};

}  // namespace needle::grammar
