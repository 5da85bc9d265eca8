// exec/decoder.h as a LanguageModel, and the numerics that checkpoints and archives run in.
// Thread-safety: a RunModel is shared and constant; one DecoderModel a thread.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "base/parallel.h"
#include "exec/decoder.h"
#include "format/cact.h"
#include "model/params.h"
#include "quant/cq.h"
#include "runtime/language_model.h"

namespace needle {

/// Full precision without a window: what upstream's plain inference computes.
std::shared_ptr<const RunModel> RunInFloat(const Checkpoint& checkpoint, int threads);
/// A merged checkpoint as its archive runs: codebook values of these widths, every other leaf
/// rounded to float16, activations of config.act_bits, keys and values of config.kv_bits when below
/// 8. The values are the quantiser's own, not training's straight-through sums w + (q - w): their
/// last bit may differ, and the 8-bit activation grid turns that into a whole step now and then.
/// `window` 0: a row sees all.
std::shared_ptr<const RunModel> RunQuantised(const Checkpoint& checkpoint, const BitMap& bits,
                                             int window, int threads);
/// An archive's own weights in the same numerics, with its window.
std::shared_ptr<const RunModel> RunArchive(const CactModel& archive, int threads);

class DecoderModel : public LanguageModel {
 public:
  /// `threads` 0: all that the process may use.
  DecoderModel(std::shared_ptr<const RunModel> model, int threads)
      : model_(std::move(model)), pool_(threads), decoder_(*model_, pool_) {}

  size_t vocab_size() const override { return decoder_.vocab_size(); }
  size_t max_length() const override { return decoder_.max_length(); }
  size_t length() const override { return decoder_.length(); }
  Result<std::span<const float>> Append(std::span<const int32_t> ids) override {
    return decoder_.Append(ids);
  }
  void Truncate(size_t length) override { decoder_.Truncate(length); }
  void SetSinks(size_t rows) override { decoder_.SetSinks(rows); }

 private:
  std::shared_ptr<const RunModel> model_;
  ThreadPool pool_;
  Decoder decoder_;
};

}  // namespace needle
