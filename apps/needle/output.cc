// What commands print: lines, notes, progress, the JSON document.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>

#include "needle/command.h"

#ifdef _WIN32
#include <io.h>
#else
#include <unistd.h>
#endif

namespace needle::cli {
namespace {

bool json_mode = false;
bool json_printed = false;
volatile std::sig_atomic_t stop_signals = 0;

void OnSignal(int signal) {
  stop_signals = stop_signals + 1;
  if (stop_signals > 1) {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

bool IsTerminal(std::FILE* file) {
#ifdef _WIN32
  return _isatty(_fileno(file)) != 0;
#else
  return isatty(fileno(file)) != 0;
#endif
}

std::FILE* Lines() { return json_mode ? stderr : stdout; }

}  // namespace

int ExitStatus(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
    case Code::kCorruptFile:
    case Code::kNotFound:
      return 2;
    case Code::kCheckFailed:
      return 3;
    case Code::kIo:
    case Code::kUnavailable:
    case Code::kInternal:
      return 1;
  }
  return 1;
}

bool JsonMode() { return json_mode; }
void SetJsonMode() { json_mode = true; }
bool JsonPrinted() { return json_printed; }

void PrintJson(const json::Value& document) {
  json_printed = true;
  fmt::print("{}\n", json::Dump(document));
  std::fflush(stdout);
}

void PrintLine(std::string_view label, std::string_view payload) {
  fmt::print(Lines(), "  {:<9} {}\n", label, payload);
  std::fflush(Lines());
}

void PrintText(std::string_view text) {
  fmt::print(Lines(), "{}", text);
  std::fflush(Lines());
}

void PrintNote(std::string_view sentence) { fmt::print(stderr, "  {:<9} {}\n", "note", sentence); }

double Now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

ProgressLine::ProgressLine() : terminal_(IsTerminal(stderr)) {}

void ProgressLine::Show(const std::string& text) {
  if (!terminal_ || Now() - last_ < 0.1) return;
  last_ = Now();
  shown_ = true;
  fmt::print(stderr, "\r\x1b[K  {}", text);
  std::fflush(stderr);
}

void ProgressLine::Clear() {
  if (!shown_) return;
  shown_ = false;
  last_ = 0;
  fmt::print(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

std::string Bar(int64_t done, int64_t total) {
  constexpr int64_t kWidth = 24;
  const int64_t full = total > 0 ? std::clamp<int64_t>(done * kWidth / total, 0, kWidth) : 0;
  return fmt::format("[{}{}] {}/{}", std::string(static_cast<size_t>(full), '#'),
                     std::string(static_cast<size_t>(kWidth - full), '.'), done, total);
}

std::string Duration(double seconds) {
  const int64_t s = std::llround(seconds);
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
}

bool StopRequested() { return stop_signals > 0; }

void CatchStopSignals() {
  std::signal(SIGINT, OnSignal);
  std::signal(SIGTERM, OnSignal);
}

bool StdinIsTerminal() { return IsTerminal(stdin); }

}  // namespace needle::cli
