#include "base/file.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <optional>
#include <utility>

#include "base/fault.h"
#include "base/os.h"
#include "base/str_cat.h"

namespace needle {
namespace {

constexpr size_t kChunk = 64 << 10;  // bytes between two "write" fault points

bool IsSeparator(char c) {
#ifdef _WIN32
  if (c == '\\' || c == ':') return true;
#endif
  return c == '/';
}

// The length of a path up to and with its last separator.
size_t FolderLength(std::string_view path) {
  size_t length = path.size();
  while (length > 0 && !IsSeparator(path[length - 1])) --length;
  return length;
}

Error DiskFull(const std::string& path) {
  return Error(Code::kIo, StrCat(path, ": cannot be written: ", os::DiskFullReason()));
}

// A passage of a fault point where there is nothing to do by halves.
Status Pass(std::string_view point, const std::string& path) {
  const Fault fault = FaultPoint(point);
  if (fault == Fault::kShort) os::KillThisProcess();
  if (fault == Fault::kError) return DiskFull(path);
  return {};
}

// Temporary files are called ".<name>.needle-<process>-<n>.tmp".
std::string TemporaryPrefix(const std::string& path) {
  return StrCat(".", BaseName(path), ".needle-");
}

std::string TemporaryPath(const std::string& path) {
  static std::atomic<uint32_t> counter{0};
  return JoinPath(DirName(path), StrCat(TemporaryPrefix(path), os::ProcessId(), "-",
                                        counter.fetch_add(1), ".tmp"));
}

// The process that made a temporary file, if the name is one.
std::optional<uint32_t> MakerOf(std::string_view name, std::string_view prefix) {
  if (name.substr(0, prefix.size()) != prefix || !name.ends_with(".tmp")) return std::nullopt;
  const char* const digits = name.data() + prefix.size();
  uint32_t maker = 0;
  const auto [end, error] = std::from_chars(digits, name.data() + name.size(), maker);
  if (error != std::errc() || *end != '-') return std::nullopt;
  return maker;
}

void RemoveAbandonedTemporaries(const std::string& path) {
  const std::string folder = DirName(path), prefix = TemporaryPrefix(path);
  for (const std::string& name : os::ListFolder(folder)) {
    const auto maker = MakerOf(name, prefix);
    if (maker && !os::ProcessRuns(*maker)) os::RemoveAbandoned(JoinPath(folder, name));
  }
}

// Refuses a path at which no file can be put, whatever the disk says.
Status CheckNamesAFile(const std::string& path) {
  const auto refused = [&](const char* what) {
    return Error(Code::kInvalidArgument, StrCat(path, ": this is ", what));
  };
  if (BaseName(path).empty()) return refused("the name of a folder; name a file");
  const os::PathKind kind = os::KindOf(path);
  if (kind == os::PathKind::kFolder) return refused("a folder; name a file");
  if (kind == os::PathKind::kOther) return refused("a device or a pipe; name a regular file");
  return {};
}

// The folders above `path` that are not there, the innermost first.
std::vector<std::string> MissingFolders(const std::string& path) {
  std::vector<std::string> missing;
  for (std::string folder = DirName(path); os::KindOf(folder) == os::PathKind::kNone;) {
    if (!BaseName(folder).empty()) missing.push_back(folder);
    const std::string above = DirName(folder);
    if (above == folder) break;
    folder = above;
  }
  return missing;
}

}  // namespace

Result<std::vector<uint8_t>> ReadFile(const std::string& path) { return os::ReadWhole(path); }

Result<std::string> ReadTextFile(const std::string& path) {
  NEEDLE_ASSIGN(const std::vector<uint8_t> bytes, os::ReadWhole(path));
  return std::string(bytes.begin(), bytes.end());
}

struct AtomicFile::Impl {
  std::string path, temporary;
  os::Handle file = os::kNoHandle;
  std::vector<uint8_t> waiting;  // at most kChunk bytes

  ~Impl() {
    if (file == os::kNoHandle) return;
    os::Close(file);
    (void)os::Remove(temporary);
  }

