#include "runtime/engine.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <utility>

#include "base/str_cat.h"
#include "base/utf8.h"
#include "runtime/output.h"
#include "runtime/sampling.h"
#include "text/render.h"

namespace needle {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Passes text on in whole code points; a byte that can never become one is U+FFFD.
class TextStream {
 public:
  explicit TextStream(const std::function<void(std::string_view)>& sink) : sink_(sink) {}
  void Add(const std::string& bytes) {
    if (!sink_) return;
    pending_ += bytes;
    std::string whole;
    for (;;) {
      const size_t valid = ValidUtf8Length(pending_);
      whole += pending_.substr(0, valid);
      pending_.erase(0, valid);
      if (pending_.size() < 4) break;  // a code point has at most four bytes
      whole += "\xEF\xBF\xBD";
      pending_.erase(0, 1);
    }
    if (!whole.empty()) sink_(whole);
  }

 private:
  const std::function<void(std::string_view)>& sink_;
  std::string pending_;
};

/// Tokens without a code point that was begun and not finished at the end.
std::vector<int32_t> WithoutOpenCodePoint(const Tokenizer& tokenizer, std::vector<int32_t> ids) {
  std::string tail;  // the byte pieces at the end, at most three
  size_t bytes = 0;
  while (bytes < 3 && bytes < ids.size()) {
    const int32_t id = ids[ids.size() - 1 - bytes];
    if (tokenizer.piece(id).type != PieceType::kByte) break;
    tail.insert(0, tokenizer.Bytes(id));
    ++bytes;
  }
  for (size_t n = 1; n <= tail.size(); ++n) {  // the shortest tail that begins a code point
    const auto lead = static_cast<uint8_t>(tail[tail.size() - n]);
    if (lead < 0x80) break;
    if (lead < 0xC0) continue;
    const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (n < length) ids.resize(ids.size() - n);
    break;
  }
  return ids;
}

Error TooLong(size_t prompt, size_t room) {
  return Error(
      Code::kInvalidArgument,
      StrCat("the prompt has ", prompt, " tokens, but the model holds ", room,
             " and needs at least one for the answer; give fewer tools or a shorter query"));
}

Error NotFinite(std::span<const float> logits, int32_t id) {
  return Error(Code::kInternal,
               StrCat("the model's logits are not all numbers (that of token ", id, " is ",
                      logits[static_cast<size_t>(id)],
                      "), so there is no likeliest token; the weights are broken or overflow: "
                      "needle inspect shows what a file holds"));
}

}  // namespace

std::string_view Name(CompletionType type) {
  switch (type) {
    case CompletionType::kCall:
      return "call";
    case CompletionType::kRefuse:
      return "refuse";
    case CompletionType::kRespond:
      break;
  }
  return "respond";
}

json::Value ToJson(const Completion& c) {
  using json::Value;
  const auto rate = [](size_t tokens, double seconds) {
    return seconds > 0 ? Value::Float(static_cast<double>(tokens) / seconds) : Value::Null();
  };
  const auto text_or_null = [](const std::string& text) {
    return text.empty() ? Value::Null() : Value::String(text);
  };
  std::vector<Value> tokens, probabilities;
  for (const int32_t id : c.tokens) tokens.push_back(Value::Int(id));
  for (const float p : c.probabilities) probabilities.push_back(Value::Float(double{p}));
  return Value::Object({{"type", Value::String(std::string(Name(c.type)))},
                        {"success", Value::Bool(c.ok())},
                        {"error", text_or_null(c.error)},
                        {"error_code", text_or_null(c.error_code)},
                        {"function_calls", c.calls},
                        {"reasoning", text_or_null(c.reasoning)},
                        {"confidence", Value::Null()},
                        {"prefill_tps", rate(c.prompt_tokens - c.reused_tokens, c.prefill_seconds)},
                        {"decode_tps", rate(c.tokens.size(), c.decode_seconds)},
                        {"text", Value::String(c.text)},
                        {"tokens", Value::Array(std::move(tokens))},
                        {"probabilities", Value::Array(std::move(probabilities))},
                        {"prompt_tokens", Value::Int(static_cast<int64_t>(c.prompt_tokens))},
                        {"reused_tokens", Value::Int(static_cast<int64_t>(c.reused_tokens))}});
}

Engine::Engine(Tokenizer tokenizer, std::shared_ptr<const grammar::Vocabulary> vocabulary,
               ModelFactory factory)
    : tokenizer_(std::move(tokenizer)),
      vocabulary_(std::move(vocabulary)),
      factory_(std::move(factory)) {}

