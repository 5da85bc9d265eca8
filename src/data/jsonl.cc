#include "data/jsonl.h"

#include <set>

#include "base/file.h"
#include "base/str_cat.h"
#include "base/utf8.h"

namespace needle {
namespace {

constexpr size_t kListed = 20;  // problems that an error names one by one

/// Cuts off the first line of `text` by Python's universal newlines.
std::string_view TakeLine(std::string_view& text) {
  const size_t end = text.find_first_of("\r\n");
  const std::string_view line = text.substr(0, end);
  if (end == std::string_view::npos) {
    text = {};
  } else {
    text.remove_prefix(text.substr(end, 2) == "\r\n" ? end + 2 : end + 1);
  }
  return line;
}

const char* KindName(const json::Value& value) {
  switch (value.kind()) {
    case json::Kind::kNull:
      return "null";
    case json::Kind::kBool:
      return "true or false";
    case json::Kind::kInt:
    case json::Kind::kFloat:
      return "a number";
    case json::Kind::kString:
      return "a string";
    case json::Kind::kArray:
      return "a list";
    case json::Kind::kObject:
      break;
  }
  return "an object";
}

/// Turns one line into an example, or into problems.
class LineReader {
 public:
  LineReader(size_t line, const std::string& name, std::vector<DataProblem>& problems)
      : line_(line), name_(name), problems_(problems) {}

  std::optional<DataExample> Read(std::string_view text) {
    const size_t before = problems_.size();
    DataExample example = ReadObject(text);
    if (problems_.size() > before) return std::nullopt;
    return example;
  }

 private:
  template <class... Pieces>
  void Problem(const Pieces&... pieces) {
    problems_.push_back({line_, StrCat(name_, ":", line_, ": ", pieces...)});
  }

  DataExample ReadObject(std::string_view text) {
    DataExample example;
    if (const size_t valid = ValidUtf8Length(text); valid < text.size()) {
      Problem("byte ", valid, " of the line is not UTF-8; save the file as UTF-8");
      return example;
    }
    if (text.substr(0, 3) == "\xEF\xBB\xBF") {
      Problem("the line begins with a byte order mark; save the file as UTF-8 without one");
      return example;
    }
    const Result<json::Value> parsed = json::Parse(text);
    if (!parsed.ok()) {
      Problem("not valid JSON: ", parsed.error().message(),
              "; each line must be one whole JSON object");
      return example;
    }
    Fill(*parsed, example);
    return example;
  }

  void Fill(const json::Value& value, DataExample& example) {
    const Result<RenderedExample> rendered = RenderExample(value);
    if (!rendered.ok()) {
      const bool chat = value.Find("query") == nullptr && value.Find("messages") != nullptr;
      Problem(
          rendered.error().message(),
          chat ? " (a chat in \"messages\" is not read; put the user's text into \"query\")" : "");
      if (!value.is_object()) return;
    } else {
      example.text = *rendered;
      example.query = value.Find("query")->as_string();
      const json::Value* system = value.Find("system");
      if (system != nullptr) example.system = StripPython(system->as_string());
    }
    example.line = line_;
    example.row = static_cast<int32_t>(line_ - 1);
    const json::Value* tools = value.Find("tools");
    example.tools_text = tools == nullptr ? "[]" : RenderTools(*tools);
    const bool tools_read = ReadTools(tools, example.tools);
    const bool answers_read = ReadAnswers(value, example.answers);
    if (answers_read) CheckCalls(example.answers, tools_read ? &example.tools : nullptr);
  }

  /// A list, or a string that holds one as JSON. False after a problem.
  bool ReadList(const char* key, const json::Value& value, const char* fix, json::Value& list) {
    if (value.is_string()) {
      Result<json::Value> inner = json::Parse(value.as_string());
      if (inner.ok() && inner->is_array()) {
        list = std::move(inner).value();
        return true;
      }
      Problem("\"", key, "\" is a string that is not a JSON list; ", fix);
      return false;
    }
    if (!value.is_array()) {
      Problem("\"", key, "\" is ", KindName(value), "; ", fix);
      return false;
    }
    list = value;
    return true;
  }

  bool ReadTools(const json::Value* tools, json::Value& list) {
    list = json::Value::Array();
    if (tools == nullptr || tools->is_null()) return true;
    constexpr const char* kFix =
        "write a list of tools, each with a \"name\" and a JSON schema in \"parameters\"";
    if (!ReadList("tools", *tools, kFix, list)) return false;
    bool good = true;
    for (size_t i = 0; i < list.items().size(); ++i) {
      if (ToolName(list.items()[i])) continue;
      Problem("tool ", i + 1,
              " has no \"name\"; each tool needs a \"name\" and a JSON schema in "
              "\"parameters\" (an empty object is fine)");
      good = false;
    }
    return good;
  }

