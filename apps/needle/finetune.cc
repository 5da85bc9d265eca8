// needle finetune: a LoRA adapter from a data file. Lines and defaults are upstream's.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/parse_integer.h"
#include "format/sniff.h"
#include "needle/command.h"
#include "needle/profile_report.h"
#include "needle/training_output.h"

namespace needle::cli {
namespace {

struct FinetuneArgs {
  BaseArgs base;
  std::string data, out, folder = "checkpoints", log, profile, device = "auto";
  std::string qat = "auto", packing = "tree", long_examples = "error";
  std::string devices = "1", remat = "auto", unroll = "auto", attention = "auto",
              precision = "highest";
  std::vector<std::pair<std::string, Option>> tuning;  // options of devices alone
  FinetuneOptions options;
};

using json::Value;

Value Number(double v) { return Value::Float(v); }
Value Number(float v) { return Value::Float(double{v}); }
Value Count(size_t v) { return Value::Int(static_cast<int64_t>(v)); }

class Printer final : public FinetuneObserver {
 public:
  Printer(const FinetuneArgs& args, int window)
      : args_(args), window_(window), output_(args.options.batch_size) {}

  void OnData(const FinetuneData& d) override {
    PrintLine("data", fmt::format("{} examples  seq_len {}  cap {}", d.examples, d.seq_len,
                                  args_.options.max_len));
    NoteProblems(d);
    NoteLengths(d);
    data_ = d;
  }

  void OnStart(const FinetuneStart& s) override {
    start_ = s;
    PrintLine("numerics", s.numerics.empty()
                              ? "full precision"
                              : fmt::format("CQ {} STE + A8 (matches export)", s.numerics));
    PrintLine("lora", fmt::format("rank {}  alpha {:g}  {} weight groups", s.lora_rank,
                                  s.lora_alpha, s.weight_groups));
    if (s.validation_examples > 0)
      PrintLine("holdout", fmt::format("{} examples for validation", s.validation_examples));
    output_.OnStart(s, args_.log, args_.options.resume);
  }

  void OnStep(const FinetuneStep& s) override { output_.OnStep(s); }

  void OnEpoch(const FinetuneEpoch& e) override {
    output_.OnEpoch(e);
    epochs_.push_back(
        Value::Object({{"epoch", Value::Int(e.epoch)},
                       {"loss", Number(e.loss)},
                       {"val_loss", e.val_loss ? Number(*e.val_loss) : Value::Null()}}));
  }

  bool ShouldStop() override { return output_.ShouldStop(); }

  Status Finish() { return output_.Finish(); }

  Value Document(const BaseModel& base, const FinetuneReport& r) const {
    return Value::Object({{"success", Value::Bool(!r.interrupted)},
                          {"adapter", r.adapter.empty() ? Value::Null() : Value::String(r.adapter)},
                          {"base", Value::String(base.name())},
                          {"tokenizer", Value::String(base.tokenizer_file())},
                          {"backend", Value::String(args_.options.device->backend())},
                          {"device", Value::String(args_.options.device->name())},
                          {"numerics", Value::String(start_.numerics)},
                          {"rank", Value::Int(start_.lora_rank)},
                          {"alpha", Number(start_.lora_alpha)},
                          {"examples", Count(data_.examples)},
                          {"skipped_lines", Count(data_.skipped_lines)},
                          {"cut", Count(data_.cut)},
                          {"dropped", Count(data_.dropped)},
                          {"lost_target", Count(data_.lost_target)},
                          {"seq_len", Count(data_.seq_len)},
                          {"train_examples", Count(start_.train_examples)},
                          {"validation_examples", Count(start_.validation_examples)},
                          {"steps", Value::Int(r.steps_done)},
                          {"total_steps", Value::Int(r.total_steps)},
                          {"interrupted", Value::Bool(r.interrupted)},
                          {"loss", Number(r.last_loss)},
                          {"val_loss", r.last_val_loss ? Number(*r.last_val_loss) : Value::Null()},
                          {"epochs", Value::Array(epochs_)},
                          {"seconds", Number(r.seconds)}});
  }

 private:
  void NoteProblems(const FinetuneData& d) const {
    if (d.skipped_lines == 0) return;
    constexpr size_t kShown = 20;
    for (size_t i = 0; i < std::min(kShown, d.problems.size()); ++i) PrintNote(d.problems[i]);
    if (d.problems.size() > kShown)
      PrintNote(fmt::format("and {} more problems", d.problems.size() - kShown));
    PrintNote(fmt::format("skipped {} lines with problems", d.skipped_lines));
  }
  void NoteLengths(const FinetuneData& d) const {
    if (d.dropped > 0)
      PrintNote(fmt::format("{} examples longer than --max-len {} are left out", d.dropped,
                            args_.options.max_len));
    if (d.cut > 0)
      PrintNote(
          fmt::format("{} examples were cut at --max-len {}; {} of them lost their whole "
                      "target and teach nothing",
                      d.cut, args_.options.max_len, d.lost_target));
    if (d.beyond_window > 0)
      PrintNote(
          fmt::format("{} examples are longer than the {} tokens that an archive of this model "
                      "keeps in view; there the middle of a prompt falls out of view",
                      d.beyond_window, window_));
  }

