// What a model may write after a prompt, token by token:
//   [lead] [<think> any UTF-8 text </think> \n] <tool_call> CALLS </tool_call> <|im_end|> EOS
// where `lead` is the dummy prefix that the encoder puts before a target (U+2581), CALLS is a call
// list as grammar/schema_graph.h describes it, and the markers are always their own tokens: inside
// the texts no marker may be written.
// Sources: the target's rendering (text/render.h) and the tokenizer's rules (docs/numerics.md).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "grammar/byte_automaton.h"
#include "grammar/token_trie.h"
#include "json/json.h"
#include "text/tokenizer.h"

namespace needle::grammar {

/// A tokenizer as the grammar needs it: made once for each, shared by all grammars over it.
/// Thread-safety: const after construction.
class Vocabulary {
 public:
  /// Errors: a chat marker or a byte piece is missing (then some mask could be empty).
  static Result<std::shared_ptr<const Vocabulary>> Make(const Tokenizer& tokenizer);

  size_t size() const { return bytes_.size(); }
  const std::string& Bytes(int32_t id) const { return bytes_[static_cast<size_t>(id)]; }
  const TokenTrie& trie() const { return trie_; }
  const std::vector<int32_t>& lead() const { return lead_; }
  const std::vector<int32_t>& newlines() const { return newlines_; }
  int32_t think() const { return think_; }
  int32_t think_end() const { return think_end_; }
  int32_t call() const { return call_; }
  int32_t call_end() const { return call_end_; }
  int32_t turn_end() const { return turn_end_; }

 private:
  explicit Vocabulary(std::vector<std::pair<std::string, int32_t>> tokens)
      : trie_(std::move(tokens)) {}
  std::vector<std::string> bytes_;
  TokenTrie trie_;
  std::vector<int32_t> lead_, newlines_;
  int32_t think_ = 0, think_end_ = 0, call_ = 0, call_end_ = 0, turn_end_ = 0;
};

/// Where a completion stands: a plain value.
struct CallState {
  enum class Phase : uint8_t {
    kLead,      // `at` tokens of the lead are read
    kThinking,  // inside <think>: `at` is a state of the text automaton
    kThought,   // after </think>: a newline
    kCall,      // <tool_call> comes
    kCalls,     // `at` is a state of the call automaton
    kTurnEnd,   // <|im_end|> comes
    kEnd,       // EOS comes
    kDone,
  };
  Phase phase = Phase::kLead;
  int32_t at = 0;
  bool operator==(const CallState&) const = default;
};

/// The grammar of one tool list over one vocabulary, with its masks.
/// Thread-safety: none (it learns as it runs); one object a session.
class CallGrammar {
 public:
  /// Errors: see CompileCalls.
  static Result<std::unique_ptr<CallGrammar>> Make(std::shared_ptr<const Vocabulary> vocabulary,
                                                   const json::Value& tools);

  CallState Start() const { return {}; }
  /// The state after one more token; nothing if the grammar does not allow it there.
  std::optional<CallState> Advance(CallState state, int32_t id);
  /// The tokens allowed in a state; never empty before kDone. Valid until the next Tidy.
  const TokenMask& Mask(CallState state);
  /// True once EOS was read.
  static bool Done(CallState state) { return state.phase == CallState::Phase::kDone; }
  /// True inside <think>, between code points: </think> may come now.
  bool MayCloseThinking(CallState state) const;

  /// Frees tables when they have grown large; answers the state's new form. Every other state made
  /// before is void. Call it between completions and now and then in a long one.
  CallState Tidy(CallState state);

 private:
  CallGrammar(std::shared_ptr<const Vocabulary> vocabulary, SchemaGraph calls);
  TokenMask MakeMask(CallState state);
  std::optional<CallState> Read(ByteAutomaton* automaton, CallState state, int32_t id);

  std::shared_ptr<const Vocabulary> vocabulary_;
  ByteAutomaton calls_;
  ByteAutomaton text_;
  std::unordered_map<int64_t, TokenMask> masks_;  // by phase and `at`
};

}  // namespace needle::grammar
