// Any text is a JSON document whose dump reads back equal and dumps the same, or an error.
#include <string_view>

#include "fuzz_support.h"
#include "json/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace needle;  // NOLINT
  const Result<json::Value> value =
      json::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!value.ok()) {
    fuzz::Require(!value.error().message().empty(), "an error without words");
    return 0;
  }
  const std::string text = json::Dump(*value);
  const Result<json::Value> again = json::Parse(text);
  if (!again.ok()) fuzz::Fail(again.error().message());
  fuzz::Require(json::Equal(*value, *again), "the document changed");
  fuzz::Require(json::Dump(*again) == text, "the dump changed");
  return 0;
}
