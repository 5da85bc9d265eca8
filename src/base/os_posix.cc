#ifndef _WIN32

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <thread>

#include "base/os.h"
#include "base/str_cat.h"

namespace needle::os {
namespace {

std::string Reason(int error) { return std::generic_category().message(error); }

// Reads errno: call it first thing after the failed call.
Error Failed(const std::string& path, const char* what) {
  const int error = errno;
  const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kIo;
  return Error(code, StrCat(path, ": ", what, ": ", Reason(error)));
}

int Fd(Handle file) { return static_cast<int>(file); }

// Calls again when a signal interrupts.
template <class Call>
auto Retry(const Call& call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

class OpenedFile {
 public:
  explicit OpenedFile(const std::string& path, int flags)
      : fd_(Retry([&] { return ::open(path.c_str(), flags | O_CLOEXEC); })) {}
  ~OpenedFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

Error IsAFolder(const std::string& path) {
  return Error(Code::kInvalidArgument, StrCat(path, ": this is a folder; name a file"));
}

}  // namespace

Result<Handle> CreateNew(const std::string& path, const std::string& shown_path) {
  const int fd =
      Retry([&] { return ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666); });
  if (fd < 0) return Failed(shown_path, "cannot be created");
  // The lock tells other processes that this one lives. A file system without locks refuses here
  // and in RemoveAbandoned alike; then nothing is ever taken for abandoned.
  (void)::flock(fd, LOCK_EX | LOCK_NB);
  return Handle{fd};
}

void RemoveAbandoned(const std::string& path) {
  const OpenedFile opened(path, O_RDONLY);
  if (opened.fd() < 0 || ::flock(opened.fd(), LOCK_EX | LOCK_NB) != 0) return;
  (void)::unlink(path.c_str());
}

Status Write(Handle file, std::span<const uint8_t> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = Retry([&] { return ::write(Fd(file), bytes.data(), bytes.size()); });
    if (n < 0) return Failed(path, "cannot be written");
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status Sync(Handle file, const std::string& path) {
#ifdef __APPLE__
  // fsync leaves the bytes in the drive's cache there; not every file system knows F_FULLFSYNC.
  if (::fcntl(Fd(file), F_FULLFSYNC) == 0) return {};
#endif
  if (Retry([&] { return ::fsync(Fd(file)); }) != 0) return Failed(path, "cannot be synced");
  return {};
}

void Close(Handle file) { ::close(Fd(file)); }

Status RenameOver(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) return Failed(to, "cannot be put in place");
  return {};
}

Status SyncFolder(const std::string& folder) {
  const OpenedFile opened(folder, O_RDONLY | O_DIRECTORY);
  if (opened.fd() < 0) return Failed(folder, "cannot be opened");
  // Some file systems cannot sync a folder and say so with EINVAL; nothing more can be done there.
  if (Retry([&] { return ::fsync(opened.fd()); }) != 0 && errno != EINVAL)
    return Failed(folder, "cannot be synced");
  return {};
}

Result<std::vector<uint8_t>> ReadWhole(const std::string& path) {
  const OpenedFile opened(path, O_RDONLY);
  struct stat info;
  if (opened.fd() < 0 || ::fstat(opened.fd(), &info) != 0) return Failed(path, "cannot be opened");
  if (S_ISDIR(info.st_mode)) return IsAFolder(path);
  // One byte more than the size says, so that the end shows itself in the first round.
  std::vector<uint8_t> bytes(static_cast<size_t>(std::max<off_t>(info.st_size, 0)) + 1);
  size_t used = 0;
  while (true) {
    const ssize_t n =
        Retry([&] { return ::read(opened.fd(), bytes.data() + used, bytes.size() - used); });
    if (n < 0) return Failed(path, "cannot be read");
    if (n == 0) break;
    used += static_cast<size_t>(n);
    if (used == bytes.size()) bytes.resize(2 * bytes.size() + 4096);
  }
  bytes.resize(used);
  return bytes;
}

Result<Mapping> Map(const std::string& path) {
  const OpenedFile opened(path, O_RDONLY);
  struct stat info;
  if (opened.fd() < 0 || ::fstat(opened.fd(), &info) != 0) return Failed(path, "cannot be opened");
  if (S_ISDIR(info.st_mode)) return IsAFolder(path);
  if (!S_ISREG(info.st_mode))
    return Error(Code::kInvalidArgument,
                 StrCat(path, ": this is not a regular file and cannot be mapped"));
  const size_t size = static_cast<size_t>(info.st_size);
  if (size == 0) return Mapping{};  // an empty file cannot be mapped, and need not be
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, opened.fd(), 0);
  if (data == MAP_FAILED) return Failed(path, "cannot be mapped");
  return Mapping{static_cast<const uint8_t*>(data), size};
}

void Unmap(Mapping mapping) {
  if (mapping.data != nullptr) ::munmap(const_cast<uint8_t*>(mapping.data), mapping.size);
}

PathKind KindOf(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return PathKind::kNone;
  if (S_ISDIR(info.st_mode)) return PathKind::kFolder;
  return S_ISREG(info.st_mode) ? PathKind::kFile : PathKind::kOther;
}

Status MakeFolder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) == 0) return {};
  const Error error = Failed(path, "cannot be made a folder");
  if (KindOf(path) == PathKind::kFolder) return {};
  return error;
}

Status RemoveFolder(const std::string& path) {
  return ::rmdir(path.c_str()) == 0 ? Status() : Status(Failed(path, "cannot be removed"));
}

Status Remove(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return Failed(path, "cannot be removed");
}

std::vector<std::string> ListFolder(const std::string& folder) {
  std::vector<std::string> names;
  DIR* opened = ::opendir(folder.c_str());
  if (opened == nullptr) return names;
  while (const dirent* entry = ::readdir(opened)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(opened);
  return names;
}

uint32_t ProcessId() { return static_cast<uint32_t>(::getpid()); }

bool ProcessRuns(uint32_t id) {
  const pid_t pid = static_cast<pid_t>(id);
  if (pid <= 0) return true;  // no id of ours; kill() would take it for a group
  return ::kill(pid, 0) == 0 || errno != ESRCH;
}

void KillThisProcess() {
  ::kill(::getpid(), SIGKILL);
  std::_Exit(137);
}

uint64_t ThreadNanoseconds() {
  timespec t = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000000000u + static_cast<uint64_t>(t.tv_nsec);
}

void PreferLargePages([[maybe_unused]] void* begin, [[maybe_unused]] size_t size) {
#ifdef MADV_HUGEPAGE
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const size_t into = reinterpret_cast<uintptr_t>(begin) % page;
  const size_t skipped = into == 0 ? 0 : page - into;
  if (skipped >= size) return;
  const size_t whole = (size - skipped) / page * page;
  if (whole > 0) ::madvise(static_cast<char*>(begin) + skipped, whole, MADV_HUGEPAGE);
#endif
}

int AffinityThreads() {
#ifdef __linux__
  // The mask's size follows the machine's largest processor number, so it is grown until it fits.
  for (int processors = CPU_SETSIZE; processors <= (1 << 20); processors *= 2) {
    cpu_set_t* set = CPU_ALLOC(processors);
    if (set == nullptr) break;
    const size_t size = CPU_ALLOC_SIZE(processors);
    const bool fits = ::sched_getaffinity(0, size, set) == 0;
    const bool too_small = !fits && errno == EINVAL;
    const int count = fits ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (fits) return std::max(1, count);
    if (!too_small) break;
  }
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::string DiskFullReason() { return Reason(ENOSPC); }

}  // namespace needle::os

#endif
