// Child processes, and what a process knows of itself.
// Errors: kNotFound or kIo with the system's reason. Thread-safety: SetEnv as setenv, so before
// other threads start; the rest is safe.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace needle {

/// How a child ended, and what it wrote (each at most 1 MiB, the rest is dropped).
struct ChildOutcome {
  std::optional<int> exit_code;  // nullopt: ended by a signal, or by us after the time-out
  int signal = 0;                // POSIX: the signal that ended it; 0 else
  bool timed_out = false;
  std::string out, err;
};

/// "exited with status 3", "was ended by signal 6 (Aborted)", "did not answer and was stopped".
std::string Describe(const ChildOutcome& outcome);

struct ChildOptions {
  double timeout_seconds = 30;                                   // then it is killed
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
};

/// Runs `command` (the program, then its arguments; no shell), with nothing on its standard input,
/// and waits for its end.
Result<ChildOutcome> RunChild(const std::vector<std::string>& command, const ChildOptions& options);

/// The arguments that main was given, the program first, in UTF-8: on Windows `argv` holds them in
/// the user's code page, which has not every character, so they are asked for anew.
std::vector<std::string> ProgramArguments(int argc, char** argv);

/// The file of the running program.
Result<std::string> ProgramPath();

/// Sets a variable of this process's environment (and of later children).
void SetEnv(const std::string& name, const std::string& value);
/// The whole environment, in its order.
std::vector<std::pair<std::string, std::string>> Environment();

}  // namespace needle
