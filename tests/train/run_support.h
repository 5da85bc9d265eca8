// Test support: runs of the training loop on the reference set's sequences.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "support/reference_set.h"
#include "train/trainer.h"

namespace needle::test {

/// Padded sequences and masks [B, T] as encoded examples, without the padding; row i is line i + 1.
inline std::vector<EncodedExample> ExamplesOf(const NpyArray& seqs, const NpyArray& masks) {
  const Batch batch = BatchOf(seqs, masks);
  std::vector<EncodedExample> out;
  for (size_t i = 0; i < batch.ids.size(); ++i) {
    EncodedExample e;
    e.row = static_cast<int32_t>(i);
    e.line = i + 1;
    e.ids = batch.ids[i];
    e.weights = batch.weights[i];
    out.push_back(std::move(e));
  }
  return out;
}

/// The trajectory's 36 examples.
inline std::vector<EncodedExample> TrajectoryExamples() {
  const Npz npz = ReferenceNpz("tiny/traj_none.npz");
  return ExamplesOf(npz.at("seqs"), npz.at("masks"));
}

/// The ends of the first `count` of them: at most `length` tokens each, for quick runs.
inline std::vector<EncodedExample> ShortExamples(size_t count, size_t length) {
  std::vector<EncodedExample> examples = TrajectoryExamples();
  examples.resize(count);
  for (EncodedExample& e : examples) {
    if (e.ids.size() <= length) continue;
    const auto cut = static_cast<std::ptrdiff_t>(e.ids.size() - length);
    e.ids.erase(e.ids.begin(), e.ids.begin() + cut);
    e.weights.erase(e.weights.begin(), e.weights.begin() + cut);
  }
  return examples;
}

inline std::unique_ptr<Backend> Cpu(const Checkpoint& base, CpuBackendOptions options) {
  Result<std::unique_ptr<Backend>> backend = MakeCpuBackend(base, options);
  EXPECT_TRUE(backend.ok()) << backend.error().message();
  return *std::move(backend);
}

inline CpuBackendOptions SmallLora(int threads = 2) {
  CpuBackendOptions o;
  o.lora = {.rank = 4, .alpha = 8.0f, .seed = 3};
  o.threads = threads;
  return o;
}

inline Forest ForestOf(const std::vector<EncodedExample>& examples, std::span<const int32_t> rows,
                       Packing packing = Packing::kTree) {
  std::vector<Sequence> sequences;
  for (const int32_t row : rows) sequences.push_back(examples[static_cast<size_t>(row)].sequence());
  return BuildForest(sequences, packing,
                     static_cast<float>(std::max(1.0, CountedWeight(sequences))));
}

/// How upstream trained the trajectories of the reference set.
inline TrainOptions ReferenceRun() {
  TrainOptions options;
  options.epochs = 4;
  options.batch_size = 8;
  options.lr = 5e-3f;
  options.seed = 3;
  return options;
}

/// Keeps what a run reports; `stop_after` > 0 asks it to stop after that step.
struct Recorder : TrainObserver {
  void OnStart(const TrainPlan& p) override { plan = p; }
  void OnStep(const StepEvent& e) override {
    steps.push_back(e);
    rows.emplace_back(e.rows.begin(), e.rows.end());
    steps.back().rows = {};
    if (on_step) on_step(e);
  }
  void OnEpoch(const EpochEvent& e) override { epochs.push_back(e); }
  bool ShouldStop() override {
    return stop_after > 0 && !steps.empty() && steps.back().step >= stop_after;
  }
  int64_t stop_after = 0;
  std::function<void(const StepEvent&)> on_step;
  TrainPlan plan;
  std::vector<StepEvent> steps;
  std::vector<std::vector<int32_t>> rows;
  std::vector<EpochEvent> epochs;
};

}  // namespace needle::test
