// Any bytes are a SentencePiece .model that works and comes back equal when written
// again, or an error.
#include <span>

#include "fuzz_tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace needle;  // NOLINT
  const Result<Tokenizer> tokenizer =
      Tokenizer::FromModelProto(std::span(data, size), fuzz::kOrigin);
  if (!tokenizer.ok()) {
    fuzz::RequireSentence(tokenizer.error(), /*or_unusable=*/true);
    return 0;
  }
  fuzz::UseTokenizer(*tokenizer);
  fuzz::RequireSamePieces(*tokenizer,
                          Tokenizer::FromModelProto(tokenizer->ToModelProto(), fuzz::kOrigin));
  return 0;
}
