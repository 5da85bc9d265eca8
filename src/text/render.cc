#include "text/render.h"

#include "base/str_cat.h"
#include "base/utf8.h"

namespace needle {
namespace {

/// What Python's str.isspace() calls white space.
bool IsPythonSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

/// The start of the code point that ends before byte `end`.
size_t PreviousCodePoint(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && end - at < 4 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

/// The beginning of a value's JSON text, for error sentences.
std::string Excerpt(const json::Value& value) {
  std::string text = json::Dump(value);
  if (text.size() <= 40) return text;
  text.resize(ValidUtf8Length(std::string_view(text).substr(0, 40)));
  return text + "...";
}

/// An optional text member: missing and null are "".
Result<std::string_view> TextMember(const json::Value& line, std::string_view key) {
  const json::Value* value = line.Find(key);
  if (value == nullptr || value->is_null()) return std::string_view();
  if (value->is_string()) return std::string_view(value->as_string());
  return Error(Code::kInvalidArgument, StrCat("\"", key, "\" is ", Excerpt(*value),
                                              "; it must be a string: put it in quotation marks"));
}

/// A string verbatim (it may already be JSON text), anything else dumped.
std::string TextOrDump(const json::Value& value) {
  return value.is_string() ? value.as_string() : json::Dump(value);
}

std::string RenderTarget(std::string_view reasoning, std::string_view calls) {
  std::string target;
  if (!reasoning.empty()) target += StrCat("<think>\n", reasoning, "\n</think>\n");
  return target + StrCat("<tool_call>", calls, "</tool_call><|im_end|>");
}

}  // namespace

std::string_view StripPython(std::string_view text) {
  while (!text.empty()) {
    const CodePoint first = DecodeUtf8(text, 0);
    if (first.length == 0 || !IsPythonSpace(first.value)) break;
    text.remove_prefix(first.length);
  }
  while (!text.empty()) {
    const size_t at = PreviousCodePoint(text, text.size());
    const CodePoint last = DecodeUtf8(text, at);
    if (at + last.length != text.size() || !IsPythonSpace(last.value)) break;
    text.remove_suffix(last.length);
  }
  return text;
}

std::string RenderTools(const json::Value& tools) { return TextOrDump(tools); }

std::string RenderPrompt(std::string_view system, std::string_view tools_text,
                         std::string_view query) {
  std::string prompt;
  const std::string_view stripped = StripPython(system);
  if (!stripped.empty()) prompt += StrCat("<|im_start|>system\n", stripped, "<|im_end|>\n");
  prompt += StrCat("<|im_start|>user\n<tools>", tools_text, "</tools>\n", query, "<|im_end|>\n");
  return prompt + "<|im_start|>assistant\n";
}

Result<RenderedExample> RenderExample(const json::Value& line) {
  if (!line.is_object())
    return Error(Code::kInvalidArgument,
                 "the line is not a JSON object; wanted {\"query\": ..., \"tools\": [...], "
                 "\"answers\": [...]}");
  const json::Value* query = line.Find("query");
  if (query == nullptr)
    return Error(Code::kInvalidArgument,
                 "the line has no \"query\"; add \"query\" with what the user says");
  if (!query->is_string())
    return Error(Code::kInvalidArgument,
                 StrCat("\"query\" is ", Excerpt(*query),
                        "; it must be a string: put it in quotation marks"));
  NEEDLE_ASSIGN(const std::string_view system, TextMember(line, "system"));
  NEEDLE_ASSIGN(const std::string_view reasoning, TextMember(line, "reasoning"));
  const json::Value none = json::Value::Array();
  const json::Value* tools = line.Find("tools");
  const json::Value* answers = line.Find("answers");
  if (answers == nullptr) answers = line.Find("function_calls");
  RenderedExample out;
  out.prompt = RenderPrompt(system, RenderTools(tools ? *tools : none), query->as_string());
  out.target = RenderTarget(StripPython(reasoning), TextOrDump(answers ? *answers : none));
  return out;
}

}  // namespace needle