Result<std::shared_ptr<const Engine>> Engine::Make(Tokenizer tokenizer, ModelFactory factory) {
  NEEDLE_ASSIGN(std::shared_ptr<const grammar::Vocabulary> vocabulary,
                grammar::Vocabulary::Make(tokenizer));
  return std::shared_ptr<const Engine>(
      new Engine(std::move(tokenizer), std::move(vocabulary), std::move(factory)));
}

Session::Session(std::shared_ptr<const Engine> engine)
    : engine_(std::move(engine)), model_(engine_->NewModel()) {
  [[maybe_unused]] const Result<size_t> set = SetContext("", json::Value::Array());
  assert(set.ok());
}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

Result<size_t> Session::SetContext(std::string_view system, const json::Value& tools) {
  std::string tools_text = RenderTools(tools);
  // The prompt of an empty query, up to the marker that ends the tools: markers cut the text, so
  // these tokens begin every prompt, whatever the query.
  const std::string prompt = RenderPrompt(system, tools_text, "");
  constexpr std::string_view kAfterTools = "\n<|im_end|>\n<|im_start|>assistant\n";
  NEEDLE_ASSIGN(const std::vector<int32_t> ids,
                engine_->tokenizer().Encode(
                    std::string_view(prompt).substr(0, prompt.size() - kAfterTools.size())));
  if (tools_text != tools_text_ || tools.kind() != tools_.kind()) grammar_.reset();
  system_ = system;
  tools_text_ = std::move(tools_text);
  tools_ = tools;
  sinks_ = ids.size() + 1;  // and BOS
  return sinks_;
}

Result<grammar::CallGrammar*> Session::Grammar() {
  if (grammar_ != nullptr) return grammar_.get();
  json::Value tools = tools_;
  if (tools.is_string()) {
    Result<json::Value> parsed = json::Parse(tools.as_string());
    if (!parsed.ok())
      return Error(parsed.error().code(),
                   StrCat("the tools are not JSON: ", parsed.error().message()));
    tools = std::move(*parsed);
  }
  NEEDLE_ASSIGN(grammar_, grammar::CallGrammar::Make(engine_->vocabulary(), tools));
  return grammar_.get();
}

Result<Completion> Session::Complete(std::string_view query, const CompleteOptions& options) {
  if (const size_t valid = ValidUtf8Length(query); valid != query.size())
    return Error(Code::kInvalidArgument,
                 StrCat("the query is not UTF-8 at byte ", valid, "; write it in UTF-8"));
  NEEDLE_ASSIGN(const std::vector<int32_t> encoded,
                engine_->tokenizer().Encode(RenderPrompt(system_, tools_text_, query)));
  std::vector<int32_t> prompt = {kBosId};
  prompt.insert(prompt.end(), encoded.begin(), encoded.end());
  grammar::CallGrammar* grammar = nullptr;
  if (options.constrain) {
    NEEDLE_ASSIGN(grammar, Grammar());
  }
  return CompleteIds(prompt, grammar, options);
}

/// Computes the rows of `ids`, keeping those that the model already holds; the last one always.
/// Appends to the model, whose rows are forgotten when that fails.
Result<std::span<const float>> Session::Logits(std::span<const int32_t> ids) {
  Result<std::span<const float>> logits = model_->Append(ids);
  if (!logits.ok()) {
    model_->Truncate(0);
    held_.clear();
    return logits;
  }
  if (const int32_t bad = FirstNotFinite(*logits); bad >= 0) return NotFinite(*logits, bad);
  return logits;
}

Result<std::span<const float>> Session::Prefill(const std::vector<int32_t>& ids, Completion* out) {
  const auto start = Clock::now();
  const auto differs = std::mismatch(held_.begin(), held_.end(), ids.begin(), ids.end());
  auto keep = static_cast<size_t>(differs.first - held_.begin());
  // Rows past the sinks were computed with them in view; other sinks, other rows. Rows before both
  // numbers see all rows before them either way.
  if (sinks_ != held_sinks_) keep = std::min({keep, sinks_, held_sinks_});
  keep = std::min(keep, ids.size() - 1);
  model_->Truncate(keep);
  model_->SetSinks(sinks_);
  held_sinks_ = sinks_;
  held_ = ids;
  out->reused_tokens = std::min(keep, out->prompt_tokens);
  NEEDLE_ASSIGN(const std::span<const float> logits, Logits(std::span(ids).subspan(keep)));
  out->prefill_seconds = SecondsSince(start);
  return logits;
}

/// One completion under way.
struct Session::Decoding {
  const Engine& engine;
  grammar::CallGrammar* grammar;
  const CompleteOptions& options;
  Completion out;
  grammar::CallState state;
  TextStream stream;
  int new_tokens = 0, reasoning_tokens = 0;
  bool ended = false;

