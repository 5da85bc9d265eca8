// Safetensors files: named arrays and text metadata. 8 bytes little-endian header length, a JSON
// header, then the arrays one after another without holes (docs/formats.md "Safetensors").
// Errors: kCorruptFile with `origin` and the tensor or byte. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/params.h"

namespace needle {

struct SafeTensors {
  TensorMap tensors;  // F16 BF16 F32 F64 I32 I64 U8 U32 BOOL
  std::map<std::string, std::string> metadata;
};

/// Refuses: a header that is not the JSON it should be, a name that comes twice, offsets outside
/// the file, tensors that overlap or leave bytes unused, sizes that do not fit shape and type.
Result<SafeTensors> ParseSafeTensors(std::span<const uint8_t> bytes, const std::string& origin);

/// Arrays lie by falling element size, then by name, each aligned to its element size; the header
/// is padded with spaces to a multiple of 8, as the reference implementation does.
std::vector<uint8_t> WriteSafeTensors(const SafeTensors& file);

/// True when the bytes begin as a safetensors file does.
bool LooksLikeSafeTensors(std::span<const uint8_t> bytes);

}  // namespace needle
