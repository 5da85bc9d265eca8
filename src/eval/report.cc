#include "eval/report.h"

#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "base/utf8.h"

namespace needle {
namespace {

using json::Value;

Value Count(size_t n) { return Value::Int(static_cast<int64_t>(n)); }

Value TextOrNull(const std::string& text) {
  return text.empty() ? Value::Null() : Value::String(text);
}

Value ToolToJson(const ToolScore& tool) {
  return Value::Object({{"name", Value::String(tool.name)},
                        {"support", Count(tool.support)},
                        {"exact", Count(tool.exact)},
                        {"wrong_name", Count(tool.wrong_name)},
                        {"wrong_arguments", Count(tool.wrong_arguments)},
                        {"missing", Count(tool.missing)},
                        {"unwanted", Count(tool.unwanted)}});
}

Value RowToJson(const RowScore& row) {
  return Value::Object({{"line", Count(row.line)},
                        {"outcome", Value::String(std::string(Name(row.outcome)))},
                        {"query", Value::String(row.query)},
                        {"expected", row.expected},
                        {"got", row.got},
                        {"text", Value::String(row.text)},
                        {"error", TextOrNull(row.error)}});
}

Value SummaryToJson(const EvalReport& report) {
  const std::pair<double, double> interval = WilsonInterval(report.exact(), report.rows.size());
  std::vector<Value> tools, failures, notes;
  size_t tokens = 0;
  for (const ToolScore& tool : report.tools) tools.push_back(ToolToJson(tool));
  for (const std::string& note : report.notes) notes.push_back(Value::String(note));
  for (const RowScore& row : report.rows) {
    tokens += row.tokens;
    if (row.outcome != Outcome::kExact) failures.push_back(RowToJson(row));
  }
  Value calls = Value::Object({{"wanted", Count(report.calls_wanted())},
                               {"exact", Count(report.calls_right())},
                               {"misses", Count(report.Count(Outcome::kMiss))},
                               {"wrong_calls", Count(report.Count(Outcome::kWrongCalls))},
                               {"wrong_arguments", Count(report.Count(Outcome::kWrongArguments))}});
  Value refusals = Value::Object({{"wanted", Count(report.refusals_wanted())},
                                  {"exact", Count(report.refusals_right())},
                                  {"false_alarms", Count(report.Count(Outcome::kFalseAlarm))}});
  return Value::Object(
      {{"model", Value::String(report.model)},
       {"data", Value::String(report.data)},
       {"rows", Count(report.rows.size())},
       {"exact", Count(report.exact())},
       {"accuracy", Value::Float(report.accuracy())},
       {"interval95", Value::Array({Value::Float(interval.first), Value::Float(interval.second)})},
       {"calls", std::move(calls)},
       {"refusals", std::move(refusals)},
       {"truncated", Count(report.Count(Outcome::kTruncated))},
       {"malformed", Count(report.Count(Outcome::kMalformed))},
       {"errors", Count(report.Count(Outcome::kError))},
       {"tokens", Count(tokens)},
       {"seconds", Value::Float(report.seconds)},
       {"tools", Value::Array(std::move(tools))},
       {"failures", Value::Array(std::move(failures))},
       {"notes", Value::Array(std::move(notes))}});
}

std::string Percent(double share) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f %%", 100 * share);
  return text;
}

std::string Share(size_t part, size_t whole) {
  return whole == 0 ? std::string("none")
                    : StrCat(part, " of ", whole, " (",
                             Percent(static_cast<double>(part) / static_cast<double>(whole)), ")");
}

std::string Cells(const char* tag, const std::vector<std::string>& cells) {
  std::string out = "<tr>";
  for (const std::string& cell : cells)
    out += StrCat("<", tag, ">", EscapeHtml(cell), "</", tag, ">");
  return out + "</tr>\n";
}

std::string SummaryTable(const EvalReport& report) {
  const auto interval = WilsonInterval(report.exact(), report.rows.size());
  std::string out = "<table>\n";
  const auto line = [&](const char* label, const std::string& value) {
    out += StrCat("<tr><th>", label, "</th><td>", EscapeHtml(value), "</td></tr>\n");
  };
  line("exact", Share(report.exact(), report.rows.size()));
  line("95 % interval", Percent(interval.first) + " to " + Percent(interval.second));
  line("calls wanted, exact", Share(report.calls_right(), report.calls_wanted()));
  line("misses (no call where one was wanted)",
       Share(report.Count(Outcome::kMiss), report.calls_wanted()));
  line("refusals wanted, right", Share(report.refusals_right(), report.refusals_wanted()));
  line("false alarms (a call where none was wanted)",
       Share(report.Count(Outcome::kFalseAlarm), report.refusals_wanted()));
  for (const Outcome outcome : {Outcome::kWrongCalls, Outcome::kWrongArguments, Outcome::kTruncated,
                                Outcome::kMalformed, Outcome::kError})
    line(std::string(Name(outcome)).c_str(), StrCat(report.Count(outcome)));
  return out + "</table>\n";
}

std::string ToolTable(const EvalReport& report) {
  std::string out = "<h2>By tool</h2>\n<table>\n";
  out += Cells("th",
               {"tool", "wanted", "exact", "wrong name", "wrong arguments", "missing", "unwanted"});
  for (const ToolScore& tool : report.tools)
    out +=
        Cells("td", {tool.name, StrCat(tool.support), StrCat(tool.exact), StrCat(tool.wrong_name),
                     StrCat(tool.wrong_arguments), StrCat(tool.missing), StrCat(tool.unwanted)});
  return out + "</table>\n";
}

std::string Failures(const EvalReport& report) {
  std::string out = "<h2>Failures</h2>\n";
  if (report.exact() == report.rows.size()) return out + "<p>None.</p>\n";
  out += "<table>\n" + Cells("th", {"line", "kind", "query", "expected", "got"});
  for (const RowScore& row : report.rows) {
    if (row.outcome == Outcome::kExact) continue;
    const bool read = row.error.empty();
    out += Cells("td", {StrCat(row.line), std::string(Name(row.outcome)), row.query,
                        json::Dump(row.expected),
                        read ? json::Dump(row.got) : StrCat(row.error, "\n", row.text)});
  }
  return out + "</table>\n";
}

std::string ComparisonTable(const EvalReport& report, const EvalReport& against,
                            const PairedComparison& c) {
  std::string out = "<h2>Compared row by row</h2>\n<table>\n";
  out += Cells("th", {"", StrCat(against.model, " exact"), StrCat(against.model, " not")});
  out += Cells("td", {StrCat(report.model, " exact"), StrCat(c.both), StrCat(c.only_first)});
  out += Cells("td", {StrCat(report.model, " not"), StrCat(c.only_second), StrCat(c.neither)});
  char p[32];
  std::snprintf(p, sizeof p, "%.3g", c.p_value);
  return out + StrCat("</table>\n<p>", EscapeHtml(against.model), ": ",
                      Share(against.exact(), against.rows.size()),
                      " exact. McNemar's exact test: p = ", p, ".</p>\n");
}

constexpr const char* kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em}"
    "table{border-collapse:collapse;margin:1em 0}"
    "th,td{border:1px solid #8888;padding:.3em .6em;text-align:left;vertical-align:top;"
    "white-space:pre-wrap;overflow-wrap:anywhere}"
    ".note{border-left:4px solid #c80;padding-left:.6em}";

}  // namespace

