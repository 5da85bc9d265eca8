// The training loop: order, batches, schedule, validation, state. The arithmetic is the backend's;
// progress goes to an observer. With the same data, seed and settings a run gives the same values
// bit for bit, resumed or not, on any number of threads.
// Source: MODEL.md section 6. Errors: sentences naming step and rows. Thread-safety: one run, one
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "data/examples.h"
#include "model/params.h"
#include "ops/adamw.h"
#include "ops/forest.h"

namespace needle {

struct TrainOptions {
  int epochs = 3;
  size_t batch_size = 16;  // examples an update; the last batch of an epoch may be short
  float lr = 1e-4f;        // peak, after warm-up
  double val_split = 0.1;  // share of examples held out; 0: none. Ignored with a validation set
  uint64_t seed = 0;       // split and order
  Packing packing = Packing::kTree;
  size_t padded_length = 0;  // row length of Packing::kPadded
  size_t shuffle_group = 1;  // examples that stay together when an epoch is shuffled
  int64_t max_steps = 0;     // stop after this many updates; 0: all epochs. The schedule follows.
  AdamWOptions adamw;        // for the bias corrections; the same as the backend's
  std::string settings;      // what else tells this run from another, for `resume` (numerics, ...)
  const Checkpoint* base = nullptr;  // what is trained from, for `resume`; nullptr: anything
  std::string state_path;            // "" keeps no state; else written as asked below
  double state_seconds = 60;         // about how often
  bool resume = false;               // go on from state_path, which must belong to this run
};

/// What is known before the first update.
struct TrainPlan {
  size_t train_examples = 0, validation_examples = 0;
  int64_t total_steps = 0, warmup_steps = 0, steps_per_epoch = 0;
  int64_t first_step = 0;  // > 0 when resumed
  /// Not resumed, though a stopped run stood at state_path: a sentence on where it is kept now.
  std::string set_aside;
};

struct StepEvent {
  int64_t step = 0, total = 0;  // 1-based
  int epoch = 0, epochs = 0;    // 1-based
  double loss = 0, grad_norm = 0;
  float lr = 0;
  std::span<const int32_t> rows;  // 0-based lines of the data file
  double target_tokens = 0;       // the loss normaliser before it is raised to 1
  size_t tokens_computed = 0;     // rows of the forest
  double seconds = 0;             // of this update
};

struct EpochEvent {
  int epoch = 0, epochs = 0;
  double loss = 0;                 // of the last batch
  std::optional<double> val_loss;  // mean over validation batches
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void OnStart(const TrainPlan&) {}
  virtual void OnStep(const StepEvent&) {}
  virtual void OnEpoch(const EpochEvent&) {}
  /// True ends the run after the update at hand; the state is saved when there is a path for it.
  virtual bool ShouldStop() { return false; }
};

struct TrainOutcome {
  TrainPlan plan;
  int64_t steps_done = 0;
  bool interrupted = false;
  double last_loss = 0;
  std::optional<double> last_val_loss;
};

/// Trains. `validation` non-empty replaces the split. A run that is not resumed renames the stopped
/// run that it finds at state_path to state_path + ".old"; any other file there is an error before
/// the first update. A state never says that its last epoch has ended: a run resumed at the end of
/// an epoch validates and reports it first.
Result<TrainOutcome> Train(Backend& backend, std::span<const EncodedExample> examples,
                           std::span<const EncodedExample> validation, const TrainOptions& options,
                           TrainObserver& observer);

}  // namespace needle
