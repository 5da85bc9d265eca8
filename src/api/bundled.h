// The small base inside the program: a checkpoint and its tokenizer, as the files hold them.
// Thread-safe.
#pragma once

#include <cstdint>
#include <span>

namespace needle {

/// False when the build had no data/bundled folder to put inside.
bool HasBundledBase();
/// The bytes of a .pkl checkpoint and of a SentencePiece .model; empty without a bundled base.
std::span<const uint8_t> BundledCheckpoint();
std::span<const uint8_t> BundledTokenizer();

}  // namespace needle
