// Any bytes are a safetensors file that comes back equal when written again, or an error.
#include <span>

#include "format/safetensors.h"
#include "fuzz_support.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace needle;  // NOLINT
  const Result<SafeTensors> file = ParseSafeTensors(std::span(data, size), fuzz::kOrigin);
  if (!file.ok()) {
    fuzz::RequireSentence(file.error());
    return 0;
  }
  const Result<SafeTensors> again = ParseSafeTensors(WriteSafeTensors(*file), fuzz::kOrigin);
  if (!again.ok()) fuzz::Fail(again.error().message());
  fuzz::Require(again->metadata == file->metadata, "metadata changed");
  fuzz::Require(fuzz::Same(again->tensors, file->tensors), "tensors changed");
  return 0;
}
