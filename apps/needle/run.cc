// needle run: answers queries with an archive or with a checkpoint.
#include <fmt/core.h>

#include <iostream>
#include <optional>

#include "api/engine/model_impl.h"
#include "base/file.h"
#include "base/str_cat.h"
#include "needle/command.h"
#include "runtime/engine.h"

namespace needle::cli {
namespace {

struct RunArgs {
  std::string archive, lora, tools, query, system, device = "auto";
  BaseArgs base;
  bool from_checkpoint = false, has_query = false, free_text = false;
  int max_len = 512, threads = 0;
  uint64_t seed = 0;
  float temperature = 0;
};

Result<Model> OpenModel(const RunArgs& args) {
  OpenOptions options;
  options.threads = args.threads;
  if (!args.from_checkpoint) return Model::Open(args.archive, options);
  NEEDLE_ASSIGN(const BaseModel base, LoadBase(args.base));
  return OpenBase(base, args.lora, options);
}

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
    options_.max_reasoning_tokens = args.max_len;
    options_.constrain = !args.free_text;
  }

  Status SetTools(const json::Value& tools) {
    with_tools_ = true;
    const Result<size_t> set = session_.SetContext(args_.system, tools);
    return set.ok() ? Status() : Status(set.error());
  }

  Status Answer(const std::string& query) {
    NEEDLE_ASSIGN(const Completion completion,
                  with_tools_ ? session_.Complete(query, options_) : Continue(query));
    if (JsonMode())
      PrintJson(ToJson(completion));
    else
      Print(completion);
    return {};
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
    if (!c.ok()) PrintNote(c.error);
  }

  Session session_;
  const RunArgs& args_;
  const Tokenizer& tokenizer_;
  CompleteOptions options_;
  bool with_tools_ = false;
};

Status Run(const RunArgs& args) {
  NEEDLE_TRY(CheckDevice(args.device));
  const auto bad = [](const std::string& what) { return Error(Code::kInvalidArgument, what); };
  if (args.archive.empty() == !args.from_checkpoint)
    return bad("give either an archive (needle run M.cact) or --checkpoint FILE");
  if (!args.lora.empty() && !args.from_checkpoint)
    return bad("--lora needs --checkpoint; an archive has its adapter merged already");
  if (args.temperature != 0)
    return bad("--temperature: only 0 is possible, the most likely token each time");
  if (JsonMode() && !args.has_query)
    return bad("--json needs --query, because it prints one document");
  std::optional<json::Value> tools;
  if (!args.tools.empty()) {
    NEEDLE_ASSIGN(json::Value read, ReadTools(args.tools));
    tools = std::move(read);
  }
  NEEDLE_ASSIGN(const Model model, OpenModel(args));
  Answers answers(model.impl().engine, args);
  if (tools) NEEDLE_TRY(answers.SetTools(*tools));
  if (args.has_query) return answers.Answer(args.query);
  std::string line;
  for (;;) {
    if (StdinIsTerminal()) fmt::print(stderr, "> ");
    if (!std::getline(std::cin, line)) return {};
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty()) continue;
    const Status status = answers.Answer(line);
    if (!status.ok()) PrintNote(status.error().message());
  }
}

}  // namespace

void AddRun(Options& app, Command* chosen) {
  auto args = std::make_shared<RunArgs>();
  args->base.checkpoint.clear();
  Options c = app.Group("run", "Answer queries with an archive or a checkpoint");
  c.Add("model", &args->archive, "archive (.cact)");
  const Option checkpoint =
      c.Add("--checkpoint", &args->base.checkpoint,
            "run a checkpoint in float32 instead: .pkl, .safetensors, \"bundled\"");
  c.Add("--lora", &args->lora, "adapter to merge into the checkpoint");
  c.AddTokenizer(&args->base.tokenizer);
  c.Add("--tools", &args->tools, "JSON list of tools; without it the query itself is the prompt");
  const Option query = c.Add("--query", &args->query, "without it queries are read from stdin");
  c.Add("--system", &args->system, "text before everything else");
  c.Add("--max-len", &args->max_len, "most tokens to write").Positive();
  c.Add("--seed", &args->seed, "has no effect at temperature 0");
  c.Add("--temperature", &args->temperature, "only 0 is possible");
  c.Flag("--no-grammar", &args->free_text, "let the model write whatever it wants");
  c.Add("--device", &args->device, "auto or cpu");
  c.AddThreads(&args->threads);
  c.AddJson();
  c.Runs(chosen, [args, checkpoint, query] {
    args->from_checkpoint = checkpoint.given();
    args->has_query = query.given();
    return Run(*args);
  });
}

}  // namespace needle::cli
