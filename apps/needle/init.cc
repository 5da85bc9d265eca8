// needle init: a checkpoint with random weights from upstream's initialisers.
#include <fmt/core.h>

#include "base/file.h"
#include "format/checkpoint.h"
#include "model/params.h"
#include "needle/command.h"
#include "text/tokenizer.h"

namespace needle::cli {
namespace {

struct InitArgs {
  std::string preset = "base", out, tokenizer, type = "float16";
  uint64_t seed = 0;
};

Status Run(const InitArgs& args) {
  NEEDLE_ASSIGN(ModelConfig config, PresetConfig(args.preset));
  if (!args.tokenizer.empty()) {
    NEEDLE_ASSIGN(const Tokenizer tokenizer, Tokenizer::Load(args.tokenizer));
    config.vocab_size = static_cast<int>(tokenizer.size());
    NEEDLE_TRY(config.Validate());
  }
  const DType type = args.type == "float32" ? DType::kF32 : DType::kF16;
  const Checkpoint checkpoint = RandomCheckpoint(config, args.seed, type);
  NEEDLE_TRY(SaveCheckpoint(args.out, checkpoint));
  size_t values = 0;
  for (const auto& [path, tensor] : checkpoint.params) values += tensor.size();
  PrintLine("wrote", fmt::format("{}  {} parameters  {}", args.out, values, args.type));
  if (JsonMode())
    PrintJson(json::Value::Object({{"success", json::Value::Bool(true)},
                                   {"path", json::Value::String(args.out)},
                                   {"preset", json::Value::String(args.preset)},
                                   {"seed", json::Value::Number(std::to_string(args.seed))},
                                   {"parameters", json::Value::Int(static_cast<int64_t>(values))},
                                   {"vocab_size", json::Value::Int(config.vocab_size)}}));
  return {};
}

}  // namespace

void AddInit(Options& app, Command* chosen) {
  auto args = std::make_shared<InitArgs>();
  Options c = app.Group("init", "Write a checkpoint with random weights");
  c.Add("--preset", &args->preset, "shape of the model").OneOf({"base", "needle", "tiny"});
  c.Add("--seed", &args->seed, "draws the weights");
  c.Add("--out", &args->out, "checkpoint to write, .pkl or .safetensors").Required();
  c.Add("--tokenizer", &args->tokenizer, "take the vocabulary's size from this tokenizer");
  c.Add("--type", &args->type, "number type of the weights").OneOf({"float16", "float32"});
  c.AddJson();
  c.Runs(chosen, [args] { return Run(*args); });
}

}  // namespace needle::cli
