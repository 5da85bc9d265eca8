// Backend: the training step of a model on a device. `train` owns order, schedule and files; a
// backend owns the trained values, their moments and the arithmetic.
// Errors: a device's own, as sentences. Thread-safety: one backend, one thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/lora.h"
#include "model/params.h"
#include "ops/adamw.h"
#include "ops/forest.h"
#include "quant/numerics.h"

namespace needle {

/// What is trained.
enum class TrainedSet {
  kLora,  // low-rank factors of the attention projections; the base is frozen
  kAll,   // every parameter of the training loss
};

/// What a run trains and in which numerics, on any device.
struct TrainingSetup {
  TrainedSet trained = TrainedSet::kLora;
  LoraOptions lora;
  Numerics numerics;  // QAT: quantised weights, 8-bit activations, key/value bits
  AdamWOptions adamw;
};

struct StepResult {
  double loss = 0;
  double grad_norm = 0;  // before clipping
};

/// The trained values and the optimiser's moments, by name: what resume needs.
struct TrainState {
  std::map<std::string, std::vector<float>> values, first_moment, second_moment;
};

/// What a run trains: the LoRA targets of a base, or every parameter of the training loss.
/// Errors: a base without a LoRA target that is not all zero.
Result<std::vector<ParamSpec>> TrainedParams(const Checkpoint& base, TrainedSet trained);

/// Whether the state holds values and both moments of every name, in these sizes.
Status CheckState(const TrainState& state, const std::map<std::string, size_t>& sizes);

class Backend {
 public:
  virtual ~Backend() = default;

  /// "cpu", "gpu", "metal", "tpu" as JAX names it, and a line for people ("AVX-512, 2 threads").
  virtual std::string Name() const = 0;
  virtual std::string Description() const = 0;

  /// One update from one batch. A loss that is not finite leaves values and moments as they were.
  virtual Result<StepResult> Step(const Forest& batch, const UpdateScalars& scalars) = 0;
  /// The loss of a batch in the same numerics; changes nothing.
  virtual Result<double> Evaluate(const Forest& batch) = 0;
  /// After a loss that is not finite: which operation produced it first ("" when unknown).
  virtual std::string ExplainNonFinite(const Forest& batch) = 0;

  /// Of a device that fails: its error, and so for Lora and Params.
  virtual Result<TrainState> State() const = 0;
  /// Errors: names or sizes that are not this run's.
  virtual Status SetState(const TrainState& state) = 0;
  /// The LoRA factors as an adapter holds them (kLora).
  virtual Result<std::map<std::string, LoraPair>> Lora() const = 0;
  /// The trained parameters (kAll), float32.
  virtual Result<TensorMap> Params() const = 0;
};

}  // namespace needle
