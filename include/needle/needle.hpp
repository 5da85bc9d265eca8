// needle.hpp: fine-tune, build and run Needle tool-calling models from C++20.
//
//   auto base = needle::BaseModel::Load({.checkpoint = "bundled"});
//   auto tuned = needle::Finetune(*base, "data.jsonl", {.out = "mine.pkl"});
//   auto built = needle::Build(*base, {.lora = "mine.pkl", .out = "mine.cact"});
//   auto model = needle::Model::Open("mine.cact");
//   auto agent = model->WithTools(R"([{"name":"set_lamp","parameters":{...}}])");
//   auto answer = agent->Complete("dim the den to 20");   // answer->calls_json
//
// Errors: what can fail returns Result<T>: test it (`if (!base)`), read `base.error().message()`, a
// whole sentence; `error().code()` says of which kind it is. Nothing throws, prints or exits.
// Text: UTF-8. JSON crosses this interface as text. Paths are as the operating system takes them.
// Files that are written appear whole or not at all.
// Thread-safety: BaseModel and Model never change once made and may be shared by threads; an Agent
// belongs to one thread at a time. Different calls of Finetune and Build may run side by side.
// Libraries: Model and Agent are in needle::needle (libneedle), the rest is in needle::train.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace needle {

/// "0.1.0"
std::string_view Version();

// ------------------------------------------------------------------ devices

struct DeviceOptions {
  /// "cpu" (the native engine), "gpu", "cuda", "rocm", "oneapi", "metal", "tpu", "xla-cpu", a name
  /// in PJRT_NAMES_AND_LIBRARY_PATHS, each also with a number ("cuda:1"); "auto": what
  /// NEEDLE_DEVICE says, else JAX_PLATFORMS, else the best device that works.
  std::string device = "auto";
  /// The needle program, which tries a plugin in a process of its own, so that one that crashes
  /// does not take this process with it. "": plugins are tried in this process.
  std::string probe_program;
};

/// A device that trains and that runs checkpoints. GPUs and TPUs are reached through the PJRT
/// plugins that JAX uses, which are found at run time (docs/devices.md). Open one before other
/// threads start: plugins read the environment, which is completed for them.
class Device {
 public:
  /// Errors: kInvalidArgument for a name or a variable that means nothing, kUnavailable when a
  /// named device cannot be used, with the reason. "auto" falls back to the native engine.
  static Result<Device> Open(const DeviceOptions& options = {});

  const std::string& name() const;                // "cpu", "cuda", "metal", ...
  const std::string& backend() const;             // as JAX calls it: "cpu", "gpu", "metal", "tpu"
  const std::string& description() const;         // "NVIDIA H200 (jax-cuda13-pjrt 0.11.2)"; or ""
  const std::vector<std::string>& notes() const;  // what a person should know, a line each
  int count() const;                              // devices of this kind; 1 for "cpu"

