// Any bytes are an adapter (pickle or safetensors) that survives both formats, or an error.
#include <span>

#include "format/adapter.h"
#include "fuzz_support.h"

namespace needle::fuzz {
namespace {

void RequireSame(const Adapter& want, const std::vector<uint8_t>& bytes) {
  const Result<Adapter> again = ParseAdapter(bytes, kOrigin);
  if (!again.ok()) Fail(again.error().message());
  Require(again->scale == want.scale && again->rank == want.rank && again->seed == want.seed &&
              again->qat_bits == want.qat_bits && again->qat_bits_map == want.qat_bits_map &&
              again->base == want.base,
          "a field changed");
  Require(again->lora.size() == want.lora.size(), "number of pairs changed");
  for (const auto& entry : want.lora) {
    const auto at = again->lora.find(entry.first);
    Require(at != again->lora.end(), "a pair is gone");
    Require(Same(at->second.a, entry.second.a) && Same(at->second.b, entry.second.b),
            "a pair changed");
  }
}

}  // namespace
}  // namespace needle::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace needle;  // NOLINT
  const Result<Adapter> adapter = ParseAdapter(std::span(data, size), fuzz::kOrigin);
  if (!adapter.ok()) {
    fuzz::RequireSentence(adapter.error());
    return 0;
  }
  fuzz::RequireSame(*adapter, AdapterToPickle(*adapter));
  fuzz::RequireSame(*adapter, AdapterToSafeTensors(*adapter));
  return 0;
}
