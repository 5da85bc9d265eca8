// needle pretrain: trains every parameter of a model from random weights (or goes on from a
// checkpoint), on target tokens plus a light language-model term over the prompt.
#include <fmt/core.h>

#include "backend/cpu/cpu_backend.h"
#include "base/file.h"
#include "data/examples.h"
#include "data/jsonl.h"
#include "format/checkpoint.h"
#include "format/config_fields.h"
#include "format/sniff.h"
#include "json/json.h"
#include "model/copy_head.h"
#include "needle/command.h"
#include "needle/training_output.h"
#include "text/tokenizer.h"
#include "train/state.h"
#include "train/trainer.h"

namespace needle::cli {
namespace {

struct PretrainArgs {
  std::string data, val, tokenizer, config, base, out = "pretrained.pkl", log;
  int epochs = 1, threads = 0;
  size_t batch_size = 32, group = 8, max_len = 1024;
  float lr = 2e-3f, lm_weight = 0.1f, b2 = 0.99f, weight_decay = 0.01f;
  int64_t steps = 0;
  uint64_t seed = 0;
  bool resume = false, copy_head = false;
};

class Printer final : public TrainObserver {
 public:
  explicit Printer(const PretrainArgs& args) : args_(args), output_(args.batch_size) {}
  void OnStart(const TrainPlan& plan) override { output_.OnStart(plan, args_.log, args_.resume); }
  void OnStep(const StepEvent& e) override { output_.OnStep(e); }
  void OnEpoch(const EpochEvent& e) override { output_.OnEpoch(e); }
  bool ShouldStop() override { return output_.ShouldStop(); }
  Status Finish() { return output_.Finish(); }

