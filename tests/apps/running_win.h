// Test support: a started program on Windows. apps/program.h includes it.
#pragma once

#include <windows.h>

#include <stdexcept>
#include <string>

#include "apps/finished.h"

namespace needle::test {

constexpr bool kCanInterrupt = false;  // a process gets no Ctrl-C from another without a console

/// A started program; ended at the latest with this object.
class Running {
 public:
  Running(const std::string& folder, const Arguments& arguments, const Variables& variables = {})
      : out_(folder + "/.stdout"), err_(folder + "/.stderr") {
    const std::string in = folder + "/.stdin";
    const HANDLE files[] = {Open(Exists(in) ? in : "NUL", GENERIC_READ, OPEN_EXISTING),
                            Open(out_, GENERIC_WRITE, CREATE_ALWAYS),
                            Open(err_, GENERIC_WRITE, CREATE_ALWAYS)};
    STARTUPINFOA start = {};
    start.cb = sizeof start;
    start.dwFlags = STARTF_USESTDHANDLES;
    start.hStdInput = files[0];
    start.hStdOutput = files[1];
    start.hStdError = files[2];
    std::string line = "needle";
    for (const std::string& a : arguments) line += " " + Quoted(a);
    std::string environment = Block(folder, variables);
    if (!::CreateProcessA(NEEDLE_PROGRAM, line.data(), nullptr, nullptr, TRUE, 0,
                          environment.data(), folder.c_str(), &start, &process_))
      throw std::runtime_error("CreateProcess: " + std::to_string(::GetLastError()));
    for (const HANDLE file : files) ::CloseHandle(file);
  }
  ~Running() {
    if (!Ended()) Kill();
    ::WaitForSingleObject(process_.hProcess, INFINITE);
    ::CloseHandle(process_.hThread);
    ::CloseHandle(process_.hProcess);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  void Kill() { ::TerminateProcess(process_.hProcess, kKilled); }
  void Interrupt() { throw std::runtime_error("kCanInterrupt is false"); }
  bool Ended() { return ::WaitForSingleObject(process_.hProcess, 0) == WAIT_OBJECT_0; }
  Finished Wait() {
    ::WaitForSingleObject(process_.hProcess, INFINITE);
    DWORD status = 0;
    ::GetExitCodeProcess(process_.hProcess, &status);
    Finished f;
    f.status = static_cast<int>(status);
    f.out = Lines(Contents(out_));
    f.err = Lines(Contents(err_));
    return f;
  }

 private:
  static HANDLE Open(const std::string& path, DWORD access, DWORD how) {
    SECURITY_ATTRIBUTES inherited = {sizeof(inherited), nullptr, TRUE};
    return ::CreateFileA(path.c_str(), access,
                         FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, &inherited, how,
                         FILE_ATTRIBUTE_NORMAL, nullptr);
  }
  static std::string Quoted(const std::string& argument) {
    std::string out = "\"";
    for (const char c : argument) {
      if (c == '"') out += '\\';
      out += c;
    }
    return out + "\"";
  }
  static std::string Block(const std::string& folder, const Variables& variables) {
    Variables all = DefaultVariables(folder);
    all.insert(all.end(), variables.begin(), variables.end());
    for (const char* name : kUnsetVariables) ::SetEnvironmentVariableA(name, nullptr);
    for (const auto& [name, value] : all) ::SetEnvironmentVariableA(name.c_str(), value.c_str());
    std::string block;
    char* const strings = ::GetEnvironmentStringsA();
    for (const char* entry = strings; *entry != '\0'; entry += std::string(entry).size() + 1)
      block += std::string(entry) + '\0';
    ::FreeEnvironmentStringsA(strings);
    for (const auto& [name, value] : all) ::SetEnvironmentVariableA(name.c_str(), nullptr);
    return block + '\0';
  }
  /// The text that was printed: a stream of text ends its lines with "\r\n" here.
  static std::string Lines(const std::string& printed) {
    std::string out;
    for (size_t i = 0; i < printed.size(); ++i)
      if (printed.compare(i, 2, "\r\n") != 0) out += printed[i];
    return out;
  }

  std::string out_, err_;
  PROCESS_INFORMATION process_ = {};
};

}  // namespace needle::test
