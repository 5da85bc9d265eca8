#include "runtime/output.h"

#include <utility>

#include "base/str_cat.h"
#include "text/render.h"

namespace needle {
namespace {

constexpr std::string_view kThink = "<think>", kThinkEnd = "</think>", kCall = "<tool_call>",
                           kCallEnd = "</tool_call>";

std::string Excerpt(const std::string& text) {
  if (text.size() <= 80) return text;
  size_t end = 80;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

Error NotCalls(const json::Value& value, std::string_view wanted) {
  return Error(Code::kInvalidArgument,
               StrCat(Excerpt(json::Dump(value)), " is no list of calls: ", wanted));
}

}  // namespace

Result<json::Value> ParseCalls(const json::Value& value) {
  if (value.is_string()) {
    NEEDLE_ASSIGN(const json::Value parsed, json::Parse(value.as_string()));
    if (!parsed.is_string()) return ParseCalls(parsed);
  }
  if (value.is_null()) return json::Value::Array();
  if (!value.is_array()) return NotCalls(value, "wanted [{\"name\":...,\"arguments\":{...}}]");
  json::Value calls = json::Value::Array();
  for (const json::Value& item : value.items()) {
    const json::Value* name = item.Find("name");
    const json::Value* arguments = item.Find("arguments");
    if (name == nullptr || !name->is_string()) return NotCalls(value, "a call has no \"name\"");
    if (arguments != nullptr && !arguments->is_object())
      return NotCalls(value, "the \"arguments\" of a call are no object");
    calls.items().push_back(json::Value::Object(
        {{"name", *name}, {"arguments", arguments ? *arguments : json::Value::Object()}}));
  }
  return calls;
}

ParsedOutput ParseOutput(std::string_view text) {
  ParsedOutput out;
  text = StripPython(text);
  size_t at = 0;
  if (text.substr(0, kThink.size()) == kThink) {
    // The reasoning may itself mention </think>; the one before the call ends it.
    size_t end = text.find(StrCat(kThinkEnd, "\n", kCall));
    if (end == std::string_view::npos) end = text.find(kThinkEnd);
    const size_t stop = end == std::string_view::npos ? text.size() : end;
    out.reasoning = StripPython(text.substr(kThink.size(), stop - kThink.size()));
    at = stop;
  }
  const size_t begin = text.find(kCall, at);
  if (begin == std::string_view::npos) return out;
  const size_t first = begin + kCall.size();
  const size_t last = text.rfind(kCallEnd);
  if (last == std::string_view::npos || last < first) {
    out.error = "the answer has no </tool_call>";
    return out;
  }
  const Result<json::Value> value = json::Parse(text.substr(first, last - first));
  Result<json::Value> calls = value.ok() ? ParseCalls(*value) : value;
  if (calls.ok()) {
    out.calls = std::move(*calls);
  } else {
    out.error = StrCat("the answer's calls cannot be read: ", calls.error().message());
  }
  return out;
}

}  // namespace needle
