// Running a model token by token: the same executor as training, with keys and values kept.
// RunModel is read-only and shared; a Decoder is one conversation.
// Thread-safety: RunModel const from many threads; a Decoder and its pool belong to one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/parallel.h"
#include "exec/executor.h"
#include "exec/weights.h"

namespace needle {

/// The numerics of running. An archive runs as it was trained: 8-bit activations, its key/value
/// width and its window; a checkpoint in full precision has none of them.
struct RunNumerics {
  Numerics numerics;
  int window = 0;  // keys that a row sees, itself included; 0: all
};

class RunModel {
 public:
  /// `params`: upstream's tree, float32, as used (an archive's are dequantised already).
  RunModel(const ModelConfig& config, ParamArrays<float> params, const RunNumerics& numerics,
           ThreadPool& pool);

  const ModelConfig& config() const { return weights_.config(); }
  const Weights& weights() const { return weights_; }
  int window() const { return window_; }

 private:
  Weights weights_;
  int window_;
};

class Decoder {
 public:
  Decoder(const RunModel& model, ThreadPool& pool);

  size_t vocab_size() const { return model_.weights().dims().V; }
  size_t max_length() const { return static_cast<size_t>(model_.config().max_seq_len); }
  size_t length() const { return tokens_.size(); }

  /// Appends rows (at least one, at most max_length() - length(), asserted) and returns the logits
  /// [V] of the last one, valid until the next call.
  std::span<const float> Append(std::span<const int32_t> ids);
  /// Forgets the rows from `length` (<= length()) on.
  void Truncate(size_t length);
  /// The first rows that the window never drops. Holds for rows appended from now.
  void SetSinks(size_t rows) { sinks_ = rows; }

 private:
  void AppendBlock(std::span<const int32_t> ids);

  const RunModel& model_;
  Executor executor_;
  std::vector<int32_t> tokens_;
  size_t sinks_ = 0;
  Context context_;
  Activations acts_;
  Rows rows_;
  std::vector<float> logits_;
};

}  // namespace needle
