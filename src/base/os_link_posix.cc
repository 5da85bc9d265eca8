// The part of link.h that is the operating system's own: POSIX.
#ifndef _WIN32

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/link.h"
#include "base/str_cat.h"

namespace needle {
namespace {

Error IoError(const std::string& path, const char* what, int reason) {
  return Error(Code::kIo, StrCat(path, ": ", what, ": ", std::generic_category().message(reason)));
}

// A lock on a file that somebody has removed or replaced meanwhile guards nothing.
bool IsStillAt(int fd, const std::string& path) {
  struct stat held = {}, found = {};
  return fstat(fd, &held) == 0 && stat(path.c_str(), &found) == 0 && held.st_dev == found.st_dev &&
         held.st_ino == found.st_ino;
}

int LockWithoutWaiting(int fd) {
  int status = 0;
  do status = flock(fd, LOCK_EX | LOCK_NB);
  while (status != 0 && errno == EINTR);
  return status;
}

}  // namespace

std::FILE* OpenStream(const std::string& path, const char* mode) {
  return std::fopen(path.c_str(), mode);
}

Status SyncStream(std::FILE* file, const std::string& path) {
  if (std::fflush(file) != 0 || fsync(fileno(file)) != 0)
    return IoError(path, "the file could not be written to the disk", errno);
  return {};
}

Result<std::optional<FileLock>> FileLock::TryAcquire(const std::string& path) {
  for (int tries = 0; tries < 10; ++tries) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0664);
    if (fd < 0) return IoError(path, "the lock file could not be opened", errno);
    if (LockWithoutWaiting(fd) != 0) {
      const int reason = errno;
      close(fd);
      if (reason == EWOULDBLOCK) return std::optional<FileLock>();
      return IoError(path, "the file could not be locked", reason);
    }
    if (IsStillAt(fd, path)) return std::optional<FileLock>(FileLock(fd));
    close(fd);
  }
  return std::optional<FileLock>();
}

FileLock::~FileLock() {
  if (handle_ != kNone) close(static_cast<int>(handle_));
}

// SIGPIPE is blocked in this thread alone, and one that our writes have raised is taken back, so
// that it does not arrive once the thread is as before.
BrokenPipeShield::BrokenPipeShield() {
  sigset_t pipe_only, before, pending;
  sigemptyset(&pipe_only);
  sigaddset(&pipe_only, SIGPIPE);
  sigpending(&pending);
  was_pending_ = sigismember(&pending, SIGPIPE) == 1;
  pthread_sigmask(SIG_BLOCK, &pipe_only, &before);
  was_blocked_ = sigismember(&before, SIGPIPE) == 1;
}

BrokenPipeShield::~BrokenPipeShield() {
  const int saved_errno = errno;
  sigset_t pipe_only, pending;
  sigemptyset(&pipe_only);
  sigaddset(&pipe_only, SIGPIPE);
  sigpending(&pending);
  if (!was_pending_ && sigismember(&pending, SIGPIPE) == 1) {
    int taken = 0;
    sigwait(&pipe_only, &taken);
  }
  if (!was_blocked_) pthread_sigmask(SIG_UNBLOCK, &pipe_only, nullptr);
  errno = saved_errno;
}

}  // namespace needle

#endif
