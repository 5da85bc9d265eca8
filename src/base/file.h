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

/// A file that appears whole or not at all: bytes go to a temporary file in the folder of `path`;
/// Commit() syncs it and renames it over `path`. A crash or a full disk leaves the old file.
/// Missing parent folders are made; temporary files that dead processes left for the same path are
/// removed. A symbolic link at `path` is replaced, what it points at stays. A folder, a device or a
/// pipe at `path` is an error (kInvalidArgument). Fault points (fault.h): "open", "write" before
/// each 64 KiB, "sync", "rename", "folder" (after the rename). Movable, not copyable.
class AtomicFile {
 public:
  static Result<AtomicFile> Open(const std::string& path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  /// Without Commit() the temporary file is removed.
  ~AtomicFile();

  /// Appends bytes. After an error the object only takes its destruction.
  Status Append(std::span<const uint8_t> bytes);
  Status Append(std::string_view text);
  /// Puts the file in place; nothing may be appended after it.
  Status Commit();

 private:
  struct Impl;
  explicit AtomicFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// The same for bytes that are all there.
Status WriteFileAtomically(const std::string& path, std::span<const uint8_t> bytes);
Status WriteFileAtomically(const std::string& path, std::string_view text);

/// Whether WriteFileAtomically could put a file at `path` now, tried by making one beside it.
/// Nothing is left behind: folders that had to be made for it go as well. No fault point. Error:
/// kInvalidArgument, as the name is the caller's.
Status CheckCanWrite(const std::string& path);

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

/// Something is at `path` and it is no folder.
bool FileExists(const std::string& path);
bool IsDirectory(const std::string& path);
/// Makes a folder and those above it; one that is there is fine.
Status MakeDirectories(const std::string& path);
/// Removes a file; a file that is not there is fine.
Status RemoveFile(const std::string& path);
/// "a/b/c.pkl" -> "a/b" ("." without a slash, "/" for "/c.pkl"), "c.pkl", "c". A leading dot
/// belongs to the stem: ".c" -> ".c".
std::string DirName(std::string_view path);
std::string BaseName(std::string_view path);
std::string Stem(std::string_view path);
/// "a", "b" -> "a/b"; an absolute name, or an empty folder, gives the name itself.
std::string JoinPath(std::string_view folder, std::string_view name);

}  // namespace needle
