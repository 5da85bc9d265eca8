// LoRA adapters on disk: upstream's pickle and safetensors, both ways (docs/formats.md "Adapter").
// A file is recognised by its content when read and by its extension when written.
// Errors: kCorruptFile naming path and byte or tensor; kNotFound, kIo from the file system; nothing
// is written unless all of it is. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/params.h"

namespace needle {

/// Every pair holds A [L, in, R] and B [L, R, out] as float32 (other float types are converted)
/// with the same L, and R = rank in all of them.
Result<Adapter> LoadAdapter(const std::string& path);
/// The same from bytes; `origin` names them in errors.
Result<Adapter> ParseAdapter(std::span<const uint8_t> bytes, const std::string& origin);

/// Writes ".pkl" or ".safetensors", by the extension of `path`.
Status SaveAdapter(const std::string& path, const Adapter& adapter);
std::vector<uint8_t> AdapterToPickle(const Adapter& adapter);
std::vector<uint8_t> AdapterToSafeTensors(const Adapter& adapter);

}  // namespace needle
