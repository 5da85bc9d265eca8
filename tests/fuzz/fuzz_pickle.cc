// Any bytes are a tree of plain values and arrays, or an error.
#include <cmath>
#include <span>

#include "format/pickle.h"
#include "fuzz_support.h"

namespace needle::fuzz {
namespace {

/// Reads every value once per way to it, as a consumer does; the reader promises that this ends.
void Walk(const pickle::Value& v, int depth) {
  using pickle::Kind;
  Require(depth <= 64, "deeper than promised");
  Require(v.kind() < Kind::kGlobal, "an internal value in a finished tree");
  if (v.is(Kind::kArray)) {
    const Result<Tensor> tensor = pickle::ToTensor(v, kOrigin, "x");
    if (!tensor.ok()) return RequireSentence(tensor.error());
    Require(tensor->bytes.size() == tensor->size() * SizeOf(tensor->dtype), "tensor size");
    Require(tensor->shape == v.array().shape(), "tensor shape");
    (void)v.AsDouble();
    (void)v.AsInt();
  }
  for (const pickle::Value* item : v.items()) Walk(*item, depth + 1);
  for (const auto& entry : v.entries()) {
    Walk(*entry.first, depth + 1);
    Walk(*entry.second, depth + 1);
  }
}

}  // namespace
}  // namespace needle::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto document =
      needle::pickle::Document::Parse(std::span(data, size), needle::fuzz::kOrigin);
  if (document.ok())
    needle::fuzz::Walk(document->root(), 0);
  else
    needle::fuzz::RequireSentence(document.error());
  return 0;
}
