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

namespace {

/// Whether two names mean one file, there or not. What is no regular file can be written to twice.
bool OneFile(const std::string& a, const std::string& b) {
  std::error_code none;
  const auto whole = [&](const std::string& name) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(NativePath(name), none),
                                             none);
  };
  const auto first = whole(a), second = whole(b);
  if (std::filesystem::is_other(first, none)) return false;
  if (first.empty() || second.empty()) return false;  // the system could not say
  return first == second || std::filesystem::equivalent(first, second, none);
}

bool Clash(const std::string& a, const std::string& b) {
  return !a.empty() && !b.empty() && OneFile(a, b);
}

}  // namespace

Status RefuseOverwriting(const std::vector<std::string>& written,
                         const std::vector<std::string>& read) {
  for (const std::string& out : written)
    for (const std::string& in : read)
      if (Clash(out, in))
        return Error(Code::kInvalidArgument,
                     fmt::format("{}: this would be written over {}, which is read; give the "
                                 "output another name",
                                 out, in));
  return {};
}

Status CheckOutputs(const std::vector<std::string>& written, const std::vector<std::string>& read) {
  NEEDLE_TRY(RefuseOverwriting(written, read));
  for (size_t i = 0; i < written.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (Clash(written[i], written[j]))
        return Error(Code::kInvalidArgument,
                     fmt::format("{}: two outputs would be written to this file (the other is {}); "
                                 "give one of them another name",
                                 written[i], written[j]));
  for (const std::string& out : written)
    if (!out.empty() && !out.starts_with("/dev/")) NEEDLE_TRY(CheckCanWrite(out));
  return {};
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
