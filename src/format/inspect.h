// What a file holds: for `needle inspect`. Checkpoints, adapters and other safetensors files,
// archives, tokenizers; each recognised by its content.
// Errors: those of the reader that the content calls for; kCorruptFile for a file of no known kind.
// Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "json/json.h"
#include "tensor/tensor.h"

namespace needle {

/// Statistics of an array's finite values.
struct ValueStats {
  double min = 0, max = 0, mean_abs = 0;
  uint64_t not_finite = 0;  // NaN and infinities, which the numbers above leave out
};

struct TensorDescription {
  std::string name;
  std::string type;  // "float16", or "codes 4 bit" in an archive
  Shape shape;
  uint64_t bytes = 0;               // in the file
  std::optional<ValueStats> stats;  // of floating values and of dequantised codes
};

struct FileDescription {
  std::string path;
  std::string kind;     // "checkpoint", "adapter", "arrays", "archive", "tokenizer"
  std::string format;   // "pickle", "safetensors", "cact", "SentencePiece model", "tokenizer blob"
  uint64_t bytes = 0;   // of the file
  uint64_t values = 0;  // numbers in all tensors
  json::Value config;   // object, or null where the file has none
  json::Value metadata = json::Value::Object();  // step, scale, number of pieces, ...
  std::vector<TensorDescription> tensors;        // in file order (archives), else by name
};

Result<FileDescription> DescribeFile(const std::string& path);

/// One object: path, kind, format, bytes, values, config, metadata, tensors [{name, type, shape,
/// bytes, min, max, mean_abs, not_finite}].
json::Value ToJson(const FileDescription& description);

/// A table for people, with a line for each tensor; ends with a newline.
std::string ToText(const FileDescription& description);

}  // namespace needle
