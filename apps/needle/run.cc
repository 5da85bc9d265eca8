// needle run: answers queries with an archive or with a checkpoint.
#include <fmt/core.h>

#include <iostream>
#include <optional>

#include "api/engine/model_impl.h"
#include "base/file.h"
#include "base/str_cat.h"
#include "needle/model.h"
#include "runtime/engine.h"

namespace needle::cli {
namespace {

struct RunArgs {
  ModelArgs model;
  std::string tools, query, system;
  bool has_query = false, free_text = false;
  int max_len = 512, threads = 0;
  uint64_t seed = 0;
  float temperature = 0;
};

Result<json::Value> ReadTools(const std::string& path) {
  NEEDLE_ASSIGN(const std::string text, ReadTextFile(path));
  Result<json::Value> tools = json::Parse(text);
  if (!tools)
    return Error(Code::kInvalidArgument, StrCat(path, ": no JSON: ", tools.error().message()));
  if (!tools->is_array())
    return Error(Code::kInvalidArgument,
                 StrCat(path, ": a JSON list of tools is wanted; write a list, also for one tool"));
  return tools;
}

/// One session with its tools; without tools the query itself is the prompt, as upstream has it.
class Answers {
 public:
  Answers(const std::shared_ptr<const Engine>& engine, const RunArgs& args)
      : session_(engine), args_(args), tokenizer_(engine->tokenizer()) {
    options_.max_new_tokens = args.max_len;
    options_.limit_name = "--max-len";
    options_.max_reasoning_tokens = args.max_len;
    options_.constrain = !args.free_text;
  }

  Status SetTools(const json::Value& tools) {
    with_tools_ = true;
    const Result<size_t> set = session_.SetContext(args_.system, tools);
    return set.ok() ? Status() : Status(set.error());
  }

  /// Prints the answer. One that is none (truncated, malformed) is printed and then an error.
  Status Answer(const std::string& query) {
    NEEDLE_ASSIGN(const Completion completion,
                  with_tools_ ? session_.Complete(query, options_) : Continue(query));
    if (JsonMode())
      PrintJson(ToJson(completion));
    else
      Print(completion);
    return completion.ok() ? Status() : Status(Error(Code::kInternal, completion.error));
  }

 private:
  Result<Completion> Continue(const std::string& prompt) {
    NEEDLE_ASSIGN(std::vector<int32_t> ids, tokenizer_.Encode(prompt));
    ids.insert(ids.begin(), kBosId);
    CompleteOptions options = options_;
    options.constrain = false;
    return session_.CompleteIds(ids, nullptr, options);
  }

  void Print(const Completion& c) const {
    if (!with_tools_ || args_.free_text || c.type == CompletionType::kRespond) {
      PrintText(c.text + "\n");
    } else {
      if (!c.reasoning.empty()) PrintNote(c.reasoning);
      PrintText(json::Dump(c.calls) + "\n");
    }
  }

  Session session_;
  const RunArgs& args_;
  const Tokenizer& tokenizer_;
  CompleteOptions options_;
  bool with_tools_ = false;
};

/// A query a line until the input ends. A query without an answer does not stop the others.
Status AnswerLines(Answers& answers) {
  const bool person = StdinIsTerminal();
  size_t queries = 0, failed = 0;
  std::string line;
  for (;;) {
    if (person) fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line)) break;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    ++queries;
    const Status status = answers.Answer(line);
    if (status.ok()) continue;
    ++failed;
    PrintNote(status.error().message());
  }
  if (failed == 0 || person) return {};
  return Error(Code::kInternal,
               fmt::format("{} of {} queries got no answer; the notes say why", failed, queries));
}

Status Run(const RunArgs& args) {
  const auto bad = [](const std::string& what) { return Error(Code::kInvalidArgument, what); };
  NEEDLE_TRY(CheckModelArgs(args.model));
  if (args.temperature != 0)
    return bad("--temperature: only 0 is possible, the most likely token each time");
  if (JsonMode() && !args.has_query)
    return bad("--json needs --query, because it prints one document");
  if (!args.system.empty() && args.tools.empty())
    return bad("--system needs --tools: without tools the query itself is the whole prompt");
  std::optional<json::Value> tools;
  if (!args.tools.empty()) {
    NEEDLE_ASSIGN(json::Value read, ReadTools(args.tools));
    tools = std::move(read);
  }
  NEEDLE_ASSIGN(const OpenedModel opened, OpenModel(args.model, args.threads));
  Answers answers(opened.model.impl().engine, args);
  if (tools) NEEDLE_TRY(answers.SetTools(*tools));
  return args.has_query ? answers.Answer(args.query) : AnswerLines(answers);
}

}  // namespace

void AddRun(Options& app, Command* chosen) {
  auto args = std::make_shared<RunArgs>();
  Options c = app.Group("run", "Answer queries with an archive or a checkpoint");
  c.Add("model", &args->model.archive, "archive (.cact)");
  const Option checkpoint = AddModelOptions(c, &args->model);
  c.Add("--tools", &args->tools, "JSON list of tools; without it the query itself is the prompt");
  const Option query = c.Add("--query", &args->query, "without it queries are read from stdin");
  c.Add("--system", &args->system, "text before everything else").MayBeEmpty();
  c.Add("--max-len", &args->max_len, "most tokens to write").Positive();
  c.Add("--seed", &args->seed, "has no effect at temperature 0");
  c.Add("--temperature", &args->temperature, "only 0 is possible");
  c.Flag("--no-grammar", &args->free_text, "let the model write whatever it wants");
  c.AddThreads(&args->threads);
  c.AddJson();
  c.Runs(chosen, [args, checkpoint, query] {
    args->model.from_checkpoint = checkpoint.given();
    args->has_query = query.given();
    return Run(*args);
  });
}

}  // namespace needle::cli
