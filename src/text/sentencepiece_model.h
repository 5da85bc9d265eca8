// The SentencePiece .model file (a protobuf ModelProto) from and to pieces. Only what this project
// encodes exactly is accepted: BPE with byte fallback, a dummy prefix, spaces as U+2581, and no
// other normalisation; a model that asks for more is refused by a sentence that names the setting.
// Source: SentencePiece's sentencepiece_model.proto. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace needle {

/// Errors: kCorruptFile with the byte offset; kInvalidArgument for settings that are not ours.
Result<std::vector<Piece>> ReadModelProto(std::span<const uint8_t> bytes,
                                          const std::string& origin);

std::vector<uint8_t> WriteModelProto(std::span<const Piece> pieces);

}  // namespace needle
