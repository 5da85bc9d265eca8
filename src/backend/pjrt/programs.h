// The programs of a training run on a device, as StableHLO text:
//   merge       base (and LoRA factors) -> the weights as used: fused, adapted, quantised
//   accumulate  weights, one block      -> gradients and loss, added to what is there
//   apply       gradients, moments      -> clip, AdamW, and the weights that changed, merged again
//   evaluate    weights, one block      -> loss ("evaluated")
//   logits      weights, one block      -> logits of the block's target rows ("evaluated")
//   append      weights, caches, rows   -> logits of the last row, and the caches with those rows
// Every input and output has a name; a backend keeps one array a name on the device, so that a step
// moves a block in and a loss out.
//   base/<path>   parameter of the checkpoint, float32, in upstream's shape
//   value/<leaf>  trained value: <path>/A, <path>/B of LoRA, or <path> when all is trained
//   first/<leaf>, second/<leaf>  its moments
//   used/<path>   weight as the forward reads it; used/qkvg [L, D, 2A + 2KE] and used/phi
//                 [L, S*D, C] hold several leaves side by side
//   grad/<name>   gradient of value/<name> (LoRA) or of used/<name>
//   block/...     see Block; rope/cos, rope/sin [T, E / 2]
//   cache/k, cache/v [L, K, capacity, E]; cache/val [sites, capacity, D] values of the n-gram
//                 memories before their convolution
// Source: MODEL.md sections 4-7; src/model/reference.h. Thread-safety: const functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/pjrt/blocks.h"
#include "backend/pjrt/hlo/print.h"
#include "model/config.h"

namespace needle::pjrt {

enum class Attention {
  kPlain,    // scores of all pairs of rows at once
  kBlocked,  // block after block of keys with a running softmax ("flash"): little memory
};

struct ProgramOptions : TrainingSetup {
  Attention attention = Attention::kBlocked;
  int64_t key_block = 128;  // keys of a block of kBlocked; fewer when T is smaller
  bool remat = false;       // true: the backward computes a layer again (less memory, a third more)
  bool unroll = false;  // true: all layers in a row; false: a loop over layers (quick to compile)
  hlo::Precision precision = hlo::Precision::kHighest;
  int devices = 1;  // the first so many of the client share a batch
};

using NamedTypes = std::map<std::string, ArraySpec>;

/// What `append` is compiled for.
struct AppendShape {
  int64_t rows = 1;        // of one call
  int64_t capacity = 256;  // of the caches
  // What clang-tidy 14 sees in the generated operator.  NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const AppendShape&, const AppendShape&) = default;
};

class Programs {
 public:
  /// `targets`: the parameters that LoRA adapts, or all that are trained.
  Programs(const ModelConfig& config, std::vector<ParamSpec> targets, ProgramOptions options);

  const ProgramOptions& options() const { return options_; }
  /// Trained values by leaf: "<path>/A" or "<path>".
  const NamedTypes& leaves() const { return leaves_; }
  /// Gradients by name ("grad/" left out).
  const NamedTypes& gradients() const { return gradients_; }
  /// All weights that the forward reads ("used/" left out).
  const NamedTypes& used() const { return used_; }
  /// Those that an update changes and that are not simply a trained value itself.
  const std::vector<std::string>& derived() const { return derived_; }
  /// Paths of the base that apply reads (LoRA: the adapted weights).
  std::vector<std::string> kept_base() const;

  hlo::NamedProgram Merge(bool all) const;
  hlo::NamedProgram Accumulate(const BlockShape& shape) const;
  hlo::NamedProgram Apply() const;
  hlo::NamedProgram Evaluate(const BlockShape& shape) const;
  hlo::NamedProgram Logits(const BlockShape& shape) const;
  /// Inputs beside weights and caches: block/tokens [rows], block/start (where they go),
  /// block/slots, block/conv_rows (rows of the cache), block/last (which row's logits). Rows after
  /// `last` are free: what they leave in the caches is written over before it is seen.
  hlo::NamedProgram Append(const AppendShape& shape) const;

 private:
  class Forward;
  class Weights;
  const ParamSpec& Spec(const std::string& path) const;
  bool lora() const { return options_.trained == TrainedSet::kLora; }

  ModelConfig config_;
  std::vector<ParamSpec> targets_, all_;
  ProgramOptions options_;
  NamedTypes leaves_, gradients_, used_;
  std::vector<std::string> derived_;
};

}  // namespace needle::pjrt
