#include "needle/model.h"

#include <fmt/core.h>

#include <utility>

namespace needle::cli {
namespace {

std::string NameOf(const ModelArgs& args) {
  return args.lora.empty() ? args.base.checkpoint : args.base.checkpoint + " + " + args.lora;
}

/// What --device asks for; a plugin's device is shown.
Result<Device> OpenAndShow(const std::string& name) {
  NEEDLE_ASSIGN(Device device, OpenDevice(name));
  if (!device.description().empty())
    PrintLine("backend", fmt::format("{}  float32  {}", device.backend(), device.description()));
  for (const std::string& note : device.notes()) PrintNote(note);
  return device;
}

}  // namespace

Option AddModelOptions(Options& options, ModelArgs* args) {
  args->base.checkpoint.clear();
  const Option checkpoint =
      options.Add("--checkpoint", &args->base.checkpoint,
                  "a checkpoint in float32 instead of an archive: .pkl, .safetensors, \"bundled\"");
  options.Add("--lora", &args->lora, "adapter to merge into the checkpoint");
  options.AddTokenizer(&args->base.tokenizer);
  options.Add("--device", &args->device,
              "where a checkpoint runs, as finetune takes it; an archive runs on the cpu");
  return checkpoint;
}

Status CheckModelArgs(const ModelArgs& args) {
  const auto bad = [](const std::string& what) { return Error(Code::kInvalidArgument, what); };
  if (args.archive.empty() == !args.from_checkpoint)
    return bad("give either an archive (.cact) or --checkpoint FILE");
  if (args.from_checkpoint) return {};
  if (!args.lora.empty())
    return bad("--lora needs --checkpoint; an archive has its adapter merged already");
  if (args.device != "auto" && args.device != "cpu")
    return bad(
        fmt::format("--device {}: an archive runs on the cpu, in its own numerics; leave "
                    "--device out, or give the checkpoint with --checkpoint FILE",
                    args.device));
  return {};
}

Result<OpenedModel> OpenArchive(const std::string& path, int threads) {
  OpenOptions options;
  options.threads = threads;
  NEEDLE_ASSIGN(Model model, Model::Open(path, options));
  return OpenedModel{std::move(model), path, /*on_device=*/false};
}

Result<OpenedModel> OpenModel(const ModelArgs& args, int threads) {
  NEEDLE_TRY(CheckModelArgs(args));
  if (!args.from_checkpoint) return OpenArchive(args.archive, threads);
  NEEDLE_ASSIGN(const Device device, OpenAndShow(args.device));
  NEEDLE_ASSIGN(const BaseModel base, LoadBase(args.base));
  OpenOptions options;
  options.threads = threads;
  options.device = device;
  NEEDLE_ASSIGN(Model model, OpenBase(base, args.lora, options));
  return OpenedModel{std::move(model), NameOf(args), !device.description().empty()};
}

}  // namespace needle::cli