 private:
  const PretrainArgs& args_;
  TrainingOutput output_;
};

Result<Checkpoint> StartingPoint(const PretrainArgs& args, const Tokenizer& tokenizer) {
  if (!args.base.empty()) return LoadCheckpoint(args.base);
  NEEDLE_ASSIGN(const std::string text, ReadTextFile(args.config));
  const Result<json::Value> json = json::Parse(text);
  if (!json.ok()) return json.error().In(args.config);
  NEEDLE_ASSIGN(ModelConfig config, ConfigFromJson(*json, args.config));
  config.vocab_size = static_cast<int>(tokenizer.size());
  if (const Status valid = config.Validate(); !valid.ok()) return valid.error().In(args.config);
  Checkpoint model = RandomCheckpoint(config, args.seed, DType::kF32);
  if (args.copy_head) NEEDLE_TRY(PlantCopyHead(model, args.seed));
  return model;
}

Result<EncodedData> Encode(const std::string& path, const PretrainArgs& args,
                           const Tokenizer& tokenizer) {
  NEEDLE_ASSIGN(const DataReport data, LoadData(path, BadLines::kStop));
  EncodeOptions options;
  options.max_len = args.max_len;
  options.long_lines = LongLines::kDrop;
  options.prompt_weight = args.lm_weight;
  return EncodeExamples(data.examples, tokenizer, options, path);
}

Status CheckArgs(const PretrainArgs& args) {
  const auto bad = [](const std::string& what) { return Error(Code::kInvalidArgument, what); };
  if (args.config.empty() && args.base.empty())
    return bad(
        "give --config FILE (the fields of a new model) or --checkpoint FILE (go on from it)");
  if (!(args.lm_weight >= 0 && args.lm_weight <= 1))
    return bad(fmt::format("--lm-weight is {}; it must be 0 to 1", args.lm_weight));
  if (!(args.b2 > 0 && args.b2 < 1))
    return bad(fmt::format("--beta2 is {}; it must lie between 0 and 1", args.b2));
  if (!(args.weight_decay >= 0 && args.weight_decay <= 1))
    return bad(fmt::format("--weight-decay is {}; it must be 0 to 1", args.weight_decay));
  if (args.steps < 0) return bad(fmt::format("--steps is {}; it must be 0 or more", args.steps));
  std::vector<std::string> written = TrainingFiles(args.out);
  written.push_back(args.log);
  NEEDLE_TRY(CheckOutputs(written, {args.data, args.val, args.tokenizer, args.config, args.base}));
  NEEDLE_TRY(WriteFormatOf(args.out));
  return {};
}

/// Writes the trained parameters in place of those that `model` began with, as float16.
Status Save(const Backend& backend, int64_t steps, Checkpoint model, const std::string& out) {
  NEEDLE_ASSIGN(TensorMap params, backend.Params());
  for (auto& [path, tensor] : params) model.params[path] = std::move(tensor);
  for (auto& [path, tensor] : model.params) {
    tensor = tensor.As(DType::kF16);
    if (!AllFinite(tensor))
      return Error(Code::kInternal,
                   fmt::format("{}: not written, because {} holds a value that is no finite "
                               "float16 number; try a smaller --lr",
                               out, path));
  }
  model.step = steps;
  model.run_stage = "pretrain";
  return SaveCheckpoint(out, model);
}

Status Run(const PretrainArgs& args) {
  NEEDLE_TRY(CheckArgs(args));
  OutliveClosedPipes();
  NEEDLE_ASSIGN(const Tokenizer tokenizer, Tokenizer::Load(args.tokenizer));
  NEEDLE_ASSIGN(Checkpoint model, StartingPoint(args, tokenizer));
  NEEDLE_ASSIGN(const EncodedData data, Encode(args.data, args, tokenizer));
  EncodedData held;
  if (!args.val.empty()) {
    PretrainArgs plain = args;
    plain.lm_weight = 0;
    NEEDLE_ASSIGN(held, Encode(args.val, plain, tokenizer));
  }
  CpuBackendOptions backend_options;
  backend_options.trained = TrainedSet::kAll;
  backend_options.threads = args.threads;
  backend_options.adamw.b2 = args.b2;
  backend_options.adamw.weight_decay = args.weight_decay;
  NEEDLE_ASSIGN(const std::unique_ptr<Backend> backend, MakeCpuBackend(model, backend_options));
  PrintLine("backend", backend->Name() + "  float32  " + backend->Description());
  size_t parameters = 0;
  for (const auto& [path, tensor] : model.params) parameters += tensor.size();
  PrintLine("model", fmt::format("{} parameters", parameters));
  PrintLine("data", fmt::format("{} examples  longest {}  cap {}", data.examples.size(),
                                data.longest, args.max_len));
  TrainOptions options;
  options.epochs = args.epochs;
  options.batch_size = args.batch_size;
  options.lr = args.lr;
  options.val_split = 0;
  options.seed = args.seed;
  options.shuffle_group = args.group;
  options.max_steps = args.steps;
  options.adamw = backend_options.adamw;
  options.state_path = StatePathOf(args.out);
  options.resume = args.resume;
  options.base = &model;
  options.settings = fmt::format("{} {}", args.b2, args.weight_decay);
  Printer printer(args);
  CatchStopSignals();
  const Result<TrainOutcome> trained =
      Train(*backend, data.examples, held.examples, options, printer);
  const Status logged = printer.Finish();
  NEEDLE_ASSIGN(const TrainOutcome outcome, trained);
  NEEDLE_TRY(logged);
  if (outcome.interrupted) {
    PrintLine("stopped", fmt::format("after step {}/{}; go on with the same command and --resume",
                                     outcome.steps_done, outcome.plan.total_steps));
    PrintLine("state", options.state_path);
  } else {
    NEEDLE_TRY(Save(*backend, outcome.steps_done, std::move(model), args.out));
    NEEDLE_TRY(RemoveFile(options.state_path));
    PrintLine("wrote", args.out);
  }
  using json::Value;
  if (JsonMode())
    PrintJson(
        Value::Object({{"success", Value::Bool(!outcome.interrupted)},
                       {"path", outcome.interrupted ? Value::Null() : Value::String(args.out)},
                       {"steps", Value::Int(outcome.steps_done)},
                       {"loss", Value::Float(outcome.last_loss)}}));
  if (!outcome.interrupted) return {};
  return Error(Code::kIo, "stopped before the end; no checkpoint was written");
}

}  // namespace

void AddPretrain(Options& app, Command* chosen) {
  auto args = std::make_shared<PretrainArgs>();
  Options c = app.Group("pretrain", "Train every parameter of a model from scratch");
  c.Add("data", &args->data, "JSONL of examples").Required();
  c.Add("--val", &args->val, "JSONL of validation examples");
  c.Add("--tokenizer", &args->tokenizer, "tokenizer.model").Required();
  const Option config = c.Add("--config", &args->config, "JSON with the model's config fields");
  c.Add("--checkpoint", &args->base, "go on from this checkpoint instead").Excludes(config);
  c.Add("--out", &args->out, "checkpoint to write");
  c.Add("--epochs", &args->epochs, "passes over the data").Positive();
  c.Add("--steps", &args->steps, "stop after this many updates (0: all epochs)");
  c.Add("--batch-size", &args->batch_size, "examples an update").Between(1, 1 << 20);
  c.Add("--group", &args->group, "neighbouring lines that stay together when shuffled")
      .Between(1, 1 << 20);
  c.Add("--lr", &args->lr, "peak learning rate").NotNegative().Default("2e-3");
  c.Add("--lm-weight", &args->lm_weight, "weight of a prompt token beside a target's 1");
  c.Add("--beta2", &args->b2, "AdamW's second decay");
  c.Add("--weight-decay", &args->weight_decay, "AdamW's decay");
  c.Add("--max-len", &args->max_len, "longer examples are left out").Positive();
  c.Add("--seed", &args->seed, "initial weights and order");
  c.AddThreads(&args->threads);
  c.Add("--log", &args->log, "JSON line a step");
  c.Flag("--copy-head", &args->copy_head,
         "start with one attention head that copies (wants engram_orders [1])");
  c.Flag("--resume", &args->resume, "go on from OUT.state");
  c.AddJson();
  c.Runs(chosen, [args] { return Run(*args); });
}

}  // namespace needle::cli
