// The text that a model wrote after a prompt, taken apart:
//   [<think>reasoning</think>]
//   <tool_call>[{"name":...,"arguments":{...}},...]</tool_call><|im_end|>
// Source: text/render.h, which writes targets in this form. Thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "json/json.h"

namespace needle {

struct ParsedOutput {
  std::string reasoning;             // stripped; empty when there was none
  std::optional<json::Value> calls;  // a list of calls, when there is a well-formed one
  std::string error;  // why there is none: a sentence; empty when the text has no call
};

/// Never fails: what cannot be read is said in `error`.
ParsedOutput ParseOutput(std::string_view text);

/// A list of calls as the field "answers" or "function_calls" gives it: a list, its JSON text, or
/// null for none. Each call has a "name" (text) and "arguments" (an object; missing means none).
Result<json::Value> ParseCalls(const json::Value& value);

}  // namespace needle
