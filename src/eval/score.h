// Scores a model on data rows through the engine: exact calls, mistakes by kind and by tool,
// refusals counted apart. How rows are judged, for people: docs/eval.md.
// Thread-safety: values and free functions; ScoreExamples runs its own sessions.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/jsonl.h"
#include "json/json.h"
#include "runtime/engine.h"

namespace needle {

enum class Outcome {
  kExact,           // the same calls in the same order, arguments equal as JSON values
  kWrongArguments,  // the same tools in the same order, some argument differs
  kWrongCalls,      // other tools, another number or another order of calls
  kFalseAlarm,      // calls where none was wanted
  kMiss,            // no call where one was wanted
  kTruncated,       // the answer did not end within the token budget
  kMalformed,       // not a list of calls (without the grammar)
  kError,           // the row could not be run: `error` says why
};
std::string_view Name(Outcome outcome);  // "exact", "wrong arguments", ...

/// What one row got.
struct RowScore {
  size_t line = 0;  // 1-based, in the data file
  Outcome outcome = Outcome::kError;
  std::string query;
  json::Value expected = json::Value::Array();
  json::Value got = json::Value::Array();
  std::string text;   // all that the model wrote
  std::string error;  // of kTruncated, kMalformed and kError
  size_t tokens = 0;  // written
};

/// The wanted calls of one tool, each compared with the call in the same place of the answer.
struct ToolScore {
  std::string name;
  size_t support = 0;  // wanted calls; the next four add up to it
  size_t exact = 0;
  size_t wrong_name = 0;       // another tool in its place
  size_t wrong_arguments = 0;  // the tool, with other arguments
  size_t missing = 0;          // no call in its place
  size_t unwanted = 0;         // calls of this tool where another or none was wanted
};

struct EvalReport {
  std::string model;  // as the caller names it
  std::string data;
  std::vector<RowScore> rows;      // in the order of the file
  std::vector<ToolScore> tools;    // by name
  std::vector<std::string> notes;  // warnings, each a sentence
  double seconds = 0;

  size_t Count(Outcome outcome) const;
  size_t exact() const { return Count(Outcome::kExact); }
  double accuracy() const;         // exact / rows; 0 without rows
  size_t refusals_wanted() const;  // rows whose wanted calls are []
  size_t refusals_right() const;
  size_t calls_wanted() const { return rows.size() - refusals_wanted(); }
  size_t calls_right() const { return exact() - refusals_right(); }
};

struct ScoreOptions {
  CompleteOptions complete;  // 256 new tokens, with the grammar
  int sessions = 1;  // rows in work at once; each has the engine's threads and its own memory
  /// Called after each row, from any thread, one call at a time.
  std::function<void(size_t done, size_t total, size_t exact)> progress;
};

/// Judges one answer. `expected` and `got` are lists of {"name", "arguments"}.
Outcome Judge(const json::Value& expected, const json::Value& got);

/// Runs every example. Examples with the same system and tools run after one another, so that their
/// shared beginning is computed once; the report is in the order given. The result does not depend
/// on `sessions`. A row that cannot be run is a row of the report (kError).
EvalReport ScoreExamples(const std::shared_ptr<const Engine>& engine,
                         const std::vector<DataExample>& examples, const ScoreOptions& options);

/// Fills `tools` and `notes` from `rows`.
void Summarise(EvalReport* report);

/// Two models on the same rows.
struct PairedComparison {
  size_t both = 0, only_first = 0, only_second = 0, neither = 0;  // rows exact
  double p_value = 1;  // McNemar's exact test, two-sided: that they are equally good
};
/// Errors: reports over different rows.
Result<PairedComparison> Compare(const EvalReport& first, const EvalReport& second);
/// Two-sided exact binomial test of b against c at one half; 1 when both are 0.
double McNemarExact(size_t b, size_t c);
/// The 95 % interval of a share (Wilson): {low, high}; {0, 1} without trials.
std::pair<double, double> WilsonInterval(size_t successes, size_t trials);

}  // namespace needle
