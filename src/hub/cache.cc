#include "hub/cache.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "base/link.h"
#include "base/native_path.h"
#include "base/str_cat.h"
#include "hub/checksum.h"

namespace needle {
namespace {

bool IsNameChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.';
}

/// One piece of a path that is neither empty nor "." nor ".." and fits a file system.
bool IsPiece(std::string_view piece) {
  return !piece.empty() && piece.size() <= 200 && piece != "." && piece != "..";
}

bool IsName(std::string_view name) {
  return IsPiece(name) && name[0] != '.' && std::all_of(name.begin(), name.end(), IsNameChar);
}

/// "a/b/c": pieces with single slashes between them, none absolute, none going up.
bool IsRelativePath(std::string_view path) {
  const auto forbidden = [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\' || c == ':';
  };
  if (path.size() > 1000 || std::any_of(path.begin(), path.end(), forbidden)) return false;
  while (true) {
    const size_t slash = std::min(path.find('/'), path.size());
    if (!IsPiece(path.substr(0, slash))) return false;
    if (slash == path.size()) return true;
    path.remove_prefix(slash + 1);
  }
}

bool IsRepo(std::string_view repo) {
  const size_t slash = repo.find('/');
  if (slash == std::string_view::npos) return IsName(repo);
  return IsName(repo.substr(0, slash)) && IsName(repo.substr(slash + 1));
}

std::string RepoPath(const HubFile& file, const std::string& cache) {
  return JoinPath(cache, RepoFolder(file.repo));
}

std::string RefPath(const HubFile& file, const std::string& cache) {
  return JoinPath(JoinPath(RepoPath(file, cache), "refs"), file.revision);
}

std::string SnapshotPath(const HubFile& file, const std::string& commit, const std::string& cache) {
  return JoinPath(JoinPath(JoinPath(RepoPath(file, cache), "snapshots"), commit), file.path);
}

/// From snapshots/<commit>/a/b.pkl to blobs/<etag>: "../../../blobs/<etag>".
std::string LinkTarget(const HubFile& file, const std::string& etag) {
  std::string up = "../../";
  for (const char c : file.path)
    if (c == '/') up += "../";
  return StrCat(up, "blobs/", etag);
}

Status CopyFile(const std::string& from, const std::string& to) {
  const std::string temporary = StrCat(to, ".incomplete");
  std::error_code error;
  std::filesystem::copy_file(NativePath(from), NativePath(temporary),
                             std::filesystem::copy_options::overwrite_existing, error);
  if (error) return Error(Code::kIo, StrCat(to, ": could not be written: ", error.message()));
  return RenameFile(temporary, to);
}

Status NoteRevision(const HubFile& file, const std::string& commit, const std::string& cache) {
  if (file.revision == commit) return {};
  const std::string path = RefPath(file, cache);
  const Result<std::string> noted = ReadTextFile(path);
  if (noted.ok() && *noted == commit) return {};
  return WriteFileAtomically(path, std::string_view(commit));
}

}  // namespace

bool IsCommit(std::string_view revision) { return revision.size() == 40 && IsHex(revision); }

Status CheckHubFile(const HubFile& file) {
  if (!IsRepo(file.repo))
    return Error(Code::kInvalidArgument,
                 StrCat("\"", file.repo,
                        "\" is not the name of a repository; it is \"Org/name\" "
                        "of letters, digits, \"-\", \"_\" and \".\" (see NEEDLE_HF_REPO)"));
  if (!IsRelativePath(file.revision))
    return Error(Code::kInvalidArgument, StrCat("\"", file.revision, "\" is not the name of a ",
                                                "branch, a tag or a commit of ", file.repo));
  if (!IsRelativePath(file.path))
    return Error(Code::kInvalidArgument,
                 StrCat("\"", file.path, "\" is not the path of a file inside ", file.repo,
                        "; it is relative, with \"/\" between its pieces and without \"..\""));
  return {};
}

Status CheckBlobName(const HubFile& file, const BlobName& name) {
  if (!IsCommit(name.commit))
    return Error(Code::kUnavailable,
                 StrCat(file.repo, ": the server named the commit \"", name.commit.substr(0, 80),
                        "\", which is not one; it does not answer as a hub does (see "
                        "HF_ENDPOINT)"));
  if (!IsName(name.etag))
    return Error(Code::kUnavailable, StrCat(file.repo, ": the server gave ", file.path,
                                            " the tag \"", name.etag.substr(0, 80),
                                            "\", which cannot name a file; it does not "
                                            "answer as a hub does (see HF_ENDPOINT)"));
  return {};
}

std::string RepoFolder(std::string_view repo) {
  std::string folder = "models--";
  for (const char c : repo) {
    if (c == '/')
      folder += "--";
    else
      folder += c;
  }
  return folder;
}

CachePlaces PlacesOf(const HubFile& file, const BlobName& name, const std::string& cache) {
  const std::string blob = JoinPath(JoinPath(RepoPath(file, cache), "blobs"), name.etag);
  const std::string locks = JoinPath(JoinPath(cache, ".locks"), RepoFolder(file.repo));
  return {.blob = blob,
          .incomplete = StrCat(blob, ".incomplete"),
          .lock = JoinPath(locks, StrCat(name.etag, ".lock")),
          .pointer = SnapshotPath(file, name.commit, cache)};
}

Result<std::string> FindInCache(const HubFile& file, const HubOptions& options) {
  NEEDLE_TRY(CheckHubFile(file));
  std::string commit = file.revision;
  if (!IsCommit(commit)) {
    const Result<std::string> noted = ReadTextFile(RefPath(file, options.cache));
    // A branch that holds no commit is as good as none: nothing below it is asked for.
    commit = noted.ok() && IsCommit(*noted) ? *noted : "";
  }
  if (!commit.empty()) {
    const std::string path = SnapshotPath(file, commit, options.cache);
    if (FileExists(path) && !IsDirectory(path)) return path;
  }
  return Error(Code::kNotFound, StrCat(file.repo, ": ", file.path, " (", file.revision,
                                       ") is not in the cache "
                                       "folder ",
                                       options.cache, " (see HF_HUB_CACHE and HF_HOME)"));
}

Result<std::string> Publish(const HubFile& file, const BlobName& name, const HubOptions& options) {
  const CachePlaces places = PlacesOf(file, name, options.cache);
  if (!FileExists(places.pointer)) {
    NEEDLE_TRY(MakeDirectories(DirName(places.pointer)));
    if (!ReplaceWithSymlink(LinkTarget(file, name.etag), places.pointer).ok())
      NEEDLE_TRY(CopyFile(places.blob, places.pointer));
  }
  NEEDLE_TRY(NoteRevision(file, name.commit, options.cache));
  return places.pointer;
}

}  // namespace needle
