// Test support: runs the program in a folder of its own, as a person would.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/scratch.h"

namespace needle::test {

using Arguments = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

inline std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return std::move(out).str();
}

inline void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline bool Exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

struct Finished {
  int status = -1;  // exit status, or 128 + the signal that ended it
  std::string out, err;
};

/// A started program; ended at the latest with this object.
class Running {
 public:
  Running(const std::string& folder, const Arguments& arguments, const Variables& variables = {})
      : out_(folder + "/.stdout"), err_(folder + "/.stderr") {
    pid_ = fork();
    if (pid_ == 0) Become(folder, arguments, variables);
  }
  ~Running() {
    if (pid_ > 0) Kill(SIGKILL), Wait();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void Kill(int signal) { kill(pid_, signal); }
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
    for (const char* name : {"JAX_PLATFORMS", "HF_TOKEN", "HF_HUB_CACHE", "NEEDLE_FAULT",
                             "PJRT_NAMES_AND_LIBRARY_PATHS", "XLA_FLAGS", "PYTHONPATH"})
      unsetenv(name);
    setenv("NEEDLE_DEVICE", "cpu", 1);  // whatever this machine has
    setenv("NEEDLE_CACHE_DIR", (folder + "/cache").c_str(), 1);
    setenv("HF_HOME", (folder + "/hub").c_str(), 1);  // no test looks into the user's cache
    setenv("HF_HUB_OFFLINE", "1", 1);
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

inline Finished Run(const std::string& folder, const Arguments& arguments,
                    const Variables& variables = {}) {
  return Running(folder, arguments, variables).Wait();
}

inline Arguments With(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// A folder with a tiny base, its tokenizer and a data file.
class Workplace {
 public:
  Workplace() {
    const std::string golden = NEEDLE_GOLDEN_DIR;
    Write(File("base.pkl"), Contents(golden + "/tiny/tiny.pkl"));
    Write(File("tokenizer.model"), Contents(golden + "/text/tokenizer_1024.model"));
    std::string data;
    for (int i = 0; i < 12; ++i) data += Line("set the lamp to " + std::to_string(7 * i), 7 * i);
    data += R"({"query":"tell me a joke","tools":)" + Tools() + R"(,"answers":[]})" + "\n";
    Write(File("data.jsonl"), data);
    Write(File("tools.json"), Tools());
  }
  static std::string Tools() {
    return R"([{"name":"set_lamp","parameters":{"type":"object","properties":)"
           R"({"level":{"type":"integer"}},"required":["level"]}}])";
  }
  static std::string Line(const std::string& query, int level) {
    return R"({"query":")" + query + R"(","tools":)" + Tools() +
           R"(,"answers":[{"name":"set_lamp","arguments":{"level":)" + std::to_string(level) +
           "}}]}\n";
  }
  const std::string& folder() const { return scratch_.path(); }
  std::string File(const std::string& name) const { return scratch_.File(name); }
  Finished Needle(const Arguments& arguments, const Variables& variables = {}) const {
    return Run(folder(), arguments, variables);
  }
  /// Arguments of a short fine-tuning run.
  static Arguments Finetune(const Arguments& more = {}) {
    return With({"finetune", "data.jsonl", "--checkpoint", "base.pkl", "--out", "a.pkl", "--epochs",
                 "2", "--batch-size", "4", "--lr", "5e-3", "--lora-rank", "4", "--lora-alpha", "8",
                 "--threads", "1"},
                more);
  }
  /// And of training all parameters.
  static Arguments Pretrain(const Arguments& more = {}) {
    return With(
        {"pretrain", "data.jsonl", "--tokenizer", "tokenizer.model", "--checkpoint", "base.pkl",
         "--out", "p.pkl", "--batch-size", "4", "--group", "1", "--threads", "1"},
        more);
  }
  /// Starts a run with --log steps.jsonl and interrupts it once the log holds `step`. Its status is
  /// 0 when it ended before the signal arrived.
  Finished StopAfter(const Arguments& arguments, int step) const {
    const std::string line = "\"step\":" + std::to_string(step) + ",";
    unlink(File("steps.jsonl").c_str());
    Running run(folder(), arguments);
    while (!run.Ended() && Contents(File("steps.jsonl")).find(line) == std::string::npos)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    run.Kill(SIGINT);
    return run.Wait();
  }

 private:
  ScratchFolder scratch_;
};

}  // namespace needle::test
