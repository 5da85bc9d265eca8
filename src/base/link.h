// What a shared download folder needs from the operating system: links, a lock between processes,
// sync, and a thread that survives a closed connection.
// Errors: kIo with the path and the system's reason. Thread-safety: each object, one thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "base/result.h"

namespace needle {

/// Makes `path` a symbolic link to `target` (as written, so it may be relative to the folder of
/// `path`). What stood at `path` is replaced in one step. Fails where links are not supported.
Status ReplaceWithSymlink(const std::string& target, const std::string& path);

/// Renames a file; what stood at `to` is replaced in one step. Both on the same volume.
Status RenameFile(const std::string& from, const std::string& to);

/// As std::fopen, for a path in UTF-8 on every system; nullptr with errno set when it fails.
std::FILE* OpenStream(const std::string& path, const char* mode);

/// Flushes the file and waits until its bytes are on the disk. `path` is for the error alone.
Status SyncStream(std::FILE* file, const std::string& path);

/// An exclusive lock on a lock file, between processes and between threads (flock on POSIX, as
/// Python's filelock does, so that both respect each other). Released when the object dies; the
/// file stays.
class FileLock {
 public:
  /// Takes the lock, or returns nullopt when somebody else holds it. Makes the file if missing.
  static Result<std::optional<FileLock>> TryAcquire(const std::string& path);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  ~FileLock();

 private:
  explicit FileLock(intptr_t handle) : handle_(handle) {}
  static constexpr intptr_t kNone = -1;
  intptr_t handle_ = kNone;
};

/// While it lives, writing to a connection that the other side has closed is an error in this
/// thread and does not end the process (POSIX raises SIGPIPE otherwise). The process's own signal
/// handling stays as it is.
class BrokenPipeShield {
 public:
  BrokenPipeShield();
  ~BrokenPipeShield();
  BrokenPipeShield(const BrokenPipeShield&) = delete;
  BrokenPipeShield& operator=(const BrokenPipeShield&) = delete;

 private:
  bool was_blocked_ = true;
  bool was_pending_ = true;
};

}  // namespace needle
