// Checkpoints on disk: upstream's pickle (format version 2) and safetensors, both ways.
// Layout of both: docs/formats.md "Checkpoint". A file is recognised by its content when read and
// by its extension when written. Errors: kCorruptFile naming path and byte or tensor; kNotFound,
// kIo from the file system; nothing is written unless all of it is. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/params.h"

namespace needle {

inline constexpr int64_t kCheckpointVersion = 2;

/// A whole, checked checkpoint (CheckParams), in the file's number types.
Result<Checkpoint> LoadCheckpoint(const std::string& path);
/// The same from bytes; `origin` names them in errors.
Result<Checkpoint> ParseCheckpoint(std::span<const uint8_t> bytes, const std::string& origin);

/// Writes ".pkl" or ".safetensors", by the extension of `path`.
Status SaveCheckpoint(const std::string& path, const Checkpoint& checkpoint);
std::vector<uint8_t> CheckpointToPickle(const Checkpoint& checkpoint);
std::vector<uint8_t> CheckpointToSafeTensors(const Checkpoint& checkpoint);

}  // namespace needle
