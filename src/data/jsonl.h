// Data files: one JSON object a line, read as upstream reads them (Python text mode: \n, \r\n and a
// lone \r end a line; lines are stripped, empty ones skipped), with every problem of every line as
// a sentence "file:line: what; how to fix it". The format for people: docs/data.md. Thread-safety:
// values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "json/json.h"
#include "text/render.h"

namespace needle {

/// One good line.
struct DataExample {
  size_t line = 0;       // 1-based, as editors count
  int32_t row = 0;       // the same line 0-based, as the training log names it
  RenderedExample text;  // what is trained on
  std::string system;    // stripped; empty means none
  std::string query;
  std::string tools_text;  // as it stands in the prompt
  json::Value tools;       // a list of tools, parsed; no tools is an empty list
  json::Value answers;     // a list of calls, parsed: {"name": string, "arguments": object}
};

struct DataProblem {
  size_t line = 0;      // 1-based
  std::string message;  // the whole sentence, with file and line
};

struct DataReport {
  std::string name;                   // of the file, as in the problems
  std::vector<DataExample> examples;  // the good lines, in order
  std::vector<DataProblem> problems;  // in order of lines; a line may have several
  size_t lines = 0;                   // of the file, empty ones included
  size_t blank = 0;
  size_t skipped = 0;  // lines with problems, which are not among the examples
};

/// What to do about lines with problems.
enum class BadLines {
  kStop,  // an error that lists the first twenty
  kSkip,  // go on with the others; the report keeps the problems
};

/// A tool's name; chat APIs put it into "function". Nothing when there is none, or an empty one.
std::optional<std::string> ToolName(const json::Value& tool);

/// Reads the text of a data file. Never fails: what is wrong is in the report.
DataReport ReadData(std::string_view text, const std::string& name);

/// Reads a file. Errors: kNotFound, kIo; kInvalidArgument with the problems (kStop) or when no
/// usable line is left.
Result<DataReport> LoadData(const std::string& path, BadLines policy);

/// The error that kStop gives, or success when there are no problems.
Status StopAtProblems(const DataReport& report);

}  // namespace needle
