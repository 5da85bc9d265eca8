// The part of link.h that is the operating system's own: Windows.
#ifdef _WIN32
#define NOMINMAX
#include <io.h>
#include <windows.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "base/link.h"
#include "base/str_cat.h"

namespace needle {

Status SyncStream(std::FILE* file, const std::string& path) {
  if (std::fflush(file) != 0 || _commit(_fileno(file)) != 0)
    return Error(Code::kIo, StrCat(path, ": the file could not be written to the disk: ",
                                   std::generic_category().message(errno)));
  return {};
}

Result<std::optional<FileLock>> FileLock::TryAcquire(const std::string& path) {
  const HANDLE file = CreateFileW(std::filesystem::path(path).c_str(), GENERIC_READ | GENERIC_WRITE,
                                  FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                                  OPEN_ALWAYS, FILE_ATTRIBUTE_NORMAL, nullptr);
  if (file == INVALID_HANDLE_VALUE)
    return Error(Code::kIo,
                 StrCat(path, ": the lock file could not be opened: ",
                        std::system_category().message(static_cast<int>(GetLastError()))));
  OVERLAPPED range = {};
  if (!LockFileEx(file, LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &range)) {
    CloseHandle(file);
    return std::optional<FileLock>();
  }
  return std::optional<FileLock>(FileLock(reinterpret_cast<intptr_t>(file)));
}

FileLock::~FileLock() {
  if (handle_ != kNone) CloseHandle(reinterpret_cast<HANDLE>(handle_));
}

BrokenPipeShield::BrokenPipeShield() = default;
BrokenPipeShield::~BrokenPipeShield() = default;

}  // namespace needle

#endif
