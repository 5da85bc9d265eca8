// The command line: one file a subcommand. This folder is the one place that prints and exits.
// Lines of a command's progress go to stdout as upstream prints them; with --json stdout holds one
// JSON document and the lines go to stderr.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "json/json.h"
#include "needle/needle.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace needle::cli {

/// What every command returns: success, or the error that main prints and turns into an exit
/// status.
using Command = std::function<Status()>;

// ---- the command line's grammar (options.cc; no other file needs the parser's headers)

/// One option, for what is said about it after Add.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& Required();
  Option& Positive();                             // > 0, and finite
  Option& NotNegative();                          // >= 0, and finite
  Option& Between(double low, double high);       // both included
  Option& OneOf(std::vector<std::string> words);  // errors list them
  Option& MayBeEmpty();  // a text that may be ""; every other option refuses that
  Option& Excludes(const Option& other);
  /// What the help shows as the default, where the value's own text is not it.
  Option& Default(const std::string& text);
  /// Whether the command line has it; asked when the command runs.
  bool given() const;

 private:
  CLI::Option* option_;
};

/// A command's options. Values must live as long as the command (see AddCommand).
class Options {
 public:
  explicit Options(CLI::App* app) : app_(app) {}
  /// "name" is a positional argument, "--name" an option. The help shows the initial value.
  Option Add(const std::string& name, std::string* value, const std::string& help);
  Option Add(const std::string& name, int* value, const std::string& help);
  Option Add(const std::string& name, long* value, const std::string& help);           // NOLINT
  Option Add(const std::string& name, long long* value, const std::string& help);      // NOLINT
  Option Add(const std::string& name, unsigned long* value, const std::string& help);  // NOLINT
  Option Add(const std::string& name, unsigned long long* value,
             const std::string& help);  // NOLINT
  Option Add(const std::string& name, float* value, const std::string& help);
  Option Add(const std::string& name, double* value, const std::string& help);
  Option Flag(const std::string& name, bool* value, const std::string& help);
  /// --json, --threads N (0: all), --tokenizer FILE.
  void AddJson();
  void AddThreads(int* threads);
  void AddTokenizer(std::string* tokenizer);
  /// A command below this one, which then only groups.
  Options Group(const std::string& name, const std::string& help);
  /// A command that the program gives to itself; the help does not show it.
  Options Hidden(const std::string& name);
  /// What happens when the command is picked.
  void Runs(Command* chosen, Command command);

 private:
  CLI::App* app_;
};

/// Each declares its subcommand on `app`, a group, and sets `*chosen` when it is picked.
void AddInit(Options& app, Command* chosen);
void AddFinetune(Options& app, Command* chosen);
void AddBuild(Options& app, Command* chosen);
void AddEval(Options& app, Command* chosen);
void AddRun(Options& app, Command* chosen);
void AddVerify(Options& app, Command* chosen);
void AddInspect(Options& app, Command* chosen);
void AddDownload(Options& app, Command* chosen);
void AddData(Options& app, Command* chosen);
void AddPretrain(Options& app, Command* chosen);
void AddDevices(Options& app, Command* chosen);
void AddDoctor(Options& app, Command* chosen);

/// Parses and picks. nullopt: go on with the chosen command; else the program's exit status.
std::optional<int> ParseCommandLine(int argc, char** argv, Command* chosen);
/// Says what went wrong, on stderr and, with --json, in the document; gives `status` back.
int Fail(const std::string& message, int status);

/// What is printed is UTF-8; a Windows console must be told so.
void UseUtf8Console();

/// The exit status of an error: 2 for input and files, 3 for a check that did not hold, else 1.
int ExitStatus(Code code);

// ---- output

/// Whether --json was given.
bool JsonMode();
void SetJsonMode();
/// True once PrintJson was called.
bool JsonPrinted();
/// The command's one JSON document.
void PrintJson(const json::Value& document);
/// "  label     payload": two spaces, the label padded to 9, one space (upstream's lines).
void PrintLine(std::string_view label, std::string_view payload);
/// Text for people: stdout, or stderr with --json.
void PrintText(std::string_view text);
/// Whether something printed did not reach stdout (a full disk, a closed pipe).
bool OutputLost();
/// A sentence that a person should know, on stderr.
void PrintNote(std::string_view sentence);

/// A line that is written over again and again, on stderr when that is a terminal, else nowhere.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { Clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  /// At most ten times a second.
  void Show(const std::string& text);
  /// Takes the line away, so that other text can be printed.
  void Clear();
  bool visible() const { return terminal_; }

 private:
  bool terminal_;
  bool shown_ = false;
  double last_ = 0;
};
/// "[#####.....] 12/144"
std::string Bar(int64_t done, int64_t total);
/// "41 s", "3 min 05 s", "2 h 10 min"
std::string Duration(double seconds);
/// Seconds on a clock that never goes back.
double Now();

/// True once the person has asked to stop (SIGINT or SIGTERM); a second signal ends the process.
bool StopRequested();
void CatchStopSignals();
/// A reader that closes stdout (`| head`) ends printing, not the work; see OutputLost.
void OutliveClosedPipes();
bool StdinIsTerminal();

/// An error when a file to write is one of the files to read (names left empty do not count).
Status RefuseOverwriting(const std::vector<std::string>& written,
                         const std::vector<std::string>& read);

/// Before any work: each output can be written (what lies in /dev is taken to be), none is an
/// input, and no two are one file. Names left empty do not count. What both functions find exits
/// with 2.
Status CheckOutputs(const std::vector<std::string>& written, const std::vector<std::string>& read);

// ---- bases

struct BaseArgs {
  std::string checkpoint = std::string(kDefaultCheckpoint);
  std::string tokenizer;
};
/// Loads a base, shows downloads, and prints which tokenizer is used.
Result<BaseModel> LoadBase(const BaseArgs& args);
/// What a download tells and asks while it runs.
void ShowDownloads(LoadOptions* options);
/// What --device asks for, opened; plugins are tried in a child of this program first.
Result<Device> OpenDevice(const std::string& device);

}  // namespace needle::cli
