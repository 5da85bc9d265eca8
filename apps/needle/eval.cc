// needle eval: exact calls of a model on a data file, through the engine (docs/eval.md).
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "api/engine/model_impl.h"
#include "base/file.h"
#include "base/parallel.h"
#include "base/str_cat.h"
#include "data/jsonl.h"
#include "eval/report.h"
#include "eval/score.h"
#include "needle/model.h"

namespace needle::cli {
namespace {

struct EvalArgs {
  ModelArgs model;
  std::string data, against, report;
  double at_least = -1;  // below 0: no check
  int threads = 0;
  bool skip_bad = false, free_text = false;
};

std::string Percent(size_t part, size_t whole) {
  return whole == 0 ? "-"
                    : fmt::format("{:.1f} %",
                                  100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

/// What a terminal would act upon, instead of showing it, is left out.
std::string Shortened(const std::string& text, size_t most) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<uint8_t>(text[i]);
    const bool c1 = c == 0xC2 && i + 1 < text.size() && static_cast<uint8_t>(text[i + 1]) < 0xA0;
    i += c1;  // U+0080 to U+009F
    out += c < 0x20 || c == 0x7F || c1 ? ' ' : text[i];
  }
  if (out.size() <= most) return out;
  size_t end = most;
  while (end > 0 && (static_cast<uint8_t>(out[end]) & 0xC0) == 0x80) --end;
  return out.substr(0, end) + "...";
}

constexpr int kSessionThreads = 1;  // rows are independent, so they are what is run side by side

EvalReport Score(const OpenedModel& opened, const DataReport& data, const EvalArgs& args) {
  ScoreOptions options;
  options.sessions = args.threads > 0 ? args.threads : AvailableThreads();
  if (opened.on_device) options.sessions = 1;  // a device takes one query at a time
  options.complete.constrain = !args.free_text;
  options.complete.limit_name = "";  // no option changes it
  ProgressLine line;
  const double start = Now();
  options.progress = [&](size_t done, size_t total, size_t exact) {
    const double seconds = Now() - start;
    const auto rows = static_cast<double>(done);
    line.Show(fmt::format("{}  {} exact  {:.1f} rows/s  {} left",
                          Bar(static_cast<int64_t>(done), static_cast<int64_t>(total)), exact,
                          rows / seconds,
                          Duration(seconds / rows * static_cast<double>(total - done))));
  };
  EvalReport report = ScoreExamples(opened.model.impl().engine, data.examples, options);
  report.model = opened.name;
  report.data = data.name;
  return report;
}

void PrintSummary(const EvalReport& r) {
  const auto [low, high] = WilsonInterval(r.exact(), r.rows.size());
  PrintLine("model", r.model);
  PrintLine("accuracy",
            fmt::format("{}/{} exact  {}  (95 % interval {:.1f} to {:.1f} %)", r.exact(),
                        r.rows.size(), Percent(r.exact(), r.rows.size()), 100 * low, 100 * high));
  PrintLine("calls",
            fmt::format("{}/{} exact  {}  misses {}  wrong calls {}  wrong arguments {}",
                        r.calls_right(), r.calls_wanted(),
                        Percent(r.calls_right(), r.calls_wanted()), r.Count(Outcome::kMiss),
                        r.Count(Outcome::kWrongCalls), r.Count(Outcome::kWrongArguments)));
  PrintLine(
      "refusals",
      fmt::format("{}/{} right  {}  false alarms {}", r.refusals_right(), r.refusals_wanted(),
                  Percent(r.refusals_right(), r.refusals_wanted()), r.Count(Outcome::kFalseAlarm)));
  const size_t broken =
      r.Count(Outcome::kTruncated) + r.Count(Outcome::kMalformed) + r.Count(Outcome::kError);
  if (broken > 0)
    PrintLine("broken",
              fmt::format("truncated {}  malformed {}  errors {}", r.Count(Outcome::kTruncated),
                          r.Count(Outcome::kMalformed), r.Count(Outcome::kError)));
}

void PrintTools(const EvalReport& r) {
  size_t width = 4;
  for (const ToolScore& t : r.tools) width = std::max(width, t.name.size());
  PrintText(fmt::format("\n  {:<{}}  {:>6}  {:>6}  {:>10}  {:>15}  {:>7}  {:>8}\n", "tool", width,
                        "wanted", "exact", "wrong name", "wrong arguments", "missing", "unwanted"));
  for (const ToolScore& t : r.tools)
    PrintText(fmt::format("  {:<{}}  {:>6}  {:>6}  {:>10}  {:>15}  {:>7}  {:>8}\n", t.name, width,
                          t.support, t.exact, t.wrong_name, t.wrong_arguments, t.missing,
                          t.unwanted));
}

void PrintFailures(const EvalReport& r) {
  if (r.exact() == r.rows.size()) return;
  PrintText("\n  failures\n");
  for (const RowScore& row : r.rows) {
    if (row.outcome == Outcome::kExact) continue;
    PrintText(fmt::format(
        "  line {}: {}: {}\n    wanted {}\n    got    {}\n", row.line, Name(row.outcome),
        Shortened(row.query, 100), Shortened(json::Dump(row.expected), 300),
        row.error.empty() ? Shortened(json::Dump(row.got), 300) : Shortened(row.error, 1000)));
  }
}

/// `eval M.cact DATA` or `eval --checkpoint FILE DATA`: with one name it is the data's.
Status TakeNames(EvalArgs* args) {
  if (args->data.empty() && args->model.from_checkpoint) std::swap(args->data, args->model.archive);
  NEEDLE_TRY(CheckModelArgs(args->model));
  if (args->data.ends_with(".cact"))
    return Error(Code::kInvalidArgument,
                 StrCat(args->data,
                        " stands where the data file belongs; write needle eval M.cact "
                        "DATA.jsonl"));
  if (!args->data.empty()) return {};
  return Error(Code::kInvalidArgument,
               "there is no data file; write needle eval M.cact DATA.jsonl, or "
               "needle eval --checkpoint FILE DATA.jsonl");
}

Status Run(EvalArgs& args) {
  NEEDLE_TRY(TakeNames(&args));
  NEEDLE_TRY(
      CheckOutputs({args.report}, {args.data, args.against, args.model.archive, args.model.lora,
                                   args.model.base.checkpoint, args.model.base.tokenizer}));
  NEEDLE_ASSIGN(const DataReport data,
                LoadData(args.data, args.skip_bad ? BadLines::kSkip : BadLines::kStop));
  if (data.skipped > 0) PrintNote(fmt::format("skipped {} lines with problems", data.skipped));
  NEEDLE_ASSIGN(const OpenedModel opened, OpenModel(args.model, kSessionThreads));
  const EvalReport report = Score(opened, data, args);
  std::optional<EvalReport> other;
  std::optional<PairedComparison> paired;
  if (!args.against.empty()) {
    NEEDLE_ASSIGN(const OpenedModel against, OpenArchive(args.against, kSessionThreads));
    other = Score(against, data, args);
    NEEDLE_ASSIGN(paired.emplace(), Compare(report, *other));
  }
  const EvalReport* against = other ? &*other : nullptr;
  const PairedComparison* comparison = paired ? &*paired : nullptr;
  if (!args.report.empty())
    NEEDLE_TRY(WriteFileAtomically(args.report, ReportToHtml(report, against, comparison)));
  PrintSummary(report);
  PrintTools(report);
  PrintFailures(report);
  if (comparison != nullptr) {
    PrintText("\n");
    PrintSummary(*other);
    PrintLine("paired", fmt::format("both {}  only first {}  only second {}  neither {}  p {:.3g}",
                                    paired->both, paired->only_first, paired->only_second,
                                    paired->neither, paired->p_value));
  }
  for (const std::string& note : report.notes) PrintNote(note);
  if (!args.report.empty()) PrintLine("report", args.report);
  if (JsonMode()) PrintJson(ReportToJson(report, against, comparison));
  if (report.accuracy() < args.at_least)
    return Error(Code::kCheckFailed, StrCat("the accuracy is ", report.accuracy(),
                                            ", but at least ", args.at_least, " was asked for"));
  return {};
}

}  // namespace

void AddEval(Options& app, Command* chosen) {
  auto args = std::make_shared<EvalArgs>();
  Options c = app.Group("eval", "Score an archive or a checkpoint on a data file");
  c.Add("model", &args->model.archive, "archive (.cact); left out with --checkpoint");
  c.Add("data", &args->data, "JSONL of rows to score on");
  const Option checkpoint = AddModelOptions(c, &args->model);
  c.Add("--against", &args->against, "another archive to compare with, on the same rows");
  c.Add("--at-least", &args->at_least, "exit with 3 when the accuracy is below this share")
      .Between(0, 1)
      .Default("no check");
  c.Add("--report", &args->report, "HTML page to write");
  c.Flag("--skip-bad", &args->skip_bad, "leave lines with problems out instead of stopping");
  c.Flag("--no-grammar", &args->free_text, "let the model write whatever it wants");
  c.AddThreads(&args->threads);
  c.AddJson();
  c.Runs(chosen, [args, checkpoint] {
    args->model.from_checkpoint = checkpoint.given();
    return Run(*args);
  });
}

}  // namespace needle::cli
