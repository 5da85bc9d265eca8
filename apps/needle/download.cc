// needle download: brings the published base and its tokenizer, or a named file of a model
// repository, into the shared cache (docs/weights.md).
#include "hub/download.h"

#include <fmt/core.h>

#include <vector>

#include "base/file.h"
#include "base/str_cat.h"
#include "needle/command.h"

namespace needle::cli {
namespace {

struct DownloadArgs {
  std::string spec, folder;
};

/// "Org/name/path/in/it"; "" is the published base with its tokenizer.
Result<std::vector<HubFile>> FilesOf(const std::string& spec, const HubOptions& hub) {
  std::vector<HubFile> files;
  if (spec.empty()) {
    for (const std::string_view path :
         {kDefaultCheckpoint, std::string_view("tokenizer/tokenizer.model")}) {
      HubFile& file = files.emplace_back();
      file.repo = hub.repo;
      file.path = path;
    }
    return files;
  }
  const size_t org = spec.find('/');
  const size_t name = org == std::string::npos ? org : spec.find('/', org + 1);
  if (name == std::string::npos || name + 1 == spec.size())
    return Error(Code::kInvalidArgument, StrCat("\"", spec,
                                                "\" names no file; write ORG/NAME/PATH, as in "
                                                "Cactus-Compute/needle2/checkpoints/needle2.pkl"));
  HubFile& file = files.emplace_back();
  file.repo = spec.substr(0, name);
  file.path = spec.substr(name + 1);
  return files;
}

Status Run(const DownloadArgs& args) {
  CatchStopSignals();
  LoadOptions show;
  ShowDownloads(&show);
  HubOptions hub = HubOptions::FromEnvironment();
  hub.notice = show.notice;
  NEEDLE_ASSIGN(const std::vector<HubFile> files, FilesOf(args.spec, hub));
  std::vector<json::Value> paths;
  for (const HubFile& file : files) {
    PrintLine("fetch", fmt::format("{}/{}", file.repo, file.path));
    NEEDLE_ASSIGN(std::string path, FetchFile(file, hub, show.progress));
    if (!args.folder.empty()) {
      NEEDLE_ASSIGN(const MappedFile bytes, MappedFile::Open(path));
      path = JoinPath(args.folder, BaseName(file.path));
      NEEDLE_TRY(WriteFileAtomically(path, bytes.bytes()));
    }
    PrintLine("file", path);
    paths.push_back(json::Value::String(path));
  }
  if (JsonMode())
    PrintJson(json::Value::Object(
        {{"success", json::Value::Bool(true)}, {"files", json::Value::Array(std::move(paths))}}));
  return {};
}

}  // namespace

void AddDownload(Options& app, Command* chosen) {
  auto args = std::make_shared<DownloadArgs>();
  Options c = app.Group("download", "Download the published base, or a named file");
  c.Add("spec", &args->spec,
        "ORG/NAME/PATH of a file; default: the published base and its tokenizer");
  c.Add("--out", &args->folder, "folder to copy the files to, besides the shared cache");
  c.AddJson();
  c.Runs(chosen, [args] { return Run(*args); });
}

}  // namespace needle::cli
