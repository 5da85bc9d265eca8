// Files: whole reads, read-only mappings, and writes that appear whole or not at all.
// Errors: kNotFound, kIo with the path and the operating system's reason. Thread-safe per object.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace needle {

/// The whole file. A path that is a directory, or cannot be read whole, is an error.
Result<std::vector<uint8_t>> ReadFile(const std::string& path);
/// The same bytes as text.
Result<std::string> ReadTextFile(const std::string& path);

/// Writes `bytes` to a temporary file beside `path`, syncs and renames it: a crash or a full disk
/// leaves the old file. Missing parent folders are made. Fault points: "open", "write", "sync",
/// "rename" (see fault.h).
Status WriteFileAtomically(const std::string& path, std::span<const uint8_t> bytes);
Status WriteFileAtomically(const std::string& path, std::string_view text);

/// A file mapped read-only; the bytes live as long as the object. Movable, not copyable.
class MappedFile {
 public:
  static Result<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&&) noexcept;
  MappedFile& operator=(MappedFile&&) noexcept;
  ~MappedFile();
  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  MappedFile() = default;
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

bool FileExists(const std::string& path);
bool IsDirectory(const std::string& path);
Status MakeDirectories(const std::string& path);
/// Removes a file; a file that is not there is fine.
Status RemoveFile(const std::string& path);
/// "a/b/c.pkl" -> "a/b" ("." without a slash), "c.pkl", "c".
std::string DirName(std::string_view path);
std::string BaseName(std::string_view path);
std::string Stem(std::string_view path);
std::string JoinPath(std::string_view folder, std::string_view name);

}  // namespace needle