  bool ReadAnswers(const json::Value& line, json::Value& list) {
    list = json::Value::Array();
    const char* key = line.Find("answers") != nullptr ? "answers" : "function_calls";
    const json::Value* answers = line.Find(key);
    if (answers == nullptr) return true;
    return ReadList(key, *answers,
                    "write a list of calls, [{\"name\": ..., \"arguments\": {...}}], or [] when no "
                    "tool fits",
                    list);
  }

  /// `tools` is nullptr when they could not be read, so that nothing can be said about names.
  void CheckCalls(const json::Value& calls, const json::Value* tools) {
    std::set<std::string> declared;
    if (tools != nullptr)
      for (const json::Value& tool : tools->items()) declared.insert(*ToolName(tool));
    for (size_t i = 0; i < calls.items().size(); ++i)
      CheckCall(i + 1, calls.items()[i], tools == nullptr ? nullptr : &declared);
  }

  void CheckCall(size_t number, const json::Value& call, const std::set<std::string>* declared) {
    if (!call.is_object()) {
      Problem("call ", number, " is ", KindName(call),
              "; write {\"name\": ..., \"arguments\": {...}}");
      return;
    }
    const json::Value* name = call.Find("name");
    if (name == nullptr || !name->is_string()) {
      Problem("call ", number, " has no \"name\"; add the name of the tool that it calls");
    } else if (declared != nullptr && declared->count(name->as_string()) == 0) {
      Problem("call ", number, " is to \"", name->as_string(), "\", which this line's \"tools\" ",
              declared->empty() ? "do not declare (there are none)" : "do not declare",
              "; declare it there, or correct the name");
    }
    const json::Value* arguments = call.Find("arguments");
    if (arguments == nullptr) {
      Problem("call ", number, " has no \"arguments\"; add them, {} when there are none");
    } else if (!arguments->is_object()) {
      Problem("the \"arguments\" of call ", number, " are ", KindName(*arguments),
              "; write an object, {\"parameter\": value}");
    }
  }

  size_t line_;
  const std::string& name_;
  std::vector<DataProblem>& problems_;
};

}  // namespace

std::optional<std::string> ToolName(const json::Value& tool) {
  const json::Value* name = tool.Find("name");
  const json::Value* function = tool.Find("function");
  if (name == nullptr && function != nullptr) name = function->Find("name");
  if (name == nullptr || !name->is_string() || name->as_string().empty()) return std::nullopt;
  return name->as_string();
}

DataReport ReadData(std::string_view text, const std::string& name) {
  DataReport report;
  report.name = name;
  while (!text.empty()) {
    const std::string_view line = StripPython(TakeLine(text));
    ++report.lines;
    if (line.empty()) {
      ++report.blank;
      continue;
    }
    auto example = LineReader(report.lines, name, report.problems).Read(line);
    if (example)
      report.examples.push_back(std::move(*example));
    else
      ++report.skipped;
  }
  return report;
}

/// The first problems, a line each.
std::string ListOfProblems(const DataReport& report) {
  std::string list;
  for (size_t i = 0; i < report.problems.size() && i < kListed; ++i)
    list += StrCat("\n  ", report.problems[i].message);
  if (report.problems.size() > kListed)
    list += StrCat("\n  ... and ", report.problems.size() - kListed, " more problems");
  return list;
}

Status StopAtProblems(const DataReport& report) {
  if (report.problems.empty()) return {};
  std::string message =
      StrCat(report.name, ": ", report.skipped, " of ", report.lines,
             report.lines == 1 ? " line" : " lines", " cannot be used:", ListOfProblems(report));
  message += "\nCorrect these lines, or leave them out with --skip-bad.";
  return Error(Code::kInvalidArgument, message);
}

Result<DataReport> LoadData(const std::string& path, BadLines policy) {
  NEEDLE_ASSIGN(const std::string text, ReadTextFile(path));
  DataReport report = ReadData(text, path);
  if (policy == BadLines::kStop) NEEDLE_TRY(StopAtProblems(report));
  if (report.examples.empty())
    return Error(Code::kInvalidArgument,
                 StrCat("no usable examples in ", path, " (", report.lines, " lines, ",
                        report.blank, " of them blank, ", report.skipped,
                        " with problems); each line is a JSON object with \"query\", \"tools\" and "
                        "\"answers\"",
                        ListOfProblems(report)));
  return report;
}

}  // namespace needle
