#include "eval/score.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "base/str_cat.h"
#include "runtime/output.h"

namespace needle {
namespace {

constexpr size_t kSmallSet = 30;
constexpr size_t kBatch = 16;  // rows of one context that a session takes at once

const std::string& ToolOf(const json::Value& call) { return call.Find("name")->as_string(); }

bool SameTools(const json::Value& a, const json::Value& b) {
  return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                    [](const auto& x, const auto& y) { return ToolOf(x) == ToolOf(y); });
}

/// Row numbers that share system and tools, at most kBatch of them.
using Batch = std::vector<size_t>;

std::vector<Batch> ByContext(const std::vector<DataExample>& examples) {
  std::map<std::pair<std::string_view, std::string_view>, Batch> groups;
  for (size_t i = 0; i < examples.size(); ++i)
    groups[{examples[i].tools_text, examples[i].system}].push_back(i);
  std::vector<Batch> batches;
  for (const auto& group : groups)
    for (size_t i = 0; i < group.second.size(); ++i) {
      if (i % kBatch == 0) batches.emplace_back();
      batches.back().push_back(group.second[i]);
    }
  return batches;
}

RowScore ScoreRow(Session& session, const DataExample& example, const CompleteOptions& options) {
  RowScore row;
  row.line = example.line;
  row.query = example.query;
  const auto failed = [&](const Error& error) {
    row.outcome = Outcome::kError;
    row.error = error.message();
    return row;
  };
  Result<json::Value> expected = ParseCalls(example.answers);
  if (!expected.ok()) return failed(expected.error());
  row.expected = std::move(*expected);
  // As text: the prompt of training holds the tools just so.
  const Result<size_t> context =
      session.SetContext(example.system, json::Value::String(example.tools_text));
  if (!context.ok()) return failed(context.error());
  Result<Completion> completion = session.Complete(example.query, options);
  if (!completion.ok()) return failed(completion.error());
  row.got = std::move(completion->calls);
  row.text = std::move(completion->text);
  row.error = std::move(completion->error);
  row.tokens = completion->tokens.size();
  if (completion->truncated()) {
    row.outcome = Outcome::kTruncated;
  } else if (completion->type == CompletionType::kRespond) {
    row.outcome = Outcome::kMalformed;
    if (row.error.empty()) row.error = "the answer has no list of calls";
  } else {
    row.outcome = Judge(row.expected, row.got);
  }
  return row;
}

std::vector<std::string> Notes(const EvalReport& report) {
  std::vector<std::string> notes;
  const size_t n = report.rows.size();
  if (n == 0) return {"there are no rows to score"};
  if (n < kSmallSet)
    notes.push_back(StrCat("only ", n, " rows: one row moves the accuracy by ",
                           std::round(1000.0 / static_cast<double>(n)) / 10,
                           " points; collect at least ", kSmallSet, " before trusting it"));
  if (report.refusals_wanted() == 0)
    notes.push_back("no row wants a refusal (\"answers\": []), so false alarms cannot be seen");
  if (report.calls_wanted() == 0) notes.push_back("every row wants a refusal");
  if (const size_t cut = report.Count(Outcome::kTruncated); cut > 0)
    notes.push_back(
        StrCat(cut, cut == 1 ? " answer" : " answers",
               " did not end within the token budget; a longer budget may change them"));
  for (const RowScore& row : report.rows) {
    if (row.outcome != Outcome::kError) continue;
    notes.push_back(StrCat(report.Count(Outcome::kError), " of the rows could not be run; line ",
                           row.line, ": ", row.error));
    break;
  }
  return notes;
}

}  // namespace

std::string_view Name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kExact:
      return "exact";
    case Outcome::kWrongArguments:
      return "wrong arguments";
    case Outcome::kWrongCalls:
      return "wrong calls";
    case Outcome::kFalseAlarm:
      return "false alarm";
    case Outcome::kMiss:
      return "miss";
    case Outcome::kTruncated:
      return "truncated";
    case Outcome::kMalformed:
      return "malformed";
    case Outcome::kError:
      break;
  }
  return "error";
}

size_t EvalReport::Count(Outcome outcome) const {
  return static_cast<size_t>(std::count_if(
      rows.begin(), rows.end(), [&](const RowScore& row) { return row.outcome == outcome; }));
}

double EvalReport::accuracy() const {
  return rows.empty() ? 0 : static_cast<double>(exact()) / static_cast<double>(rows.size());
}

size_t EvalReport::refusals_wanted() const {
  return static_cast<size_t>(std::count_if(
      rows.begin(), rows.end(), [](const RowScore& row) { return row.expected.items().empty(); }));
}

size_t EvalReport::refusals_right() const {
  return static_cast<size_t>(std::count_if(rows.begin(), rows.end(), [](const RowScore& row) {
    return row.outcome == Outcome::kExact && row.expected.items().empty();
  }));
}

