// What the fuzz targets share. A target checks more than "no crash": an error names its file, and
// what was read can be walked to its last value and comes back equal when written and read again.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/params.h"

namespace needle::fuzz {

inline const std::string kOrigin = "fuzz";

/// Stops the fuzzer with a sentence; the input is kept.
[[noreturn]] inline void Fail(std::string_view what) {
  std::fprintf(stderr, "broken promise: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

inline void Require(bool holds, std::string_view what) {
  if (!holds) Fail(what);
}

/// Errors about a file's bytes say which file, and are the file's fault: it is damaged, or (where
/// `or_unusable`) whole but not what this program can use. Both end a command with status 2.
inline void RequireSentence(const Error& error, bool or_unusable = false) {
  Require(error.message().rfind(kOrigin + ": ", 0) == 0, error.message());
  Require(
      error.code() == Code::kCorruptFile || (or_unusable && error.code() == Code::kInvalidArgument),
      error.message());
}

inline bool Same(const Tensor& a, const Tensor& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.bytes == b.bytes;
}

inline bool Same(const TensorMap& a, const TensorMap& b) {
  if (a.size() != b.size()) return false;
  for (const auto& entry : a)
    if (!b.count(entry.first) || !Same(entry.second, b.at(entry.first))) return false;
  return true;
}

}  // namespace needle::fuzz
