// Any bytes are a checkpoint (pickle or safetensors) that survives both formats, or an error.
#include <span>

#include "format/checkpoint.h"
#include "fuzz_support.h"

namespace needle::fuzz {
namespace {

void RequireSame(const Checkpoint& want, const std::vector<uint8_t>& bytes) {
  const Result<Checkpoint> again = ParseCheckpoint(bytes, kOrigin);
  if (!again.ok()) Fail(again.error().message());
  Require(again->config == want.config, "config changed");
  Require(again->step == want.step && again->run_stage == want.run_stage, "step or run changed");
  Require(Same(again->params, want.params), "parameters changed");
}

}  // namespace
}  // namespace needle::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace needle;  // NOLINT
  const Result<Checkpoint> checkpoint = ParseCheckpoint(std::span(data, size), fuzz::kOrigin);
  if (!checkpoint.ok()) {
    fuzz::RequireSentence(checkpoint.error());
    return 0;
  }
  fuzz::RequireSame(*checkpoint, CheckpointToPickle(*checkpoint));
  fuzz::RequireSame(*checkpoint, CheckpointToSafeTensors(*checkpoint));
  return 0;
}