  const FinetuneArgs& args_;
  int window_;
  FinetuneStart start_;
  FinetuneData data_;
  TrainingOutput output_;
  std::vector<Value> epochs_;
};

/// "gpu  float32  NVIDIA H200 (jax-cuda13-pjrt 0.11.2)"
std::string BackendText(const Device& device) {
  const std::string& more = device.description();
  return fmt::format("{}  float32{}{}", device.backend(), more.empty() ? "" : "  ", more);
}

/// What the native engine does not ask for.
void NoteUnusedTuning(const std::vector<std::pair<std::string, Option>>& tuning) {
  std::string given;
  for (const auto& [name, option] : tuning)
    if (option.given()) given += (given.empty() ? "" : ", ") + name;
  if (!given.empty())
    PrintNote(fmt::format("no effect on the cpu engine: {} (docs/devices.md)", given));
}

Status Run(FinetuneArgs& args) {
  args.options.out = args.out.empty() ? JoinPath(args.folder, "needle_lora.pkl") : args.out;
  std::vector<std::string> written = TrainingFiles(args.options.out);
  written.insert(written.end(), {args.log, args.profile});
  NEEDLE_TRY(CheckOutputs(
      written, {args.data, args.base.checkpoint, args.base.tokenizer, args.options.validation}));
  NEEDLE_TRY(WriteFormatOf(args.options.out));
  if (!args.profile.empty()) NEEDLE_TRY(CheckCanWrite(args.profile));  // no device, as a log may be
  CatchStopSignals();
  OutliveClosedPipes();
  NEEDLE_ASSIGN(const Device device, OpenDevice(args.device));
  PrintLine("backend", BackendText(device));
  for (const std::string& note : device.notes()) PrintNote(note);
  if (device.name() == "cpu") NoteUnusedTuning(args.tuning);
  args.options.device = device;
  NEEDLE_ASSIGN(const BaseModel base, LoadBase(args.base));
  NEEDLE_TRY(RefuseOverwriting(written, {base.file(), base.tokenizer_file()}));
  Printer printer(args, base.window());
  const ProfileReport profile(args.profile);
  const Result<FinetuneReport> report = Finetune(base, args.data, args.options, &printer);
  const Status finished = printer.Finish();
  NEEDLE_TRY(report);
  NEEDLE_TRY(finished);
  NEEDLE_TRY(profile.Finish(args.options.threads));
  if (report->interrupted) {
    PrintLine("stopped", fmt::format("after step {}/{}; go on with the same command and --resume",
                                     report->steps_done, report->total_steps));
    PrintLine("state", report->state_file);
  } else {
    PrintLine("adapter", report->adapter);
    PrintLine("next", fmt::format("needle build {} --lora {}", base.name(), report->adapter));
    PrintLine("note",
              "a tuned model reports no confidence: only the attention was tuned, not the "
              "head that gives it");
  }
  if (JsonMode()) PrintJson(printer.Document(base, *report));
  if (!report->interrupted) return {};
  return Error(Code::kIo, "stopped before the end; no adapter was written");
}

/// A word of the command line as one of `choices`, whose names the parser has checked.
template <class Choice>
Choice Chosen(const std::map<std::string, Choice>& choices, const std::string& word) {
  return choices.at(word);
}

template <class Choice>
std::vector<std::string> Words(const std::map<std::string, Choice>& choices) {
  std::vector<std::string> words;
  words.reserve(choices.size());
  for (const auto& [word, choice] : choices) words.push_back(word);
  return words;
}

const std::map<std::string, Qat> kQat = {
    {"auto", Qat::kAuto}, {"none", Qat::kNone}, {"2", Qat::k2}, {"4", Qat::k4}};
const std::map<std::string, BatchPacking> kPacking = {{"tree", BatchPacking::kTree},
                                                      {"chain", BatchPacking::kChain},
                                                      {"padded", BatchPacking::kPadded}};
const std::map<std::string, LongExamples> kLong = {
    {"error", LongExamples::kError}, {"cut", LongExamples::kCut}, {"drop", LongExamples::kDrop}};

const std::map<std::string, std::optional<bool>> kRemat = {
    {"auto", std::nullopt}, {"on", true}, {"off", false}};
const std::map<std::string, std::optional<bool>> kUnroll = {
    {"auto", std::nullopt}, {"all", true}, {"1", false}};
const std::map<std::string, std::optional<bool>> kFlash = {
    {"auto", std::nullopt}, {"flash", true}, {"plain", false}};
const std::map<std::string, DeviceTuning::Precision> kPrecision = {
    {"highest", DeviceTuning::Precision::kHighest},
    {"tf32", DeviceTuning::Precision::kTf32},
    {"bf16", DeviceTuning::Precision::kBf16}};

Result<int> DeviceCount(const std::string& text) {
  if (text == "all") return 0;
  if (const auto count = ParseInteger<int>(text); count && *count >= 1) return *count;
  return Error(Code::kInvalidArgument,
               fmt::format("--devices is \"{}\"; it must be a number of devices or all", text));
}

Status ParseAndRun(FinetuneArgs& args) {
  DeviceTuning& tuning = args.options.tuning;
  NEEDLE_ASSIGN(tuning.devices, DeviceCount(args.devices));
  tuning.remat = Chosen(kRemat, args.remat);
  tuning.unroll = Chosen(kUnroll, args.unroll);
  tuning.flash = Chosen(kFlash, args.attention);
  tuning.precision = Chosen(kPrecision, args.precision);
  args.options.qat = Chosen(kQat, args.qat);
  args.options.packing = Chosen(kPacking, args.packing);
  args.options.long_examples = Chosen(kLong, args.long_examples);
  return Run(args);
}

/// Gives back --lr, whose absence is worth a note.
Option AddTraining(Options& c, FinetuneOptions& o) {
  c.Add("--epochs", &o.epochs, "passes over the data").Positive();
  c.Add("--batch-size", &o.batch_size, "examples an update").Between(1, 1 << 20);
  Option lr = c.Add("--lr", &o.lr, "peak learning rate").NotNegative().Default("1e-4");
  c.Add("--lora-rank", &o.lora_rank, "rank of the adapter").Positive();
  c.Add("--lora-alpha", &o.lora_alpha, "the adapter is scaled by alpha / rank").Positive();
  c.Add("--max-len", &o.max_len, "most tokens of an example").Positive();
  const Option split =
      c.Add("--val-split", &o.val_split, "share of the examples held out; 0: none").Between(0, 1);
  c.Add("--val", &o.validation, "data file to validate on instead").Excludes(split);
  c.Add("--seed", &o.seed, "initial adapter, split and order");
  return lr;
}

void AddTuning(Options& c, FinetuneArgs& args) {
  const auto add = [&](const char* name, std::string* value, const char* help) -> Option& {
    return args.tuning.emplace_back(name, c.Add(name, value, help)).second;
  };
  add("--devices", &args.devices, "devices of the plugin that share a batch: a number, or all");
  add("--remat", &args.remat, "compute layers again in the backward: less memory, more work")
      .OneOf(Words(kRemat));
  add("--scan-unroll", &args.unroll, "layers in a row in the device's program: 1 is a loop")
      .OneOf(Words(kUnroll));
  add("--attention", &args.attention, "plain, or block by block (flash): less memory")
      .OneOf(Words(kFlash));
  add("--precision", &args.precision, "of matrix products on the device").OneOf(Words(kPrecision));
}

}  // namespace

void AddFinetune(Options& app, Command* chosen) {
  auto args = std::make_shared<FinetuneArgs>();
  FinetuneOptions& o = args->options;
  Options c = app.Group("finetune", "Train a LoRA adapter on your tools");
  c.Add("data", &args->data, "JSONL: query, tools, answers (docs/data.md)").Required();
  c.Add("--checkpoint", &args->base.checkpoint,
        "base: .pkl or .safetensors, or \"bundled\"; the default is downloaded when missing");
  c.AddTokenizer(&args->base.tokenizer);
  c.Add("--out", &args->out, "adapter to write (default: DIR/needle_lora.pkl)");
  c.Add("--checkpoint-dir", &args->folder, "DIR of the adapter without --out");
  const Option lr = AddTraining(c, o);
  c.Add("--qat-bits", &args->qat, "width that training simulates; auto: what build will write")
      .OneOf(Words(kQat));
  c.Add("--packing", &args->packing, "layout of a batch; the result is the same to rounding")
      .OneOf(Words(kPacking));
  c.Add("--long", &args->long_examples, "examples longer than --max-len").OneOf(Words(kLong));
  c.Flag("--skip-bad", &o.skip_bad, "leave lines with problems out instead of stopping");
  c.Flag("--resume", &o.resume, "go on with a run that was stopped, from OUT.state");
  c.Add("--log", &args->log, "JSON line a step and an epoch");
  c.Add("--profile", &args->profile,
        "say where the time went, and write the tasks to this file for Chrome's trace viewer");
  c.Add("--device", &args->device,
        "auto, cpu, gpu, cuda, rocm, oneapi, metal, tpu, xla-cpu, each also as cuda:1 "
        "(docs/devices.md)");
  AddTuning(c, *args);
  c.AddThreads(&o.threads);
  c.AddJson();
  c.Runs(chosen, [args, lr] {
    if (args->base.checkpoint == kBundledCheckpoint && !lr.given())
      PrintNote(
          "the default --lr, upstream's, hardly moves a base as small as the bundled one; the "
          "quickstart takes --lr 4e-3 --epochs 9 --lora-rank 32 --lora-alpha 64");
    return ParseAndRun(*args);
  });
}

}  // namespace needle::cli
