// Proves that an archive is the checkpoint that it was built from: the merge is quantised again and
// compared code by code, then both answer sixteen fixed prompts.
// Errors: a checkpoint that cannot be an archive at all (see EncodeCact); differences are no errors
// but part of the report. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/cact.h"
#include "json/json.h"
#include "model/params.h"
#include "quant/cq.h"
#include "runtime/language_model.h"
#include "text/tokenizer.h"

namespace needle {

struct VerifyOptions {
  double logits_tolerance = 1e-4;  // largest difference over the largest logit, per position
  double margin = 1e-3;            // a greedy token may differ where the best two logits are this
                                   // close, as a share of the largest logit
  int greedy_tokens = 24;          // after each prompt
  int threads = 0;                 // 0: all that the process may use
};

struct VerifyReport {
  size_t tensors = 0;  // in the archive
  size_t different_tensors = 0;
  size_t prompts = 0, positions = 0;
  double worst_logits = 0;            // largest relative difference over all positions
  size_t close_calls = 0;             // greedy tokens that differ within the margin
  size_t different_tokens = 0;        // greedy tokens that differ beyond it
  std::vector<std::string> problems;  // sentences; the first names the first tensor that differs
  bool ok() const { return problems.empty(); }
};
json::Value ToJson(const VerifyReport& report);

/// The widths that an archive's tensors have, as a map.
BitMap BitsOf(const CactModel& archive);

/// Quantises `merged` again and compares every tensor of the archive with it: header, order,
/// shapes, widths, codes, norms, vectors, tokenizer. Adds to `report`.
Status CompareTensors(const Checkpoint& merged, const BitMap& bits, const Tokenizer& tokenizer,
                      const CactModel& archive, VerifyReport* report);

/// Runs both models over the prompts and along the greedy answers of `want`. Adds to `report`.
/// Errors: those of the models.
Status CompareModels(LanguageModel& want, LanguageModel& got,
                     const std::vector<std::vector<int32_t>>& prompts, const VerifyOptions& options,
                     VerifyReport* report);

/// The sixteen prompts: BOS and their tokens, at most `max_length` (the end is kept).
Result<std::vector<std::vector<int32_t>>> VerifyPrompts(const Tokenizer& tokenizer,
                                                        size_t max_length);

/// All of it. `merged` is the checkpoint with its adapter, in the checkpoint's number type.
Result<VerifyReport> VerifyArchive(const Checkpoint& merged, const BitMap& bits,
                                   const Tokenizer& tokenizer, const CactModel& archive,
                                   const VerifyOptions& options = {});

}  // namespace needle
