#ifdef _WIN32

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <algorithm>
#include <bit>
#include <system_error>

#include "base/os.h"
#include "base/str_cat.h"

namespace needle::os {
namespace {

std::string Reason(DWORD error) { return std::system_category().message(static_cast<int>(error)); }

// Reads the last error: call it first thing after the failed call.
Error Failed(const std::string& path, const char* what) {
  const DWORD error = ::GetLastError();
  const bool absent = error == ERROR_FILE_NOT_FOUND || error == ERROR_PATH_NOT_FOUND ||
                      error == ERROR_INVALID_NAME || error == ERROR_INVALID_DRIVE;
  return Error(absent ? Code::kNotFound : Code::kIo, StrCat(path, ": ", what, ": ", Reason(error)));
}

HANDLE AsHandle(Handle file) { return reinterpret_cast<HANDLE>(file); }

// Paths are UTF-8 inside the program.
std::wstring Wide(const std::string& text) {
  const int length = static_cast<int>(text.size());
  const int units = ::MultiByteToWideChar(CP_UTF8, 0, text.data(), length, nullptr, 0);
  std::wstring out(static_cast<size_t>(units), L'\0');
  ::MultiByteToWideChar(CP_UTF8, 0, text.data(), length, out.data(), units);
  return out;
}

std::string Narrow(const wchar_t* text) {
  const int bytes = ::WideCharToMultiByte(CP_UTF8, 0, text, -1, nullptr, 0, nullptr, nullptr);
  std::string out(static_cast<size_t>(std::max(bytes, 1)), '\0');
  ::WideCharToMultiByte(CP_UTF8, 0, text, -1, out.data(), bytes, nullptr, nullptr);
  out.pop_back();  // the terminator
  return out;
}

class Opened {
 public:
  // Others may read, rename and delete the file meanwhile, as they may on POSIX systems.
  explicit Opened(const std::string& path)
      : handle_(::CreateFileW(Wide(path).c_str(), GENERIC_READ,
                              FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, nullptr,
                              OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, nullptr)) {}
  ~Opened() {
    if (ok()) ::CloseHandle(handle_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  bool ok() const { return handle_ != INVALID_HANDLE_VALUE; }
  HANDLE get() const { return handle_; }

 private:
  HANDLE handle_;
};

// A call moves at most a DWORD of bytes.
constexpr size_t kLargestTransfer = size_t{1} << 30;

Error IsAFolder(const std::string& path) {
  return Error(Code::kInvalidArgument, StrCat(path, ": this is a folder; name a file"));
}

}  // namespace

Result<Handle> CreateNew(const std::string& path, const std::string& shown_path) {
  const HANDLE file = ::CreateFileW(Wide(path).c_str(), GENERIC_WRITE, FILE_SHARE_READ, nullptr,
                                    CREATE_NEW, FILE_ATTRIBUTE_NORMAL, nullptr);
  if (file == INVALID_HANDLE_VALUE) return Failed(shown_path, "cannot be created");
  return reinterpret_cast<Handle>(file);
}

// A file that CreateNew holds open is not shared for deletion, so this fails while its maker lives.
void RemoveAbandoned(const std::string& path) { ::DeleteFileW(Wide(path).c_str()); }

Status Write(Handle file, std::span<const uint8_t> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const DWORD wanted = static_cast<DWORD>(std::min(bytes.size(), kLargestTransfer));
    DWORD written = 0;
    if (!::WriteFile(AsHandle(file), bytes.data(), wanted, &written, nullptr))
      return Failed(path, "cannot be written");
    bytes = bytes.subspan(written);
  }
  return {};
}

Status Sync(Handle file, const std::string& path) {
  if (!::FlushFileBuffers(AsHandle(file))) return Failed(path, "cannot be synced");
  return {};
}

void Close(Handle file) { ::CloseHandle(AsHandle(file)); }

// A file that somebody else is opening, renaming or scanning at this moment cannot be replaced, so
// a refusal is tried again for about a second.
Status RenameOver(const std::string& from, const std::string& to) {
  const std::wstring wide_from = Wide(from), wide_to = Wide(to);
  for (DWORD wait = 1;; wait *= 2) {
    if (::MoveFileExW(wide_from.c_str(), wide_to.c_str(),
                      MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH))
      return {};
    const DWORD error = ::GetLastError();
    const bool busy = error == ERROR_ACCESS_DENIED || error == ERROR_SHARING_VIOLATION;
    if (!busy || wait > 512 || KindOf(to) == PathKind::kFolder) {
      ::SetLastError(error);
      return Failed(to, "cannot be put in place");
    }
    ::Sleep(wait);
  }
}

// MOVEFILE_WRITE_THROUGH has already made the new name last.
Status SyncFolder(const std::string&) { return {}; }

Result<std::vector<uint8_t>> ReadWhole(const std::string& path) {
  if (KindOf(path) == PathKind::kFolder) return IsAFolder(path);
  const Opened opened(path);
  if (!opened.ok()) return Failed(path, "cannot be opened");
  LARGE_INTEGER size{};
  ::GetFileSizeEx(opened.get(), &size);  // a pipe has no size; it is read as it comes
  std::vector<uint8_t> bytes(static_cast<size_t>(std::max<LONGLONG>(size.QuadPart, 0)) + 1);
  size_t used = 0;
  while (true) {
    const DWORD wanted = static_cast<DWORD>(std::min(bytes.size() - used, kLargestTransfer));
    DWORD got = 0;
    if (!::ReadFile(opened.get(), bytes.data() + used, wanted, &got, nullptr) &&
        ::GetLastError() != ERROR_BROKEN_PIPE)
      return Failed(path, "cannot be read");
    if (got == 0) break;
    used += got;
    if (used == bytes.size()) bytes.resize(2 * bytes.size() + 4096);
  }
  bytes.resize(used);
  return bytes;
}

Result<Mapping> Map(const std::string& path) {
  if (KindOf(path) == PathKind::kFolder) return IsAFolder(path);
  const Opened opened(path);
  LARGE_INTEGER size{};
  if (!opened.ok() || !::GetFileSizeEx(opened.get(), &size))
    return Failed(path, "cannot be opened");
  if (size.QuadPart == 0) return Mapping{};  // an empty file cannot be mapped, and need not be
  const HANDLE section = ::CreateFileMappingW(opened.get(), nullptr, PAGE_READONLY, 0, 0, nullptr);
  if (section == nullptr) return Failed(path, "cannot be mapped");
  const void* data = ::MapViewOfFile(section, FILE_MAP_READ, 0, 0, 0);
  const Error error = Failed(path, "cannot be mapped");
  ::CloseHandle(section);  // the view keeps it alive
  if (data == nullptr) return error;
  return Mapping{static_cast<const uint8_t*>(data), static_cast<size_t>(size.QuadPart)};
}

void Unmap(Mapping mapping) {
  if (mapping.data != nullptr) ::UnmapViewOfFile(mapping.data);
}

PathKind KindOf(const std::string& path) {
  const DWORD attributes = ::GetFileAttributesW(Wide(path).c_str());
  if (attributes == INVALID_FILE_ATTRIBUTES) return PathKind::kNone;
  if (attributes & FILE_ATTRIBUTE_DIRECTORY) return PathKind::kFolder;
  return attributes & FILE_ATTRIBUTE_DEVICE ? PathKind::kOther : PathKind::kFile;
}

Status MakeFolder(const std::string& path) {
  if (::CreateDirectoryW(Wide(path).c_str(), nullptr)) return {};
  const Error error = Failed(path, "cannot be made a folder");
  if (KindOf(path) == PathKind::kFolder) return {};
  return error;
}

Status RemoveFolder(const std::string& path) {
  if (::RemoveDirectoryW(Wide(path).c_str())) return {};
  return Failed(path, "cannot be removed");
}

Status Remove(const std::string& path) {
  if (::DeleteFileW(Wide(path).c_str())) return {};
  const DWORD error = ::GetLastError();
  if (error == ERROR_FILE_NOT_FOUND || error == ERROR_PATH_NOT_FOUND) return {};
  return Failed(path, "cannot be removed");
}

std::vector<std::string> ListFolder(const std::string& folder) {
  std::vector<std::string> names;
  WIN32_FIND_DATAW entry;
  const HANDLE search = ::FindFirstFileW(Wide(folder + "\\*").c_str(), &entry);
  if (search == INVALID_HANDLE_VALUE) return names;
  do {
    const std::string name = Narrow(entry.cFileName);
    if (name != "." && name != "..") names.push_back(name);
  } while (::FindNextFileW(search, &entry));
  ::FindClose(search);
  return names;
}

uint32_t ProcessId() { return ::GetCurrentProcessId(); }

bool ProcessRuns(uint32_t id) {
  const HANDLE process = ::OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, FALSE, id);
  if (process == nullptr) return ::GetLastError() != ERROR_INVALID_PARAMETER;
  DWORD status = STILL_ACTIVE;
  ::GetExitCodeProcess(process, &status);
  ::CloseHandle(process);
  return status == STILL_ACTIVE;
}

void KillThisProcess() {
  ::TerminateProcess(::GetCurrentProcess(), 137);
  for (;;) ::Sleep(INFINITE);
}

uint64_t ThreadNanoseconds() {
  FILETIME created, ended, kernel, user;  // in units of 100 ns
  if (!::GetThreadTimes(::GetCurrentThread(), &created, &ended, &kernel, &user)) return 0;
  const auto whole = [](const FILETIME& t) {
    return (uint64_t{t.dwHighDateTime} << 32) | t.dwLowDateTime;
  };
  return 100 * (whole(kernel) + whole(user));
}

void PreferLargePages(void*, size_t) {}  // they need a privilege that users do not have

int AffinityThreads() {
  DWORD_PTR process = 0, system = 0;
  // More than 64 processors come in groups; then the masks read 0 and all processors count.
  if (::GetProcessAffinityMask(::GetCurrentProcess(), &process, &system) && process != 0)
    return std::popcount(static_cast<uint64_t>(process));
  return std::max(1, static_cast<int>(::GetActiveProcessorCount(ALL_PROCESSOR_GROUPS)));
}

std::string DiskFullReason() { return Reason(ERROR_DISK_FULL); }

}  // namespace needle::os

#endif
