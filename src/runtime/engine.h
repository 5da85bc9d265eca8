// The engine: an opened model, and sessions that complete queries with it.
//   auto engine = Engine::Open("m.cact");
//   Session session(*engine);
//   session.SetContext(system, tools);
//   auto completion = session.Complete("dim the den to 20");
// Thread-safety: an Engine never changes and may be shared by any number of threads; a Session
// belongs to one thread at a time. Errors: sentences; see each call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/call_grammar.h"
#include "json/json.h"
#include "model/params.h"
#include "runtime/language_model.h"
#include "text/tokenizer.h"

namespace needle {

struct EngineOptions {
  int threads = 0;  // for each session; 0: all that the process may use
};

class Engine {
 public:
  using ModelFactory = std::function<std::unique_ptr<LanguageModel>()>;

  /// A .cact archive, in the archive's numerics.
  static Result<std::shared_ptr<const Engine>> Open(const std::string& path,
                                                    const EngineOptions& options = {});
  /// A checkpoint in float32, without a window.
  static Result<std::shared_ptr<const Engine>> FromCheckpoint(const Checkpoint& checkpoint,
                                                              const Tokenizer& tokenizer,
                                                              const EngineOptions& options = {});
  /// Any model; `factory` may be called from several threads. Errors: see Vocabulary::Make.
  static Result<std::shared_ptr<const Engine>> Make(Tokenizer tokenizer, ModelFactory factory);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  const std::shared_ptr<const grammar::Vocabulary>& vocabulary() const { return vocabulary_; }
  std::unique_ptr<LanguageModel> NewModel() const { return factory_(); }

 private:
  Engine(Tokenizer tokenizer, std::shared_ptr<const grammar::Vocabulary> vocabulary,
         ModelFactory factory);
  Tokenizer tokenizer_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;
  ModelFactory factory_;
};

struct CompleteOptions {
  int max_new_tokens = 256;  // Tokens outside the reasoning; beyond it the answer is truncated.
  /// What the sentence of a truncated answer calls that limit: the caller's option; "": nothing.
  std::string limit_name = "max_new_tokens";
  int max_reasoning_tokens = 256;  // With the grammar: then </think> is written for the model.
  bool constrain = true;           // Only calls that the tools allow. False: whatever it writes.
  /// Gets the text as it grows, never cut inside a code point.
  std::function<void(std::string_view)> on_text;
};

enum class CompletionType {
  kCall,     // one call or more
  kRefuse,   // an empty list of calls: no tool fits
  kRespond,  // no list of calls (only without the grammar, or when something went wrong)
};
std::string_view Name(CompletionType type);  // "call", "refuse", "respond"

struct Completion {
  CompletionType type = CompletionType::kRespond;
  /// Why there is no answer: "truncated" (the token budget or the model's length ended it),
  /// "malformed" (without the grammar: the calls cannot be read); empty when all is well.
  std::string error_code;
  std::string error;                         // the same as a sentence
  json::Value calls = json::Value::Array();  // [{"name":...,"arguments":{...}},...]
  std::string reasoning;
  std::string text;             // all that was written, markers included
  std::vector<int32_t> tokens;  // without EOS
  /// The model's own probability of each token; 1 where the grammar left a single choice that was
  /// not computed (the first and the last tokens).
  std::vector<float> probabilities;
  size_t prompt_tokens = 0;
  size_t reused_tokens = 0;  // of the prompt: computed for an earlier query
  double prefill_seconds = 0, decode_seconds = 0;

  bool ok() const { return error_code.empty(); }
  bool truncated() const { return error_code == "truncated"; }
};

/// Upstream's response keys (type, success, error, error_code, function_calls, reasoning,
/// confidence, prefill_tps, decode_tps) and ours (text, tokens, prompt_tokens, reused_tokens).
json::Value ToJson(const Completion& completion);

class Session {
 public:
  explicit Session(std::shared_ptr<const Engine> engine);
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  /// What comes before every query: a system text and the tools (a list, or its JSON text, which
  /// the prompt then holds verbatim). The number of tokens that they take. Error: text that is not
  /// UTF-8. Tools that the grammar cannot use are an error of Complete.
  Result<size_t> SetContext(std::string_view system, const json::Value& tools);

  /// Answers one query; earlier queries have no influence. Errors: a prompt longer than the model,
  /// text that is not UTF-8, tools whose schemas cannot be used (with the grammar), logits that are
  /// not finite (kInternal), what the model's device says.
  Result<Completion> Complete(std::string_view query, const CompleteOptions& options = {});
  /// The same from prompt ids (BOS included); `grammar` may be nullptr.
  Result<Completion> CompleteIds(const std::vector<int32_t>& prompt, grammar::CallGrammar* grammar,
                                 const CompleteOptions& options);

  const Engine& engine() const { return *engine_; }
  LanguageModel& model() { return *model_; }

 private:
  struct Decoding;
  Result<std::span<const float>> Prefill(const std::vector<int32_t>& ids, Completion* out);
  Result<std::span<const float>> Logits(std::span<const int32_t> ids);
  Result<grammar::CallGrammar*> Grammar();

  std::shared_ptr<const Engine> engine_;
  std::unique_ptr<LanguageModel> model_;
  std::vector<int32_t> held_;  // the tokens of the model's rows
  size_t held_sinks_ = 0;      // the sinks that those rows were computed with
  std::string system_, tools_text_ = "[]";
  json::Value tools_ = json::Value::Array();
  size_t sinks_ = 0;                               // rows of system and tools
  std::unique_ptr<grammar::CallGrammar> grammar_;  // of tools_, made when first needed
};

}  // namespace needle