  Status WriteWaiting() {
    const std::span<const uint8_t> bytes(waiting);
    switch (FaultPoint("write")) {
      case Fault::kError:
        return DiskFull(path);
      case Fault::kShort:
        (void)os::Write(file, bytes.first(bytes.size() / 2), path);
        os::KillThisProcess();
      case Fault::kNone:
        break;
    }
    NEEDLE_TRY(os::Write(file, bytes, path));
    waiting.clear();
    return {};
  }
};

AtomicFile::AtomicFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
AtomicFile::AtomicFile(AtomicFile&&) noexcept = default;
AtomicFile& AtomicFile::operator=(AtomicFile&&) noexcept = default;
AtomicFile::~AtomicFile() = default;

Result<AtomicFile> AtomicFile::Open(const std::string& path) {
  NEEDLE_TRY(CheckNamesAFile(path));
  NEEDLE_TRY(MakeDirectories(DirName(path)));
  RemoveAbandonedTemporaries(path);
  NEEDLE_TRY(Pass("open", path));
  auto impl = std::make_unique<Impl>();
  impl->path = path;
  impl->temporary = TemporaryPath(path);
  NEEDLE_ASSIGN(impl->file, os::CreateNew(impl->temporary, path));
  impl->waiting.reserve(kChunk);
  return AtomicFile(std::move(impl));
}

Status AtomicFile::Append(std::span<const uint8_t> bytes) {
  assert(impl_->file != os::kNoHandle);
  std::vector<uint8_t>& waiting = impl_->waiting;
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), kChunk - waiting.size());
    waiting.insert(waiting.end(), bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(n));
    bytes = bytes.subspan(n);
    if (waiting.size() == kChunk) NEEDLE_TRY(impl_->WriteWaiting());
  }
  return {};
}

Status AtomicFile::Append(std::string_view text) {
  return Append({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

Status AtomicFile::Commit() {
  Impl& f = *impl_;
  assert(f.file != os::kNoHandle);
  if (!f.waiting.empty()) NEEDLE_TRY(f.WriteWaiting());
  NEEDLE_TRY(Pass("sync", f.path));
  NEEDLE_TRY(os::Sync(f.file, f.path));
  NEEDLE_TRY(Pass("rename", f.path));
  os::Close(std::exchange(f.file, os::kNoHandle));  // Windows renames closed files only
  Status renamed = os::RenameOver(f.temporary, f.path);
  if (!renamed.ok()) {
    (void)os::Remove(f.temporary);
    return renamed;
  }
  NEEDLE_TRY(Pass("folder", f.path));
  return os::SyncFolder(DirName(f.path));
}

Status WriteFileAtomically(const std::string& path, std::span<const uint8_t> bytes) {
  NEEDLE_ASSIGN(AtomicFile file, AtomicFile::Open(path));
  NEEDLE_TRY(file.Append(bytes));
  return file.Commit();
}

Status WriteFileAtomically(const std::string& path, std::string_view text) {
  return WriteFileAtomically(path,
                             std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

Status CheckCanWrite(const std::string& path) {
  NEEDLE_TRY(CheckNamesAFile(path));
  const std::vector<std::string> made = MissingFolders(path);
  const std::string temporary = TemporaryPath(path);
  Status status = MakeDirectories(DirName(path));
  if (status.ok()) {
    RemoveAbandonedTemporaries(path);
    const Result<os::Handle> file = os::CreateNew(temporary, path);
    if (file.ok()) {
      os::Close(*file);
      (void)os::Remove(temporary);
    } else {
      status = file.error();
    }
  }
  for (const std::string& folder : made) (void)os::RemoveFolder(folder);
  if (status.ok()) return {};
  return Error(Code::kInvalidArgument, status.error().message());
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  NEEDLE_ASSIGN(const os::Mapping mapping, os::Map(path));
  MappedFile file;
  file.data_ = mapping.data;
  file.size_ = mapping.size;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() { os::Unmap({data_, size_}); }

bool FileExists(const std::string& path) {
  const os::PathKind kind = os::KindOf(path);
  return kind == os::PathKind::kFile || kind == os::PathKind::kOther;
}

bool IsDirectory(const std::string& path) { return os::KindOf(path) == os::PathKind::kFolder; }

Status MakeDirectories(const std::string& path) {
  if (path.empty() || IsDirectory(path)) return {};
  const std::string above = DirName(path);
  if (above != path) NEEDLE_TRY(MakeDirectories(above));
  if (BaseName(path).empty()) return {};  // "a/b/": its folder "a/b" was just made
  return os::MakeFolder(path);
}

Status RemoveFile(const std::string& path) { return os::Remove(path); }

std::string DirName(std::string_view path) {
  size_t length = FolderLength(path);
  if (length == 0) return ".";
  // Separators at the end go, but not the one that is the root.
  while (length > 1 && IsSeparator(path[length - 1]) && path[length - 1] != ':') --length;
  return std::string(path.substr(0, length));
}

std::string BaseName(std::string_view path) { return std::string(path.substr(FolderLength(path))); }

std::string Stem(std::string_view path) {
  std::string name = BaseName(path);
  const size_t dot = name.rfind('.');
  if (dot != std::string::npos && dot > 0) name.resize(dot);
  return name;
}

std::string JoinPath(std::string_view folder, std::string_view name) {
  const bool absolute = !name.empty() && IsSeparator(name[0]);
  if (folder.empty() || absolute) return std::string(name);
  return StrCat(folder, IsSeparator(folder.back()) ? "" : "/", name);
}

}  // namespace needle