std::string EscapeHtml(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const CodePoint point = DecodeUtf8(text, i);
    const bool control = point.value < 0x20 && point.value != '\n' && point.value != '\t';
    if (point.length == 0 || control || point.value == 0x7F) {
      out += "\xEF\xBF\xBD";
    } else if (point.value == '&') {
      out += "&amp;";
    } else if (point.value == '<') {
      out += "&lt;";
    } else if (point.value == '>') {
      out += "&gt;";
    } else if (point.value == '"') {
      out += "&quot;";
    } else if (point.value == '\'') {
      out += "&#39;";
    } else {
      out += text.substr(i, point.length);
    }
    i += point.length == 0 ? 1 : point.length;
  }
  return out;
}

json::Value ReportToJson(const EvalReport& report, const EvalReport* against,
                         const PairedComparison* comparison) {
  Value out = SummaryToJson(report);
  if (against == nullptr || comparison == nullptr) return out;
  out.Set("against", SummaryToJson(*against));
  out.Set("paired", Value::Object({{"both", Count(comparison->both)},
                                   {"only_first", Count(comparison->only_first)},
                                   {"only_second", Count(comparison->only_second)},
                                   {"neither", Count(comparison->neither)},
                                   {"p_value", Value::Float(comparison->p_value)}}));
  return out;
}

std::string ReportToHtml(const EvalReport& report, const EvalReport* against,
                         const PairedComparison* comparison) {
  std::string out = StrCat(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n",
      "<title>Tool calls of ", EscapeHtml(report.model), "</title>\n<style>", kStyle,
      "</style>\n</head>\n<body>\n<h1>Tool calls of ", EscapeHtml(report.model),
      "</h1>\n<p>Scored on ", EscapeHtml(report.data), ", ", report.rows.size(), " rows.</p>\n");
  for (const std::string& note : report.notes)
    out += StrCat("<p class=\"note\">Note: ", EscapeHtml(note), ".</p>\n");
  out += SummaryTable(report);
  if (against != nullptr && comparison != nullptr)
    out += ComparisonTable(report, *against, *comparison);
  return out + ToolTable(report) + Failures(report) + "</body>\n</html>\n";
}

}  // namespace needle
