// Test support: a started program on POSIX systems. apps/program.h includes it.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "apps/finished.h"

namespace needle::test {

constexpr bool kCanInterrupt = true;

/// A started program; ended at the latest with this object.
class Running {
 public:
  Running(const std::string& folder, const Arguments& arguments, const Variables& variables = {})
      : out_(folder + "/.stdout"), err_(folder + "/.stderr") {
    pid_ = fork();
    if (pid_ == 0) Become(folder, arguments, variables);
  }
  ~Running() {
    if (pid_ > 0) Kill(), Wait();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void Kill() { kill(pid_, SIGKILL); }
  void Interrupt() { kill(pid_, SIGINT); }
  bool Ended() {
    if (pid_ <= 0) return true;
    if (waitpid(pid_, &state_, WNOHANG) != pid_) return false;
    pid_ = -1;
    return true;
  }
  Finished Wait() {
    if (pid_ > 0) waitpid(pid_, &state_, 0);
    pid_ = -1;
    Finished f;
    f.status = WIFEXITED(state_) ? WEXITSTATUS(state_) : 128 + WTERMSIG(state_);
    f.out = Contents(out_);
    f.err = Contents(err_);
    return f;
  }

 private:
  [[noreturn]] void Become(const std::string& folder, const Arguments& arguments,
                           const Variables& variables) {
    if (chdir(folder.c_str()) != 0) _exit(126);
    Redirect("/dev/null", O_RDONLY, 0);
    if (access(".stdin", R_OK) == 0) Redirect(".stdin", O_RDONLY, 0);
    Redirect(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 1);
    Redirect(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 2);
    for (const char* name : kUnsetVariables) unsetenv(name);
    for (const auto& [name, value] : DefaultVariables(folder))
      setenv(name.c_str(), value.c_str(), 1);
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> argv = {const_cast<char*>("needle")};
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    execv(NEEDLE_PROGRAM, argv.data());
    _exit(127);
  }
  static void Redirect(const char* path, int flags, int to) {
    const int file = open(path, flags, 0600);
    if (file < 0 || dup2(file, to) < 0) _exit(126);
    close(file);
  }

  std::string out_, err_;
  pid_t pid_ = -1;
  int state_ = 0;
};

}  // namespace needle::test
