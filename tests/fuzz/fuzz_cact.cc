// Fuzz target: any bytes either open as an archive or give an error; what opens can be walked to
// its last value. Seeds: tests/golden/*/*.cact.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "format/cact.h"

namespace {

// An archive that opened must hand out everything that it claims to hold.
void Walk(const needle::CactModel& model) {
  size_t values = 0;
  for (const auto& named : model.ToParams()) values += named.second.size();
  for (const needle::CactTensor& t : model.tensors)
    if (model.Find(t.name) != &t) std::abort();
  if (values == 0 || model.tokenizer_blob().empty()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model = needle::CactModel::FromBytes(std::span(data, size), "fuzz");
  if (model.ok())
    Walk(*model);
  else if (model.error().message().rfind("fuzz: ", 0) != 0)
    std::abort();
  return 0;
}
