// The one table of parameters: path in upstream's tree, shape, and what may be done with it.
// Loading, initialising, LoRA, merging, quantising and inspecting all walk it.
// Thread-safety: values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "tensor/tensor.h"

namespace needle {

enum class Init { kNormal002, kNormalOut, kZeros, kOnes, kD3, kTaps, kIdentity4, kMhcA, kLogTemp };

struct ParamSpec {
  std::string path;  // "stack/layers/block/self_attn/q_proj/kernel"
  Shape shape;
  Init init = Init::kZeros;
  bool quantised = false;  // QAT and the archive give it codebook codes
  bool grouped_on_rows =
      false;                // the quantiser groups the last axis (embeddings), else the input axis
  bool lora = false;        // a LoRA target
  bool optional = false;    // MTP and probe heads: may be absent from a checkpoint, as a group
  bool in_training = true;  // takes part in the training loss (MTP and heads do not)
};

/// Every parameter of a model, sorted by path (upstream's own order of leaves).
std::vector<ParamSpec> ModelParams(const ModelConfig& config);

/// Those of them that take part in the training loss.
std::vector<ParamSpec> TrainingParams(const ModelConfig& config);

/// Named arrays, sorted by path.
using TensorMap = std::map<std::string, Tensor>;

/// A checkpoint's contents: what every command starts from. Reading and writing:
/// format/checkpoint.h.
struct Checkpoint {
  ModelConfig config;
  TensorMap params;  // in the file's number types
  int64_t step = 0;
  std::string run_stage;  // informational, may be empty
};

/// Errors: a parameter missing, unknown, or of another shape than the config asks for. MTP and head
/// leaves may be absent as a group.
Status CheckParams(const ModelConfig& config, const TensorMap& params);

/// Upstream's initialisers, drawn from a named stream of ours. dtype: kF16 or kF32.
Checkpoint RandomCheckpoint(const ModelConfig& config, uint64_t seed, DType dtype);

/// LoRA targets of a checkpoint, in upstream's order (sorted by path); a target whose weights are
/// all <= 1e-6 in magnitude is left out.
std::vector<ParamSpec> LoraTargets(const Checkpoint& base);

struct LoraPair {
  Tensor a;  // [L, in, R] float32
  Tensor b;  // [L, R, out] float32
};

/// What `finetune` writes and `build` merges. Reading and writing: format/adapter.h.
struct Adapter {
  std::map<std::string, LoraPair> lora;  // by target path
  double scale = 2.0;                    // alpha / rank
  std::string base;                      // path of the base checkpoint, as given
  int rank = 16;
  int qat_bits = 0;          // 2, 4, or 0 for none
  std::string qat_bits_map;  // mixed map, or empty
  uint64_t seed = 0;
};

/// base + adapter, in the checkpoint's number type as upstream's build does (MODEL.md section 5).
Result<Checkpoint> Merge(const Checkpoint& base, const Adapter& adapter);

}  // namespace needle