  struct Impl;
  explicit Device(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

// ------------------------------------------------------------------ running a model

struct OpenOptions {
  int threads = 0;  // of each agent; 0: all that the process may use
  /// OpenBase: where the model runs; nullopt: the native engine. Weights and caches stay there. A
  /// device runs one query at a time, whatever the number of agents and threads. Model::Open takes
  /// none, because an archive's numerics are the native engine's.
  std::optional<Device> device;
};

struct AskOptions {
  int max_new_tokens = 256;        // beyond it the answer is truncated
  int max_reasoning_tokens = 256;  // then the thinking is ended for the model
  bool constrain = true;           // only calls that the tools allow; false: whatever it writes
  /// Gets the text as it grows, never cut inside a code point. May be empty.
  std::function<void(std::string_view)> on_text;
};

struct Answer {
  std::string type;        // "call", "refuse" (no tool fits) or "respond" (no list of calls)
  std::string calls_json;  // [{"name":...,"arguments":{...}},...]
  std::string reasoning;   // what the model thought before the calls; may be empty
  std::string text;        // all that it wrote, markers included
  std::vector<int32_t> tokens;
  std::string error_code;  // "truncated", "malformed"; empty when all is well
  std::string error;       // the same as a sentence
  std::string json;        // all of this and timings as one JSON object
  bool ok() const { return error_code.empty(); }
};

/// A model with a system text and tools, ready to answer queries. The prompt's beginning is
/// computed once and kept between queries; queries have no influence on each other.
class Agent {
 public:
  Agent(Agent&&) noexcept;
  Agent& operator=(Agent&&) noexcept;
  ~Agent();
  /// Errors: a prompt longer than the model, text that is not UTF-8, schemas that cannot be used;
  /// kInternal when the model's logits are not finite; what a device says (kUnavailable).
  Result<Answer> Complete(std::string_view query, const AskOptions& options = {});

 private:
  friend class Model;
  struct Impl;
  explicit Agent(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// An opened model.
class Model {
 public:
  /// A .cact archive. Errors: kNotFound, kCorruptFile; kInvalidArgument for a device.
  static Result<Model> Open(const std::string& path, const OpenOptions& options = {});
  /// `tools_json`: a JSON list of tools, each with "name" and a JSON schema in "parameters".
  Result<Agent> WithTools(std::string_view tools_json, std::string_view system = {}) const;

  struct Impl;
  explicit Model(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

// ------------------------------------------------------------------ a base model

/// The published base's place; it is downloaded when nothing is there.
inline constexpr std::string_view kDefaultCheckpoint = "checkpoints/needle2.pkl";
/// The small base inside the library, which needs no file.
inline constexpr std::string_view kBundledCheckpoint = "bundled";

struct LoadOptions {
  std::string checkpoint = std::string(kDefaultCheckpoint);  // .pkl, .safetensors or "bundled"
  /// "": tokenizer.model beside the checkpoint, else the per-user cache, else it is downloaded.
  std::string tokenizer;
  bool download = true;                                          // false: never open a connection
  std::function<void(const std::string& sentence)> notice;       // news of a download; may be empty
  std::function<bool(uint64_t bytes, uint64_t total)> progress;  // false stops it; may be empty
};

/// A checkpoint with its tokenizer: what is fine-tuned, built and verified.
class BaseModel {
 public:
  static Result<BaseModel> Load(const LoadOptions& options);

  const std::string& name() const;            // the checkpoint as given
  const std::string& file() const;            // where it was read from
  const std::string& tokenizer_file() const;  // where the tokenizer was read from
  size_t parameters() const;
  int vocab_size() const;
  int max_seq_len() const;
  int window() const;  // tokens that an archive of this model keeps

  struct Impl;
  explicit BaseModel(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
  const Impl& impl() const { return *impl_; }

 private:
  std::shared_ptr<const Impl> impl_;
};

/// The base in float32, with an adapter when `lora` is not empty: what an archive is compared with.
/// On a device the weights are there when this returns. Errors: those of the adapter's file, and of
/// the device.
Result<Model> OpenBase(const BaseModel& base, const std::string& lora = {},
                       const OpenOptions& options = {});

// ------------------------------------------------------------------ fine-tuning

/// How a plugin's programs are written. Nothing of it changes what is computed but `precision`.
struct DeviceTuning {
  int devices = 1;             // how many share a batch; 0: all
  std::optional<bool> remat;   // compute a layer again in the backward instead of keeping it: less
                               // memory, more work; nullopt: yes, but not on Metal and processors
  std::optional<bool> unroll;  // all layers in a row instead of a loop; nullopt: only on Metal
  std::optional<bool> flash;   // attention block by block with a running softmax; nullopt: yes,
                               // but not on Metal
  enum class Precision { kHighest, kTf32, kBf16 };
  Precision precision = Precision::kHighest;  // of matrix products
};

/// What the weights look like in training, so that the archive answers like the trained model.
enum class Qat {
  kAuto,  // the checkpoint's own map of widths, else 4 bits
  kNone,  // full precision
  k2,     // 2 bits
  k4,     // 4 bits
};

/// How a batch is laid out. All three give the same result to rounding.
enum class BatchPacking {
  kTree,    // beginnings that examples share are computed once
  kChain,   // each example on its own, without padding
  kPadded,  // each example padded to the longest's bucket, as upstream does
};

/// What happens to examples that are longer than max_len.
enum class LongExamples { kError, kCut, kDrop };

struct FinetuneOptions {
  std::string out = "checkpoints/needle_lora.pkl";  // the adapter; .pkl or .safetensors
  int epochs = 3;
  size_t batch_size = 16;  // examples an update; the last batch of an epoch may be short
  float lr = 1e-4f;        // peak, after warm-up; a cosine takes it to 0
  int lora_rank = 16;      // 32 doubles what the adapter can hold
  float lora_alpha = 32;   // > 0: the adapter is scaled by alpha / rank
  size_t max_len = 1024;   // tokens of one example
  double val_split = 0.1;  // share of the examples held out; 0: none
  std::string validation;  // a data file to validate on instead; "": val_split
  uint64_t seed = 0;       // initial adapter, split, order
  Qat qat = Qat::kAuto;
  BatchPacking packing = BatchPacking::kTree;
  LongExamples long_examples = LongExamples::kError;
  bool skip_bad = false;         // train on the good lines instead of stopping at the bad ones
  int threads = 0;               // 0: all that the process may use; the result is the same on any
  bool resume = false;           // go on from `out` + ".state", which a stopped run leaves
  std::optional<Device> device;  // nullopt: the native engine
  DeviceTuning tuning;           // for devices other than the native engine
};

struct FinetuneData {
  size_t examples = 0;                // usable ones
  size_t skipped_lines = 0;           // with problems (skip_bad)
  std::vector<std::string> problems;  // of those lines, each a sentence with file and line
  size_t seq_len = 0;                 // upstream's length bucket of the longest example
  size_t longest = 0;                 // tokens of the longest example
  size_t cut = 0, dropped = 0;        // examples longer than max_len
  size_t lost_target = 0;             // cut so short that nothing of the target is left
  size_t beyond_window = 0;           // longer than the window that an archive will have
};

struct FinetuneStart {
  std::string numerics;  // "mixed[...]" or "W4"; "" in full precision
  int lora_rank = 0;
  float lora_alpha = 0;
  size_t weight_groups = 0;  // stacked kernels that are adapted
  size_t train_examples = 0, validation_examples = 0;
  int64_t total_steps = 0, warmup_steps = 0;
  int64_t first_step = 0;  // > 0 when resumed: updates that were done before
  /// Not resumed, though `out` + ".state" held a stopped run: a sentence on where that is kept now
  /// (`out` + ".state.old"). "" otherwise.
  std::string set_aside;
};

struct FinetuneStep {
  int64_t step = 0, total = 0;  // from 1
  int epoch = 0, epochs = 0;    // from 1
  double loss = 0;
  double grad_norm = 0;  // before clipping
  float lr = 0;
  std::span<const int32_t> rows;  // the batch, as 0-based lines of the data file
  double target_tokens = 0;
  size_t tokens_computed = 0;  // rows of the network: shared beginnings count once
  double seconds = 0;
};

struct FinetuneEpoch {
  int epoch = 0, epochs = 0;
  double loss = 0;  // of the epoch's last batch
  std::optional<double> val_loss;
};

/// Told what happens, on the thread that called Finetune.
class FinetuneObserver {
 public:
  virtual ~FinetuneObserver() = default;
  /// The device as JAX calls it ("cpu", "gpu"), before anything is read.
  virtual void OnBackend(const std::string&) {}
  virtual void OnData(const FinetuneData&) {}
  virtual void OnStart(const FinetuneStart&) {}
  virtual void OnStep(const FinetuneStep&) {}
  virtual void OnEpoch(const FinetuneEpoch&) {}
  /// True stops after the update at hand; the state is kept for `resume`.
  virtual bool ShouldStop() { return false; }
};

struct FinetuneReport {
  std::string adapter;     // written; "" when interrupted
  std::string state_file;  // where an interrupted run is kept
  bool interrupted = false;
  int64_t steps_done = 0, total_steps = 0;
  double last_loss = 0;
  std::optional<double> last_val_loss;
  double seconds = 0;
};

/// Trains an adapter on a JSONL file and writes it to `options.out`. `observer` may be nullptr.
/// Errors: kInvalidArgument for options and data (every bad line is named), kInternal when the loss
/// stops being a number (step, lines and operation are named); files as everywhere. A name that
/// cannot be written to is found before the work begins.
Result<FinetuneReport> Finetune(const BaseModel& base, const std::string& data_path,
                                const FinetuneOptions& options = {},
                                FinetuneObserver* observer = nullptr);

// ------------------------------------------------------------------ building an archive

struct BuildOptions {
  std::string lora;  // adapter to merge first; "": none
  std::string out;   // "": the checkpoint's stem and ".cact", in the working directory
  /// "2", "3", "4", "1.58" or a map "name=bits,...,default=bits"; "": what the adapter was trained
  /// for, else the checkpoint's own map, else 4. Another width than the trained one is an error.
  std::string bits;
};

struct BuildReport {
  std::string path;
  uint64_t bytes = 0;
  size_t tensors = 0;         // the tokenizer included
  std::string scheme;         // "W4" or "mixed[...]"
  bool from_adapter = false;  // the adapter decided the widths
  size_t merged = 0;          // weight groups of the adapter
};

Result<BuildReport> Build(const BaseModel& base, const BuildOptions& options = {});

}  // namespace needle
