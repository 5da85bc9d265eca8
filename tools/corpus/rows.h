// Rows of the synthetic corpus: requests in plain words, the calls that they ask for, reasoning.
// Rows of a group share one tool set (and system line), so that training computes it once.
// Thread-safety: a pure function of its arguments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "corpus/values.h"

namespace needle::corpus {

struct CorpusOptions {
  uint64_t seed = 1;
  Part part = Part::kTrain;  // kValid: other shapes, other words
  int queries_per_toolset = 8;
  int mean_tools_chars = 780;  // of the tools' JSON; sets the length of the prompt
  double reasoning = 0.5;      // share of rows with reasoning
  double refusals = 0.12;      // share of rows that no tool serves
  double drills = 0;           // share of groups that only drill copying: short prompts, long texts
  double system = 0.06;        // share of groups with a system line
};

/// The JSON lines (no newline) of group `index`; the same on every machine. A row that fails its
/// own check (types, enums, required arguments, values found in the query) is never returned.
std::vector<std::string> MakeGroup(const CorpusOptions& options, uint64_t index);

}  // namespace needle::corpus
