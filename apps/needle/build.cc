// needle build: merges an adapter into its base, quantises, writes a .cact archive.
#include <fmt/core.h>

#include "needle/command.h"

namespace needle::cli {
namespace {

struct BuildArgs {
  BaseArgs base;
  BuildOptions options;
};

Status Run(const BuildArgs& args) {
  NEEDLE_TRY(RefuseOverwriting({args.options.out},
                               {args.base.checkpoint, args.base.tokenizer, args.options.lora}));
  NEEDLE_ASSIGN(const BaseModel base, LoadBase(args.base));
  NEEDLE_TRY(RefuseOverwriting({args.options.out}, {base.file(), base.tokenizer_file()}));
  NEEDLE_ASSIGN(const BuildReport report, Build(base, args.options));
  if (!args.options.lora.empty())
    PrintLine("merged", fmt::format("{} weight groups  {}", report.merged, args.options.lora));
  if (report.from_adapter)
    PrintLine("scheme", fmt::format("CQ {} from QAT adapter metadata", report.scheme));
  PrintLine("wrote",
            fmt::format("{}  {:.2f} MB  {} tensors  {}A8", report.path,
                        static_cast<double>(report.bytes) / 1e6, report.tensors, report.scheme));
  PrintLine("next", fmt::format("needle run {} --tools TOOLS.json --query \"...\"", report.path));
  using json::Value;
  if (JsonMode())
    PrintJson(Value::Object({{"success", Value::Bool(true)},
                             {"path", Value::String(report.path)},
                             {"bytes", Value::Int(static_cast<int64_t>(report.bytes))},
                             {"tensors", Value::Int(static_cast<int64_t>(report.tensors))},
                             {"scheme", Value::String(report.scheme)},
                             {"from_adapter", Value::Bool(report.from_adapter)},
                             {"merged", Value::Int(static_cast<int64_t>(report.merged))},
                             {"tokenizer", Value::String(base.tokenizer_file())}}));
  return {};
}

}  // namespace

void AddBuild(Options& app, Command* chosen) {
  auto args = std::make_shared<BuildArgs>();
  Options c = app.Group("build", "Merge, quantise and write a .cact archive");
  args->base.checkpoint.clear();
  c.Add("checkpoint", &args->base.checkpoint, "base: .pkl or .safetensors, or \"bundled\"")
      .Required();
  c.Add("--lora", &args->options.lora, "adapter to merge");
  c.Add("--out", &args->options.out,
        "archive to write (default: the checkpoint's stem and .cact, here)");
  c.Add("--bits", &args->options.bits,
        "2, 3, 4, 1.58 or a map name=bits,...,default=bits (default: what the adapter was trained "
        "for, else the checkpoint's map, else 4)");
  c.AddTokenizer(&args->base.tokenizer);
  c.AddJson();
  c.Runs(chosen, [args] { return Run(*args); });
}

}  // namespace needle::cli
