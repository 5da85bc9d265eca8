#include "grammar/call_grammar.h"

#include <algorithm>
#include <utility>

#include "base/str_cat.h"

namespace needle::grammar {
namespace {

using Phase = CallState::Phase;

// About 1 KiB a state when expanded, and as much a mask of 8192 tokens.
constexpr size_t kManyStates = 16384;
constexpr size_t kManyMasks = 8192;

bool IsMarker(const std::string& text) {
  return std::find(kChatMarkers.begin(), kChatMarkers.end(), text) != kChatMarkers.end();
}

Result<int32_t> Marker(const Tokenizer& tokenizer, std::string_view text) {
  const int32_t id = tokenizer.IdOf(text);
  if (id >= 0) return id;
  return Error(Code::kInvalidArgument,
               StrCat("the tokenizer has no piece ", text,
                      "; tool calls need the ten chat markers as pieces of their own"));
}

}  // namespace

Result<std::shared_ptr<const Vocabulary>> Vocabulary::Make(const Tokenizer& tokenizer) {
  std::vector<std::string> bytes(tokenizer.size());
  std::vector<std::pair<std::string, int32_t>> plain;  // tokens that add text
  std::vector<bool> byte_seen(256, false);
  for (size_t i = 0; i < tokenizer.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    const Piece& piece = tokenizer.piece(id);
    if (piece.type == PieceType::kControl || piece.type == PieceType::kUnknown) continue;
    bytes[i] = tokenizer.Bytes(id);
    if (IsMarker(piece.text)) continue;
    plain.emplace_back(bytes[i], id);
    if (bytes[i].size() == 1) byte_seen[static_cast<uint8_t>(bytes[i][0])] = true;
  }
  for (size_t b = 0; b < 256; ++b)
    if (!byte_seen[b])
      return Error(Code::kInvalidArgument,
                   StrCat("the tokenizer has no piece for the byte ", b,
                          "; constrained decoding needs all 256 byte pieces"));
  std::shared_ptr<Vocabulary> vocabulary(new Vocabulary(std::move(plain)));
  vocabulary->bytes_ = std::move(bytes);
  NEEDLE_ASSIGN(vocabulary->think_, Marker(tokenizer, "<think>"));
  NEEDLE_ASSIGN(vocabulary->think_end_, Marker(tokenizer, "</think>"));
  NEEDLE_ASSIGN(vocabulary->call_, Marker(tokenizer, "<tool_call>"));
  NEEDLE_ASSIGN(vocabulary->call_end_, Marker(tokenizer, "</tool_call>"));
  NEEDLE_ASSIGN(vocabulary->turn_end_, Marker(tokenizer, "<|im_end|>"));
  NEEDLE_ASSIGN(vocabulary->lead_, tokenizer.Encode("<tool_call>"));
  if (vocabulary->lead_.empty() || vocabulary->lead_.back() != vocabulary->call_)
    return Error(Code::kInvalidArgument, "the tokenizer does not keep <tool_call> in one piece");
  vocabulary->lead_.pop_back();
  vocabulary->newlines_ = vocabulary->trie_.Exactly("\n");
  return std::shared_ptr<const Vocabulary>(std::move(vocabulary));
}

CallGrammar::CallGrammar(std::shared_ptr<const Vocabulary> vocabulary, SchemaGraph calls)
    : vocabulary_(std::move(vocabulary)),
      calls_(std::make_shared<const SchemaGraph>(std::move(calls))),
      text_(std::make_shared<const SchemaGraph>(TextGraph())) {}

Result<std::unique_ptr<CallGrammar>> CallGrammar::Make(std::shared_ptr<const Vocabulary> vocabulary,
                                                       const json::Value& tools) {
  NEEDLE_ASSIGN(SchemaGraph calls, CompileCalls(tools));
  return std::unique_ptr<CallGrammar>(new CallGrammar(std::move(vocabulary), std::move(calls)));
}

std::optional<CallState> CallGrammar::Read(ByteAutomaton* automaton, CallState state, int32_t id) {
  const std::string& bytes = vocabulary_->Bytes(id);
  if (bytes.empty() || IsMarker(bytes)) return std::nullopt;
  state.at = automaton->Next(state.at, bytes);
  if (state.at == ByteAutomaton::kDead) return std::nullopt;
  return state;
}

std::optional<CallState> CallGrammar::Advance(CallState state, int32_t id) {
  if (id < 0 || static_cast<size_t>(id) >= vocabulary_->size()) return std::nullopt;
  const Vocabulary& v = *vocabulary_;
  const auto when = [](bool allowed, CallState next) {
    return allowed ? std::optional<CallState>(next) : std::nullopt;
  };
  switch (state.phase) {
    case Phase::kLead:
      if (static_cast<size_t>(state.at) < v.lead().size())
        return when(id == v.lead()[static_cast<size_t>(state.at)], {Phase::kLead, state.at + 1});
      if (id == v.think()) return CallState{Phase::kThinking, text_.Start()};
      [[fallthrough]];
    case Phase::kCall:
      return when(id == v.call(), {Phase::kCalls, calls_.Start()});
    case Phase::kThinking:
      if (id == v.think_end()) return when(text_.Accepts(state.at), {Phase::kThought, 0});
      return Read(&text_, state, id);
    case Phase::kThought:
      return when(v.Bytes(id) == "\n", {Phase::kCall, 0});
    case Phase::kCalls:
      if (id == v.call_end()) return when(calls_.Accepts(state.at), {Phase::kTurnEnd, 0});
      return Read(&calls_, state, id);
    case Phase::kTurnEnd:
      return when(id == v.turn_end(), {Phase::kEnd, 0});
    case Phase::kEnd:
      return when(id == kEosId, {Phase::kDone, 0});
    case Phase::kDone:
      break;
  }
  return std::nullopt;
}

TokenMask CallGrammar::MakeMask(CallState state) {
  const Vocabulary& v = *vocabulary_;
  TokenMask mask(v.size());
  switch (state.phase) {
    case Phase::kLead:
      if (static_cast<size_t>(state.at) < v.lead().size()) {
        mask.Set(v.lead()[static_cast<size_t>(state.at)]);
        break;
      }
      mask.Set(v.think());
      [[fallthrough]];
    case Phase::kCall:
      mask.Set(v.call());
      break;
    case Phase::kThinking:
      v.trie().Walk(&text_, state.at, &mask);
      if (text_.Accepts(state.at)) mask.Set(v.think_end());
      break;
    case Phase::kThought:
      for (const int32_t id : v.newlines()) mask.Set(id);
      break;
    case Phase::kCalls:
      v.trie().Walk(&calls_, state.at, &mask);
      if (calls_.Accepts(state.at)) mask.Set(v.call_end());
      break;
    case Phase::kTurnEnd:
      mask.Set(v.turn_end());
      break;
    case Phase::kEnd:
      mask.Set(kEosId);
      break;
    case Phase::kDone:
      break;
  }
  return mask;
}

const TokenMask& CallGrammar::Mask(CallState state) {
  const int64_t key = (int64_t{static_cast<uint8_t>(state.phase)} << 32) | state.at;
  const auto it = masks_.find(key);
  if (it != masks_.end()) return it->second;
  return masks_.emplace(key, MakeMask(state)).first->second;
}

bool CallGrammar::MayCloseThinking(CallState state) const {
  return state.phase == Phase::kThinking && text_.Accepts(state.at);
}

CallState CallGrammar::Tidy(CallState state) {
  if (calls_.size() < kManyStates && masks_.size() < kManyMasks) return state;
  masks_.clear();
  const bool inside = state.phase == Phase::kCalls;
  const ByteAutomaton::State kept = calls_.Compact(inside ? state.at : calls_.Start());
  if (inside) state.at = kept;
  return state;
}

}  // namespace needle::grammar
