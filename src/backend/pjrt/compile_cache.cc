#include "backend/pjrt/compile_cache.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "base/native_path.h"
#include "base/sha256.h"
#include "base/str_cat.h"

namespace needle::pjrt {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTag = "needle compiled 1\n";
constexpr std::string_view kSuffix = ".pjrt";
constexpr size_t kDigest = 64;

std::string DigestOfBytes(std::string_view bytes) {
  Sha256 sha;
  sha.Update(bytes);
  return sha.HexDigest();
}

struct Entry {
  fs::path path;
  uint64_t bytes = 0;
  fs::file_time_type written;
};

std::vector<Entry> EntriesIn(const fs::path& folder) {
  std::vector<Entry> entries;
  std::error_code error;
  for (const auto& item : fs::directory_iterator(folder, error)) {
    if (item.path().extension() != kSuffix) continue;
    Entry entry{item.path(), item.file_size(error), item.last_write_time(error)};
    if (!error) entries.push_back(std::move(entry));
  }
  return entries;
}

void Trim(const fs::path& folder, const fs::path& newest, uint64_t most_bytes) {
  std::vector<Entry> entries = EntriesIn(folder);
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.written > b.written; });
  uint64_t bytes = 0;
  std::error_code error;
  for (const Entry& entry : entries) {
    bytes += entry.bytes;
    if (bytes > most_bytes && entry.path != newest) fs::remove(entry.path, error);
  }
}

}  // namespace

std::string DigestOf(const std::vector<std::string>& parts) {
  Sha256 sha;
  for (const std::string& part : parts) {
    sha.Update(StrCat(part.size(), ":"));
    sha.Update(part);
  }
  return sha.HexDigest();
}

std::string CacheFile(const std::string& folder, const std::string& digest) {
  return JoinPath(folder, StrCat(digest, kSuffix));
}

std::optional<std::string> LoadCompiled(const std::string& path) {
  if (!FileExists(path)) return std::nullopt;
  const Result<std::string> text = ReadTextFile(path);
  if (!text.ok() || text->size() < kTag.size() + kDigest) return std::nullopt;
  const std::string_view all = *text;
  const std::string_view body = all.substr(kTag.size() + kDigest);
  if (all.substr(0, kTag.size()) != kTag) return std::nullopt;
  if (all.substr(kTag.size(), kDigest) != DigestOfBytes(body)) return std::nullopt;
  return std::string(body);
}

void StoreCompiled(const std::string& path, std::string_view serialized, uint64_t most_bytes) {
  if (!MakeDirectories(DirName(path)).ok()) return;
  const std::string text = StrCat(kTag, DigestOfBytes(serialized), serialized);
  if (WriteFileAtomically(path, std::string_view(text)).ok())
    Trim(NativePath(DirName(path)), NativePath(path), most_bytes);
}

}  // namespace needle::pjrt
