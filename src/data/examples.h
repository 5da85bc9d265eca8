// Examples as token ids with weights, and what to do about those that are too long.
// Source: MODEL.md section 3, "Sequence" and "Length bucket" (docs/numerics.md). Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/jsonl.h"
#include "ops/forest.h"
#include "text/tokenizer.h"

namespace needle {

/// What to do about examples that are longer than max_len.
enum class LongLines {
  kError,  // an error that lists the first twenty
  kCut,    // cut from the right, as upstream does: a long prompt loses its whole target
  kDrop,   // leave them out
};

struct EncodeOptions {
  size_t max_len = 1024;  // tokens, BOS and EOS included
  LongLines long_lines = LongLines::kError;
  // How much predicting a token of the prompt counts; a target token counts 1. 0 for fine-tuning;
  // a small weight adds a light language model when a whole model is trained.
  float prompt_weight = 0;
};

/// BOS, prompt, target, EOS; already cut.
struct EncodedExample {
  size_t line = 0;  // 1-based line of the data file
  int32_t row = 0;  // the same, 0-based
  std::vector<int32_t> ids;
  std::vector<float> weights;  // as many: 0 for BOS, prompt_weight, then 1 for target and EOS

  Sequence sequence() const { return {ids, weights}; }
};

struct LongLine {
  size_t line = 0;
  size_t tokens = 0;         // before cutting
  bool lost_target = false;  // cut so short that no target token is left
};

struct EncodedData {
  std::vector<EncodedExample> examples;
  std::vector<LongLine> long_lines;  // those that were cut or dropped
  size_t longest = 0;                // tokens of the longest kept example, before cutting
  size_t lost_target = 0;            // examples that were kept without any target token
};

/// Encodes examples in order. `name` is the file's, for errors: kInvalidArgument for max_len 0 and
/// for long lines (kError), or when none is left (kDrop).
Result<EncodedData> EncodeExamples(std::span<const DataExample> examples,
                                   const Tokenizer& tokenizer, const EncodeOptions& options,
                                   const std::string& name);

/// The row length of a padded run: 128, doubled until it holds `longest` or reaches the cap; at
/// most the cap.
size_t LengthBucket(size_t longest, size_t cap);

/// The sum of the weights that count (all but each sequence's first): a batch's loss normaliser
/// before it is raised to at least 1.
double CountedWeight(std::span<const Sequence> batch);

}  // namespace needle
