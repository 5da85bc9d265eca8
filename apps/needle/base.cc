// What commands share about bases: loading, downloads, devices.
#include <fmt/core.h>

#include "base/env.h"
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

Status CheckDevice(const std::string& device) {
  const auto only_cpu = [](const std::string& asked) {
    return Error(Code::kInvalidArgument,
                 asked + ": this command computes on the cpu only; use --device cpu or auto");
  };
  if (device == "cpu") return {};
  if (device != "auto") return only_cpu("--device " + device);
  const std::string platforms = GetEnvOr("JAX_PLATFORMS", "");
  if (platforms.empty() || platforms.find("cpu") != std::string::npos) return {};
  return only_cpu("JAX_PLATFORMS=" + platforms);
}

}  // namespace needle::cli
