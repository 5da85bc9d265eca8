// What must hold for every tokenizer that was read, whatever its pieces.
#pragma once

#include <numeric>
#include <string>
#include <vector>

#include "fuzz_support.h"
#include "text/tokenizer.h"

namespace needle::fuzz {

inline void RequireSamePieces(const Tokenizer& a, const Result<Tokenizer>& b) {
  if (!b.ok()) Fail(b.error().message());
  Require(a.size() == b->size(), "number of pieces changed");
  for (int32_t id = 0; id < static_cast<int32_t>(a.size()); ++id) {
    const Piece &x = a.piece(id), &y = b->piece(id);
    Require(x.text == y.text && x.score == y.score && x.type == y.type, "a piece changed");
  }
}

inline void UseTokenizer(const Tokenizer& tokenizer) {
  const std::string text =
      "<|im_start|>user\n caf\xC3\xA9 \xE9\x87\x9D  42<tool_call>[]</tool_call>";
  const Result<std::vector<int32_t>> ids = tokenizer.Encode(text);
  if (!ids.ok()) Fail(ids.error().message());
  for (const int32_t id : *ids)
    Require(id >= 0 && static_cast<size_t>(id) < tokenizer.size(), "an id outside the vocabulary");
  std::vector<int32_t> all(tokenizer.size());
  std::iota(all.begin(), all.end(), 0);
  (void)tokenizer.Decode(*ids);
  (void)tokenizer.Decode(all);
  for (const int32_t id : all) (void)tokenizer.Bytes(id);
}

}  // namespace needle::fuzz
