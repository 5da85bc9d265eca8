// The part of link.h that is the operating system's own: Windows.
#ifdef _WIN32
#include <io.h>
#include <windows.h>

#include <cerrno>
#include <system_error>

#include "base/link.h"
#include "base/native_path.h"
#include "base/str_cat.h"

namespace needle {

std::FILE* OpenStream(const std::string& path, const char* mode) {
  return _wfopen(NativePath(path).c_str(), NativePath(mode).c_str());
}

Status SyncStream(std::FILE* file, const std::string& path) {
  if (std::fflush(file) != 0 || _commit(_fileno(file)) != 0)
    return Error(Code::kIo, StrCat(path, ": the file could not be written to the disk: ",
                                   std::generic_category().message(errno)));
  return {};
}

Result<std::optional<FileLock>> FileLock::TryAcquire(const std::string& path) {
  const HANDLE file = CreateFileW(NativePath(path).c_str(), GENERIC_READ | GENERIC_WRITE,
                                  FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                                  OPEN_ALWAYS, FILE_ATTRIBUTE_NORMAL, nullptr);
  if (file == INVALID_HANDLE_VALUE)
    return Error(Code::kIo,
                 StrCat(path, ": the lock file could not be opened: ",
                        std::system_category().message(static_cast<int>(GetLastError()))));
  OVERLAPPED range = {};
  // The first byte, as Python's filelock does.
  if (!LockFileEx(file, LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &range)) {
    const DWORD reason = GetLastError();
    CloseHandle(file);
    if (reason == ERROR_LOCK_VIOLATION || reason == ERROR_IO_PENDING)
      return std::optional<FileLock>();
    return Error(Code::kIo, StrCat(path, ": the file could not be locked: ",
                                   std::system_category().message(static_cast<int>(reason))));
  }
  return std::optional<FileLock>(FileLock(reinterpret_cast<intptr_t>(file)));
}

FileLock::~FileLock() {
  if (handle_ == kNone) return;
  const HANDLE file = reinterpret_cast<HANDLE>(handle_);
  OVERLAPPED range = {};  // closing alone would release the lock some time later
  UnlockFileEx(file, 0, 1, 0, &range);
  CloseHandle(file);
}

BrokenPipeShield::BrokenPipeShield() = default;
BrokenPipeShield::~BrokenPipeShield() = default;

}  // namespace needle

#endif
