// The one renderer: an example's fields to the prompt and target texts (MODEL.md section 3).
// Training, eval, build's tests and run share it. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "json/json.h"

namespace needle {

struct RenderedExample {
  std::string prompt;
  std::string target;
};

/// Python's str.strip() on UTF-8 text.
std::string_view StripPython(std::string_view text);

/// The text between <tools> tags: a string verbatim, anything else dumped.
std::string RenderTools(const json::Value& tools);

/// The prompt of a query; `system` is stripped, empty means none; `tools_text` as from RenderTools.
std::string RenderPrompt(std::string_view system, std::string_view tools_text,
                         std::string_view query);

/// One parsed data line. Errors: not an object, query/system/reasoning of a wrong type. A line
/// without "query" is kInvalidArgument too; the caller decides whether to skip it.
Result<RenderedExample> RenderExample(const json::Value& line);

}  // namespace needle
