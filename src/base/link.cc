#include "base/link.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/native_path.h"
#include "base/os.h"
#include "base/str_cat.h"

namespace needle {

Status ReplaceWithSymlink(const std::string& target, const std::string& path) {
  // A link cannot be made over an old one, so it is made beside it and renamed.
  const std::string temporary = StrCat(path, ".", os::ProcessId(), ".link");
  std::error_code error;
  std::filesystem::remove(NativePath(temporary), error);
  std::filesystem::create_symlink(NativePath(target), NativePath(temporary), error);
  if (error)
    return Error(Code::kIo, StrCat(path, ": the link could not be made: ", error.message()));
  Status renamed = RenameFile(temporary, path);
  if (!renamed.ok()) std::filesystem::remove(NativePath(temporary), error);
  return renamed;
}

Status RenameFile(const std::string& from, const std::string& to) {
  return os::RenameOver(from, to);
}

FileLock::FileLock(FileLock&& other) noexcept : handle_(std::exchange(other.handle_, kNone)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

}  // namespace needle
