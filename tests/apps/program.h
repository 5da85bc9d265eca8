// Test support: runs the program in a folder of its own, as a person would.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "apps/finished.h"
#ifdef _WIN32
#include "apps/running_win.h"
#else
#include "apps/running_posix.h"
#endif
#include "support/scratch.h"

namespace needle::test {

/// Takes what is written to it.
#ifdef _WIN32
constexpr const char* kNowhere = "NUL";
#else
constexpr const char* kNowhere = "/dev/null";
#endif

inline void Write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

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
  Finished StopAfter(const Arguments& arguments, int step, const Variables& variables = {}) const {
    const std::string line = "\"step\":" + std::to_string(step) + ",";
    std::filesystem::remove(File("steps.jsonl"));
    Running run(folder(), arguments, variables);
    while (!run.Ended() && Contents(File("steps.jsonl")).find(line) == std::string::npos)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    run.Interrupt();
    return run.Wait();
  }

 private:
  ScratchFolder scratch_;
};

}  // namespace needle::test

/// Skips a test that stops the program as a person does, with Ctrl-C.
#define NEEDLE_NEED_INTERRUPT() \
  if (!needle::test::kCanInterrupt) GTEST_SKIP() << "no Ctrl-C between processes on this system"
