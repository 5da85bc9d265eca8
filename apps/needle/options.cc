// The parser of the command line, seen by this file alone.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/parse_integer.h"
#include "needle/command.h"

namespace needle::cli {
namespace {

void AddCommands(Options& app, Command* chosen) {
  AddInit(app, chosen);
  AddFinetune(app, chosen);
  AddBuild(app, chosen);
  AddEval(app, chosen);
  AddRun(app, chosen);
  AddVerify(app, chosen);
  AddInspect(app, chosen);
  AddDownload(app, chosen);
  AddData(app, chosen);
  AddPretrain(app, chosen);
  AddDevices(app, chosen);
  AddDoctor(app, chosen);
}

template <class T>
CLI::Option* AddTo(CLI::App* app, const std::string& name, T* value, const std::string& help) {
  return app->add_option(name, *value, help)->take_last()->capture_default_str();
}

/// Refuses what the parser would turn into another number: "-1", or one beyond T.
template <class T>
Option WholeNumber(CLI::Option* option) {
  option->check([](const std::string& text) {
    if (ParseInteger<T>(text)) return std::string();
    return fmt::format("\"{}\" is no whole number from 0 to {}", text,
                       std::numeric_limits<T>::max());
  });
  return Option(option);
}

/// Whether `text` is a number of which `holds` is true; NaN never is.
template <class Holds>
bool InRange(const std::string& text, const Holds& holds) {
  double value = 0;
  return CLI::detail::lexical_cast(text, value) && holds(value);
}

}  // namespace

Option& Option::Required() {
  option_->required();
  option_->default_str("");
  return *this;
}
Option& Option::Positive() {
  option_->check([](const std::string& text) {
    return InRange(text, [](double v) { return v > 0 && std::isfinite(v); })
               ? std::string()
               : fmt::format("\"{}\" is no number above 0", text);
  });
  return *this;
}
Option& Option::NotNegative() {
  option_->check([](const std::string& text) {
    return InRange(text, [](double v) { return v >= 0 && std::isfinite(v); })
               ? std::string()
               : fmt::format("\"{}\" is no number from 0 up", text);
  });
  return *this;
}
Option& Option::Between(double low, double high) {
  option_->check(CLI::Range(low, high));
  option_->check([](const std::string& text) {  // a NaN is outside no range
    double value = 0;
    const bool nan = CLI::detail::lexical_cast(text, value) && std::isnan(value);
    return nan ? fmt::format("\"{}\" is no number", text) : std::string();
  });
  return *this;
}
Option& Option::OneOf(std::vector<std::string> words) {
  option_->check(CLI::IsMember(std::move(words)));
  return *this;
}
Option& Option::MayBeEmpty() {
  option_->get_validator("not-empty")->active(false);
  return *this;
}
Option& Option::Excludes(const Option& other) {
  option_->excludes(other.option_);
  return *this;
}
Option& Option::Default(const std::string& text) {
  option_->default_str(text);
  return *this;
}
bool Option::given() const { return option_->count() > 0; }

Option Options::Add(const std::string& name, std::string* value, const std::string& help) {
  CLI::Option* option = app_->add_option(name, *value, help)->take_last();  // as argparse does
  if (!value->empty()) option->capture_default_str();
  // An empty value is most often a script's unset variable; it must not quietly mean the default.
  option->check(CLI::Validator(
      [](const std::string& text) {
        return text.empty() ? std::string("an empty text; give a value, or leave the option out")
                            : std::string();
      },
      "", "not-empty"));
  return Option(option);
}
Option Options::Add(const std::string& name, int* value, const std::string& help) {
  return Option(AddTo(app_, name, value, help));
}
Option Options::Add(const std::string& name, long* value, const std::string& help) {  // NOLINT
  return Option(AddTo(app_, name, value, help));
}
Option Options::Add(const std::string& name, long long* value, const std::string& help) {  // NOLINT
  return Option(AddTo(app_, name, value, help));
}
Option Options::Add(const std::string& name, unsigned long* value,  // NOLINT
                    const std::string& help) {
  return WholeNumber<unsigned long>(AddTo(app_, name, value, help));  // NOLINT
}
Option Options::Add(const std::string& name, unsigned long long* value,  // NOLINT
                    const std::string& help) {
  return WholeNumber<unsigned long long>(AddTo(app_, name, value, help));  // NOLINT
}
Option Options::Add(const std::string& name, float* value, const std::string& help) {
  return Option(AddTo(app_, name, value, help));
}
Option Options::Add(const std::string& name, double* value, const std::string& help) {
  return Option(AddTo(app_, name, value, help));
}
Option Options::Flag(const std::string& name, bool* value, const std::string& help) {
  return Option(app_->add_flag(name, *value, help));
}

void Options::AddJson() {
  app_->add_flag_callback("--json", SetJsonMode,
                          "print one JSON document on stdout; everything else goes to stderr");
}

void Options::AddThreads(int* threads) {
  Add("--threads", threads, "threads; 0: all that the process may use").Between(0, 1024);
}

void Options::AddTokenizer(std::string* tokenizer) {
  Add("--tokenizer", tokenizer,
      "tokenizer.model; default: the one beside the checkpoint, else the cached or downloaded one");
}

Options Options::Group(const std::string& name, const std::string& help) {
  app_->require_subcommand(0, 1);
  CLI::App* group = app_->add_subcommand(name, help);
  group->require_subcommand(0);
  return Options(group);
}

Options Options::Hidden(const std::string& name) {
  CLI::App* hidden = app_->add_subcommand(name, "");
  hidden->group("");
  return Options(hidden);
}

void Options::Runs(Command* chosen, Command command) {
  app_->callback([chosen, command = std::move(command)] { *chosen = command; });
}

int Fail(const std::string& message, int status) {
  std::fflush(stdout);
  const std::string line = fmt::format("needle: {}\n", message);
  std::fwrite(line.data(), 1, line.size(), stderr);
  if (JsonMode() && !JsonPrinted())
    PrintJson(json::Value::Object({{"success", json::Value::Bool(false)},
                                   {"error", json::Value::String(message)},
                                   {"exit_code", json::Value::Int(status)}}));
  return status;
}

std::optional<int> ParseCommandLine(int argc, char** argv, Command* chosen) {
  // Static, because a chosen command may still ask whether an option was given.
  static CLI::App app{"Fine-tune, score, build and run Needle tool-calling models.", "needle"};
  app.set_version_flag("--version", "needle " + std::string(Version()));
  Options options(&app);
  AddCommands(options, chosen);
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--json") SetJsonMode();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return Fail(fmt::format("{} (see needle --help)", error.what()), 2);
  }
  if (*chosen) return std::nullopt;
  const CLI::App* asked = &app;  // a bare "needle", or a group without its command
  while (!asked->get_subcommands().empty()) asked = asked->get_subcommands().front();
  PrintText(asked->help(asked == &app ? "" : "needle"));
  return asked == &app ? 0 : 2;
}

}  // namespace needle::cli