  Decoding(const Engine& e, grammar::CallGrammar* g, const CompleteOptions& o)
      : engine(e), grammar(g), options(o), stream(o.on_text) {
    if (grammar != nullptr) state = grammar->Tidy(grammar->Start());
  }

  void Add(int32_t id, double probability) {
    if (grammar != nullptr) {
      const bool thinking = state.phase == grammar::CallState::Phase::kThinking;
      state = *grammar->Advance(state, id);
      ++(thinking ? reasoning_tokens : new_tokens);
    } else {
      ++new_tokens;
    }
    if (id == kEosId) {
      ended = true;
      return;
    }
    out.tokens.push_back(id);
    out.probabilities.push_back(static_cast<float>(probability));
    stream.Add(Visible(id));
  }

  /// What a token adds to the text: the decoder drops the encoder's dummy space at the beginning.
  std::string Visible(int32_t id) const {
    const std::string& bytes = engine.vocabulary()->Bytes(id);
    const bool dummy = out.tokens.size() == 1 && !bytes.empty() && bytes[0] == ' ' &&
                       engine.tokenizer().piece(id).type != PieceType::kByte;
    return dummy ? bytes.substr(1) : bytes;
  }

  /// After </tool_call> nothing is left to choose: <|im_end|> and EOS.
  void Close() {
    if (grammar == nullptr || state.phase != grammar::CallState::Phase::kTurnEnd) return;
    Add(engine.vocabulary()->turn_end(), 1);
    Add(kEosId, 1);
  }

  Result<int32_t> Choose(std::span<const float> logits) {
    if (grammar != nullptr && reasoning_tokens >= options.max_reasoning_tokens &&
        grammar->MayCloseThinking(state))
      return engine.vocabulary()->think_end();
    const int32_t id = Greedy(logits, grammar != nullptr ? &grammar->Mask(state) : nullptr);
    if (id < 0) return Error(Code::kInternal, "the grammar leaves no token to choose");
    return id;
  }

  void Truncated(std::string why) {
    out.error_code = "truncated";
    out.error = std::move(why);
  }

  Completion Finish() {
    out.text = engine.tokenizer().Decode(WithoutOpenCodePoint(engine.tokenizer(), out.tokens));
    ParsedOutput parsed = ParseOutput(out.text);
    out.reasoning = std::move(parsed.reasoning);
    if (out.ok() && !parsed.error.empty()) {
      out.error_code = "malformed";
      out.error = parsed.error;
    }
    if (!out.ok() || !parsed.calls) return std::move(out);
    out.calls = std::move(*parsed.calls);
    out.type = out.calls.items().empty() ? CompletionType::kRefuse : CompletionType::kCall;
    return std::move(out);
  }
};

Result<Completion> Session::CompleteIds(const std::vector<int32_t>& prompt,
                                        grammar::CallGrammar* grammar,
                                        const CompleteOptions& options) {
  if (prompt.size() >= model_->max_length()) return TooLong(prompt.size(), model_->max_length());
  if (prompt.empty())
    return Error(Code::kInvalidArgument, "the prompt has no tokens; it must begin with BOS");
  Decoding decoding(*engine_, grammar, options);
  decoding.out.prompt_tokens = prompt.size();
  std::vector<int32_t> ids = prompt;
  if (grammar != nullptr) {  // the lead is certain: it is computed together with the prompt
    for (const int32_t id : engine_->vocabulary()->lead()) {
      if (ids.size() + 1 >= model_->max_length()) return TooLong(ids.size(), model_->max_length());
      decoding.Add(id, 1);
      ids.push_back(id);
    }
  }
  NEEDLE_ASSIGN(std::span<const float> logits, Prefill(ids, &decoding.out));
  const auto start = Clock::now();
  while (!decoding.ended) {
    if (decoding.new_tokens >= options.max_new_tokens) {
      decoding.Truncated(StrCat(
          "the answer did not end within ", options.max_new_tokens, " tokens",
          options.limit_name.empty() ? "" : StrCat("; give it more (", options.limit_name, ")")));
      break;
    }
    NEEDLE_ASSIGN(const int32_t id, decoding.Choose(logits));
    decoding.Add(id, Probability(logits, id));
    decoding.Close();
    if (decoding.ended) break;
    if (model_->length() >= model_->max_length()) {
      decoding.Truncated(StrCat("prompt and answer fill the model's ", model_->max_length(),
                                " positions; give fewer tools or a shorter query"));
      break;
    }
    held_.push_back(id);
    NEEDLE_ASSIGN(logits, Logits(std::span(&id, 1)));
  }
  decoding.out.decode_seconds = SecondsSince(start);
  return decoding.Finish();
}

}  // namespace needle
