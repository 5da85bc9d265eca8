// needle verify: proves that an archive answers like the checkpoint that it was built from.
#include "eval/verify.h"

#include <fmt/core.h>

#include "api/adapted.h"
#include "api/base_model_impl.h"
#include "base/str_cat.h"
#include "format/cact.h"
#include "needle/command.h"

namespace needle::cli {
namespace {

struct VerifyArgs {
  BaseArgs base;
  std::string lora, archive;
  VerifyOptions options;
};

Status Run(const VerifyArgs& args) {
  NEEDLE_ASSIGN(const CactModel archive, CactModel::Open(args.archive));
  NEEDLE_ASSIGN(const BaseModel base, LoadBase(args.base));
  NEEDLE_ASSIGN(const AdaptedModel model, Adapt(base, args.lora));
  // An adapter says which widths it was trained for; without one the archive's own are taken.
  BitMap bits = BitsOf(archive);
  NEEDLE_ASSIGN(const ArchiveBits chosen, ChooseBits(model, ""));
  if (chosen.from_adapter) bits = chosen.bits;
  NEEDLE_ASSIGN(const VerifyReport report,
                VerifyArchive(model.merged, bits, base.impl().tokenizer, archive, args.options));
  PrintLine("tensors",
            fmt::format("{} compared  {} differ", report.tensors, report.different_tensors));
  PrintLine("answers", fmt::format("{} prompts  {} positions  worst logit difference {:.2g}  "
                                   "tokens that differ {}  within the margin {}",
                                   report.prompts, report.positions, report.worst_logits,
                                   report.different_tokens, report.close_calls));
  if (JsonMode()) PrintJson(ToJson(report));
  if (report.ok()) {
    PrintLine("verified", args.archive);
    return {};
  }
  std::string problems;
  for (const std::string& problem : report.problems) problems += "\n  " + problem;
  return Error(Code::kCheckFailed,
               StrCat(args.archive, ": not the archive of ", base.name(),
                      args.lora.empty() ? "" : " with ", args.lora, ":", problems));
}

}  // namespace

void AddVerify(Options& app, Command* chosen) {
  auto args = std::make_shared<VerifyArgs>();
  args->base.checkpoint.clear();
  Options c = app.Group("verify", "Prove that an archive answers like its checkpoint");
  c.Add("checkpoint", &args->base.checkpoint, "base: .pkl or .safetensors, or \"bundled\"")
      .Required();
  c.Add("archive", &args->archive, "archive (.cact)").Required();
  c.Add("--lora", &args->lora, "adapter that was merged");
  c.AddTokenizer(&args->base.tokenizer);
  c.AddThreads(&args->options.threads);
  c.AddJson();
  c.Runs(chosen, [args] { return Run(*args); });
}

}  // namespace needle::cli
