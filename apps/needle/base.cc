// What commands share about bases: loading, downloads, files that may be written.
#include <fmt/core.h>

#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "base/native_path.h"
#include "needle/command.h"

namespace needle::cli {

void ShowDownloads(LoadOptions* options) {
  auto line = std::make_shared<ProgressLine>();
  options->notice = [line](const std::string& sentence) {
    line->Clear();
    PrintNote(sentence);
  };
  options->progress = [line](uint64_t bytes, uint64_t total) {
    line->Show(total == 0 ? fmt::format("fetch  {:.1f} MB", static_cast<double>(bytes) / 1e6)
                          : fmt::format("fetch  {} kB", Bar(static_cast<int64_t>(bytes / 1000),
                                                            static_cast<int64_t>(total / 1000))));
    return !StopRequested();
  };
}

Status RefuseOverwriting(std::initializer_list<std::string> written,
                         std::initializer_list<std::string> read) {
  for (const std::string& out : written)
    for (const std::string& in : read) {
      if (out.empty() || in.empty()) continue;
      std::error_code none;
      const auto a = std::filesystem::weakly_canonical(NativePath(out), none);
      const auto b = std::filesystem::weakly_canonical(NativePath(in), none);
      if (a != b && !std::filesystem::equivalent(a, b, none)) continue;
      return Error(Code::kInvalidArgument,
                   fmt::format("{}: this would be written over {}, which is read; give the output "
                               "another name",
                               out, in));
    }
  return {};
}

Status CheckWritable(const std::string& path) {
  if (path.empty() || path.rfind("/dev/", 0) == 0) return {};
  const Result<AtomicFile> file = AtomicFile::Open(path);  // never committed
  return file.ok() ? Status() : Status(Error(Code::kInvalidArgument, file.error().message()));
}

Result<BaseModel> LoadBase(const BaseArgs& args) {
  LoadOptions options;
  options.checkpoint = args.checkpoint;
  options.tokenizer = args.tokenizer;
  ShowDownloads(&options);
  NEEDLE_ASSIGN(BaseModel base, BaseModel::Load(options));
  if (base.file() != base.name()) PrintLine("base", base.file());
  PrintLine("tokenizer", base.tokenizer_file());
  return base;
}

}  // namespace needle::cli
