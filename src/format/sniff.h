// What kind of file some bytes are, by their content, never by their name. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace needle {

enum class FileKind { kPickle, kSafeTensors, kCact, kCact3, kZip, kOther };

FileKind KindOfBytes(std::span<const uint8_t> bytes);

/// kCorruptFile saying what the file is instead of `wanted` ("a checkpoint").
Error NotTheKindWanted(std::span<const uint8_t> bytes, const std::string& origin,
                       std::string_view wanted);

/// How a file is to be written, by its extension: ".safetensors", else ".pkl".
/// Error: another extension, naming the two that exist.
enum class WriteAs { kPickle, kSafeTensors };
Result<WriteAs> WriteFormatOf(const std::string& path);

}  // namespace needle
