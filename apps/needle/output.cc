// What commands print: lines, notes, progress, the JSON document.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/utf8.h"
#include "needle/command.h"

#ifdef _WIN32
#ifndef NOMINMAX  // libstdc++ defines it too
#define NOMINMAX
#endif
#define WIN32_LEAN_AND_MEAN
#include <io.h>
#include <windows.h>
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

/// A terminal that cannot go back in a line.
bool IsDumb() {
  const char* kind = std::getenv("TERM");
  return kind != nullptr && std::string_view(kind) == "dumb";
}

std::FILE* Lines() { return json_mode ? stderr : stdout; }

bool output_lost = false;  // stdout could not take what was printed

void Write(std::FILE* file, std::string_view text) {
  const bool ok =
      std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
  if (!ok && file == stdout) output_lost = true;
}

/// U+FFFD for each byte that is no UTF-8.
std::string ValidUtf8(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t valid = ValidUtf8Length(text);
    out += text.substr(0, valid);
    if (valid == text.size()) break;
    AppendUtf8(out, U'\uFFFD');
    text.remove_prefix(valid + 1);
  }
  return out;
}

/// JSON has no NaN and no bytes that are not UTF-8: null, and U+FFFD for each wrong byte.
json::Value Printable(const json::Value& value) {
  if (value.is_string()) return json::Value::String(ValidUtf8(value.as_string()));
  if (value.is_float() && !std::isfinite(value.as_double())) return json::Value::Null();
  if (value.is_array()) {
    std::vector<json::Value> items;
    for (const json::Value& item : value.items()) items.push_back(Printable(item));
    return json::Value::Array(std::move(items));
  }
  if (value.is_object()) {
    std::vector<std::pair<std::string, json::Value>> members;
    for (const auto& [name, member] : value.members())
      members.emplace_back(ValidUtf8(name), Printable(member));
    return json::Value::Object(std::move(members));
  }
  return value;
}

}  // namespace

void UseUtf8Console() {
#ifdef _WIN32
  SetConsoleOutputCP(CP_UTF8);
#endif
}

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
  Write(stdout, json::Dump(Printable(document)) + "\n");
}

void PrintLine(std::string_view label, std::string_view payload) {
  Write(Lines(), fmt::format("  {:<9} {}\n", label, payload));
}

void PrintText(std::string_view text) { Write(Lines(), text); }

bool OutputLost() { return output_lost; }

void PrintNote(std::string_view sentence) {
  Write(stderr, fmt::format("  {:<9} {}\n", "note", sentence));
}

double Now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

ProgressLine::ProgressLine() : terminal_(IsTerminal(stderr) && !IsDumb()) {}

void ProgressLine::Show(const std::string& text) {
  if (!terminal_ || Now() - last_ < 0.1) return;
  last_ = Now();
  shown_ = true;
  Write(stderr, fmt::format("\r\x1b[K  {}", text));
}

void ProgressLine::Clear() {
  if (!shown_) return;
  shown_ = false;
  last_ = 0;
  Write(stderr, "\r\x1b[K");
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

void OutliveClosedPipes() {
#ifndef _WIN32
  std::signal(SIGPIPE, SIG_IGN);
#endif
}

bool StdinIsTerminal() { return IsTerminal(stdin); }

}  // namespace needle::cli
