// needle data check: what a data file holds, and every problem in it, before anything is trained.
#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "api/base_model_impl.h"
#include "base/file.h"
#include "base/str_cat.h"
#include "data/examples.h"
#include "data/jsonl.h"
#include "grammar/answer_check.h"
#include "needle/command.h"

namespace needle::cli {
namespace {

using json::Value;

struct CheckArgs {
  std::string data;
  BaseArgs base;
  bool strict = false, with_lengths = false;
  size_t max_len = 1024;
};

struct Lengths {
  size_t longest = 0, too_long = 0, window = 0, beyond_window = 0;
  double mean = 0;
};

struct Summary {
  DataReport data;
  size_t refusals = 0, with_system = 0;
  std::map<std::string, size_t> calls;  // by tool
  std::vector<DataProblem> notes;       // usable, but surely not meant
  std::optional<Lengths> lengths;
};

constexpr size_t kListedNotes = 20;

// Lines that can be trained on and yet teach what the engine will never do.
std::vector<DataProblem> Notes(const DataReport& data) {
  std::vector<DataProblem> notes;
  grammar::AnswerCheck check;
  for (const DataExample& e : data.examples) {
    const auto note = [&](const std::string& what) {
      notes.push_back({e.line, StrCat(data.name, ":", e.line, ": ", what)});
    };
    std::set<std::string> names;
    for (const Value& tool : e.tools.items()) {
      const std::optional<std::string> name = ToolName(tool);
      if (name && !names.insert(*name).second)
        note(StrCat("two of its tools are called \"", *name,
                    "\"; the model cannot tell them apart: give each its own name"));
    }
    const auto misfit = check.Misfit(e.tools_text, e.tools, e.text.target);
    if (misfit)
      note(StrCat("its answer can be trained but never be written by the engine: ", *misfit,
                  "; correct the answer or the schema"));
  }
  return notes;
}

Summary Summarise(DataReport data) {
  Summary s;
  for (const DataExample& e : data.examples) {
    s.refusals += e.answers.items().empty();
    s.with_system += !e.system.empty();
    for (const Value& call : e.answers.items())
      if (const Value* name = call.Find("name")) ++s.calls[name->as_string()];
  }
  s.notes = Notes(data);
  s.data = std::move(data);
  return s;
}

Result<Lengths> Measure(const CheckArgs& args, const DataReport& data) {
  NEEDLE_ASSIGN(const BaseModel base, LoadBase(args.base));
  EncodeOptions options;
  options.max_len = size_t{1} << 30;
  NEEDLE_ASSIGN(const EncodedData encoded,
                EncodeExamples(data.examples, base.impl().tokenizer, options, args.data));
  Lengths out;
  out.window = static_cast<size_t>(base.window());
  size_t total = 0;
  for (const EncodedExample& e : encoded.examples) {
    total += e.ids.size();
    out.too_long += e.ids.size() > args.max_len;
    out.beyond_window += e.ids.size() > out.window;
  }
  out.longest = encoded.longest;
  if (!encoded.examples.empty())
    out.mean = static_cast<double>(total) / static_cast<double>(encoded.examples.size());
  return out;
}

void Print(const Summary& s, const CheckArgs& args) {
  const size_t n = s.data.examples.size();
  PrintLine("data", fmt::format("{} usable examples  {} lines  {} blank  {} with problems", n,
                                s.data.lines, s.data.blank, s.data.skipped));
  PrintLine(
      "refusals",
      fmt::format("{} ({:.0f} %)", s.refusals,
                  n == 0 ? 0.0 : 100.0 * static_cast<double>(s.refusals) / static_cast<double>(n)));
  for (const auto& [tool, count] : s.calls)
    PrintLine("calls", fmt::format("{:>6}  {}", count, tool));
  if (s.lengths) {
    const Lengths& l = *s.lengths;
    PrintLine("tokens",
              fmt::format("longest {}  mean {:.0f}  over --max-len {}: {}  beyond the "
                          "archive's window {}: {}",
                          l.longest, l.mean, args.max_len, l.too_long, l.window, l.beyond_window));
  }
  for (const DataProblem& problem : s.data.problems) PrintLine("problem", problem.message);
  for (size_t i = 0; i < s.notes.size() && i < kListedNotes; ++i) PrintNote(s.notes[i].message);
  if (s.notes.size() > kListedNotes)
    PrintNote(fmt::format("and {} more lines like these (--json lists all)",
                          s.notes.size() - kListedNotes));
  if (n > 0 && s.refusals == 0)
    PrintNote(
        "no example refuses; a model that has never seen \"answers\": [] calls something for "
        "every sentence");
}

Value Document(const Summary& s) {
  const auto count = [](size_t v) { return Value::Int(static_cast<int64_t>(v)); };
  const auto listed = [&](const std::vector<DataProblem>& from) {
    std::vector<Value> list;
    list.reserve(from.size());
    for (const DataProblem& problem : from)
      list.push_back(Value::Object(
          {{"line", count(problem.line)}, {"message", Value::String(problem.message)}}));
    return Value::Array(std::move(list));
  };
  Value calls = Value::Object();
  for (const auto& [tool, n] : s.calls) calls.Set(tool, count(n));
  Value lengths;
  if (s.lengths)
    lengths = Value::Object({{"longest", count(s.lengths->longest)},
                             {"mean", Value::Float(s.lengths->mean)},
                             {"over_max_len", count(s.lengths->too_long)},
                             {"window", count(s.lengths->window)},
                             {"beyond_window", count(s.lengths->beyond_window)}});
  return Value::Object({{"file", Value::String(s.data.name)},
                        {"lines", count(s.data.lines)},
                        {"blank", count(s.data.blank)},
                        {"examples", count(s.data.examples.size())},
                        {"skipped", count(s.data.skipped)},
                        {"refusals", count(s.refusals)},
                        {"with_system", count(s.with_system)},
                        {"calls", std::move(calls)},
                        {"tokens", std::move(lengths)},
                        {"problems", listed(s.data.problems)},
                        {"notes", listed(s.notes)}});
}

Status Run(const CheckArgs& args) {
  NEEDLE_ASSIGN(const std::string text, ReadTextFile(args.data));
  Summary summary = Summarise(ReadData(text, args.data));
  if (args.with_lengths) {
    NEEDLE_ASSIGN(summary.lengths.emplace(), Measure(args, summary.data));
  }
  Print(summary, args);
  if (JsonMode()) PrintJson(Document(summary));
  const bool too_long = summary.lengths && summary.lengths->too_long > 0;
  const size_t found = summary.data.problems.size() + summary.notes.size();
  if (args.strict && (found > 0 || too_long))
    return Error(
        Code::kCheckFailed,
        StrCat(args.data, ": ", found, found == 1 ? " problem" : " problems",
               too_long ? StrCat(", ", summary.lengths->too_long, " examples too long") : ""));
  if (summary.data.examples.empty())
    return Error(Code::kInvalidArgument,
                 StrCat("no usable examples in ", args.data,
                        "; each line is a JSON object with \"query\", \"tools\" and \"answers\""));
  return {};
}

}  // namespace

void AddData(Options& app, Command* chosen) {
  Options data = app.Group("data", "Work on data files");
  auto args = std::make_shared<CheckArgs>();
  args->base.checkpoint.clear();
  Options c = data.Group("check", "List what a data file holds and its problems");
  c.Add("data", &args->data, "JSONL file (docs/data.md)").Required();
  const Option checkpoint = c.Add("--checkpoint", &args->base.checkpoint,
                                  "count tokens for this base: a file or \"bundled\"");
  c.AddTokenizer(&args->base.tokenizer);
  const Option max_len = c.Add("--max-len", &args->max_len, "most tokens of an example").Positive();
  c.Flag("--strict", &args->strict,
         "exit with 3 when there is a problem, or an answer that the engine could never write");
  c.AddJson();
  c.Runs(chosen, [args, checkpoint, max_len] {
    args->with_lengths = checkpoint.given();
    if (max_len.given() && !args->with_lengths)
      return Status(Error(Code::kInvalidArgument,
                          "--max-len needs --checkpoint: tokens are counted for a base, such as "
                          "--checkpoint bundled"));
    return Run(*args);
  });
}

}  // namespace needle::cli