Outcome Judge(const json::Value& expected, const json::Value& got) {
  if (json::Equal(expected, got)) return Outcome::kExact;
  if (expected.items().empty()) return Outcome::kFalseAlarm;
  if (got.items().empty()) return Outcome::kMiss;
  return SameTools(expected, got) ? Outcome::kWrongArguments : Outcome::kWrongCalls;
}

EvalReport ScoreExamples(const std::shared_ptr<const Engine>& engine,
                         const std::vector<DataExample>& examples, const ScoreOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  EvalReport report;
  report.rows.resize(examples.size());
  const std::vector<Batch> batches = ByContext(examples);
  std::atomic<size_t> next{0};
  std::mutex mutex;  // of done, exact and the progress call
  size_t done = 0, exact = 0;
  const auto work = [&] {
    Session session(engine);
    for (size_t b = next++; b < batches.size(); b = next++) {
      for (const size_t i : batches[b]) {
        report.rows[i] = ScoreRow(session, examples[i], options.complete);
        const std::lock_guard<std::mutex> lock(mutex);
        ++done;
        if (report.rows[i].outcome == Outcome::kExact) ++exact;
        if (options.progress) options.progress(done, examples.size(), exact);
      }
    }
  };
  std::vector<std::thread> others;
  const size_t sessions = std::min<size_t>(std::max(options.sessions, 1), batches.size());
  for (size_t s = 1; s < sessions; ++s) others.emplace_back(work);
  work();
  for (std::thread& other : others) other.join();
  Summarise(&report);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

void Summarise(EvalReport* report) {
  std::map<std::string, ToolScore> tools;
  for (const RowScore& row : report->rows) {
    const auto& wanted = row.expected.items();
    const auto& got = row.got.items();
    for (size_t i = 0; i < std::max(wanted.size(), got.size()); ++i) {
      const bool same = i < wanted.size() && i < got.size() && ToolOf(wanted[i]) == ToolOf(got[i]);
      if (i < got.size() && !same) ++tools[ToolOf(got[i])].unwanted;
      if (i >= wanted.size()) continue;
      ToolScore& tool = tools[ToolOf(wanted[i])];
      ++tool.support;
      if (i >= got.size()) {
        ++tool.missing;
      } else if (!same) {
        ++tool.wrong_name;
      } else {
        ++(json::Equal(wanted[i], got[i]) ? tool.exact : tool.wrong_arguments);
      }
    }
  }
  report->tools.clear();
  for (auto& [name, tool] : tools) {
    tool.name = name;
    report->tools.push_back(tool);
  }
  report->notes = Notes(*report);
}

Result<PairedComparison> Compare(const EvalReport& first, const EvalReport& second) {
  const bool same = std::equal(first.rows.begin(), first.rows.end(), second.rows.begin(),
                               second.rows.end(), [](const RowScore& a, const RowScore& b) {
                                 return a.line == b.line && a.query == b.query &&
                                        json::Equal(a.expected, b.expected);
                               });
  if (!same)
    return Error(Code::kInvalidArgument,
                 StrCat("the two models were scored on different rows (", first.rows.size(),
                        " and ", second.rows.size(), "); score both on the same file"));
  PairedComparison out;
  for (size_t i = 0; i < first.rows.size(); ++i) {
    const bool a = first.rows[i].outcome == Outcome::kExact;
    const bool b = second.rows[i].outcome == Outcome::kExact;
    ++(a && b ? out.both : a ? out.only_first : b ? out.only_second : out.neither);
  }
  out.p_value = McNemarExact(out.only_first, out.only_second);
  return out;
}

double McNemarExact(size_t b, size_t c) {
  const auto n = static_cast<double>(b + c);
  double tail = 0;  // P(X <= min(b, c)), X binomial(n, 1/2)
  for (size_t i = 0; i <= std::min(b, c); ++i) {
    const auto k = static_cast<double>(i);
    tail += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) -
                     n * std::log(2.0));
  }
  return std::min(1.0, 2 * tail);
}

std::pair<double, double> WilsonInterval(size_t successes, size_t trials) {
  if (trials == 0) return {0, 1};
  constexpr double kZ = 1.959963984540054;  // 97.5 % point of the normal distribution
  const auto n = static_cast<double>(trials);
  const double p = static_cast<double>(successes) / n, z2 = kZ * kZ;
  const double centre = (p + z2 / (2 * n)) / (1 + z2 / n);
  const double half = kZ / (1 + z2 / n) * std::sqrt(p * (1 - p) / n + z2 / (4 * n * n));
  return {std::max(0.0, centre - half), std::min(1.0, centre + half)};
}

}  // namespace needle
