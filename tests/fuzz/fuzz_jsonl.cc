// Any text is a data file: every line is blank, an example or a problem in words.
#include <string_view>

#include "data/jsonl.h"
#include "fuzz_support.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace needle;  // NOLINT
  const DataReport report =
      ReadData(std::string_view(reinterpret_cast<const char*>(data), size), fuzz::kOrigin);
  fuzz::Require(report.examples.size() + report.skipped + report.blank == report.lines,
                "a line is neither an example, skipped nor blank");
  for (const DataExample& example : report.examples) {
    fuzz::Require(example.line >= 1 && example.line <= report.lines, "a line outside the file");
    fuzz::Require(example.text.prompt.find("<tools>") != std::string::npos,
                  "a prompt without tools");
    fuzz::Require(example.text.target.find("<tool_call>") != std::string::npos,
                  "a target without a call");
    fuzz::Require(example.tools.is_array() && example.answers.is_array(), "no lists");
  }
  for (const DataProblem& problem : report.problems)
    fuzz::Require(problem.message.rfind(fuzz::kOrigin + ":", 0) == 0, problem.message);
  return 0;
}
