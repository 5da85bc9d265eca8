// The part of process.h and library.h that is the operating system's own: Windows.
#ifdef _WIN32

#include <windows.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <system_error>
#include <thread>

#include "base/env.h"
#include "base/file.h"
#include "base/library.h"
#include "base/process.h"
#include "base/str_cat.h"

namespace needle {
namespace {

constexpr size_t kMostOutput = size_t{1} << 20;

std::string Reason(DWORD error) { return std::system_category().message(static_cast<int>(error)); }

std::wstring Wide(const std::string& text) {
  const int length = static_cast<int>(text.size());
  const int units = ::MultiByteToWideChar(CP_UTF8, 0, text.data(), length, nullptr, 0);
  std::wstring out(static_cast<size_t>(units), L'\0');
  ::MultiByteToWideChar(CP_UTF8, 0, text.data(), length, out.data(), units);
  return out;
}

std::string Narrow(const std::wstring& text) {
  const int length = static_cast<int>(text.size());
  const int bytes =
      ::WideCharToMultiByte(CP_UTF8, 0, text.data(), length, nullptr, 0, nullptr, nullptr);
  std::string out(static_cast<size_t>(bytes), '\0');
  ::WideCharToMultiByte(CP_UTF8, 0, text.data(), length, out.data(), bytes, nullptr, nullptr);
  return out;
}

std::wstring FullPath(const std::string& path) {
  const std::wstring wide = Wide(path);
  const DWORD room = ::GetFullPathNameW(wide.c_str(), 0, nullptr, nullptr);
  std::wstring full(room, L'\0');
  full.resize(::GetFullPathNameW(wide.c_str(), room, full.data(), nullptr));
  return full.empty() ? wide : full;
}

class Owned {
 public:
  explicit Owned(HANDLE handle = nullptr) : handle_(handle) {}
  ~Owned() { Close(); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  void Close() {
    if (handle_ != nullptr && handle_ != INVALID_HANDLE_VALUE) ::CloseHandle(handle_);
    handle_ = nullptr;
  }
  HANDLE get() const { return handle_; }
  HANDLE* out() { return &handle_; }

 private:
  HANDLE handle_;
};

/// One output of a child: we read `ours`, the child inherits `theirs`.
struct Pipe {
  Owned ours, theirs;
  bool Open() {
    SECURITY_ATTRIBUTES inherited = {sizeof(inherited), nullptr, TRUE};
    return ::CreatePipe(ours.out(), theirs.out(), &inherited, 0) &&
           ::SetHandleInformation(ours.get(), HANDLE_FLAG_INHERIT, 0);
  }
  void ReadAll(std::string* text) {
    std::array<char, 4096> bytes;
    DWORD n = 0;
    while (::ReadFile(ours.get(), bytes.data(), bytes.size(), &n, nullptr) && n > 0)
      text->append(bytes.data(), std::min<size_t>(n, kMostOutput - text->size()));
  }
};

// The rules of CommandLineToArgvW: quotes around, backslashes doubled where they precede a quote.
// A plain word stays as it is: cmd.exe does not know its own "/c" in quotes.
std::wstring Quoted(const std::string& argument) {
  if (!argument.empty() && argument.find_first_of(" \t\n\v\"") == std::string::npos)
    return Wide(argument);
  std::wstring out = L"\"";
  size_t backslashes = 0;
  for (const wchar_t c : Wide(argument)) {
    if (c == L'"') out.append(backslashes + 1, L'\\');
    backslashes = c == L'\\' ? backslashes + 1 : 0;
    out.push_back(c);
  }
  out.append(backslashes, L'\\');
  return out + L"\"";
}

std::wstring CommandLine(const std::vector<std::string>& command) {
  std::wstring line;
  for (const std::string& argument : command)
    line += (line.empty() ? L"" : L" ") + Quoted(argument);
  return line;
}

// Names of variables do not tell capital letters from small ones.
bool SameName(const std::string& a, const std::string& b) {
  return ::CompareStringOrdinal(Wide(a).c_str(), -1, Wide(b).c_str(), -1, TRUE) == CSTR_EQUAL;
}

std::wstring EnvironmentBlock(const ChildOptions& options) {
  std::wstring block;
  const auto replaced = [&](const std::string& name) {
    return std::any_of(options.environment.begin(), options.environment.end(),
                       [&](const auto& added) { return SameName(added.first, name); });
  };
  for (const auto& [name, value] : Environment())
    if (!replaced(name)) block += Wide(name + "=" + value) + L'\0';
  for (const auto& [name, value] : options.environment) block += Wide(name + "=" + value) + L'\0';
  return block + L'\0';
}

/// The child inherits these handles and no other: a pipe of a second child, started meanwhile,
/// would stay open as long as this one lives.
class Inheritance {
 public:
  explicit Inheritance(std::array<HANDLE, 3> handles) : handles_(handles) {
    SIZE_T bytes = 0;
    ::InitializeProcThreadAttributeList(nullptr, 1, 0, &bytes);
    memory_.resize(bytes);
    if (!::InitializeProcThreadAttributeList(list(), 1, 0, &bytes)) return;
    initialised_ = true;
    ok_ = ::UpdateProcThreadAttribute(list(), 0, PROC_THREAD_ATTRIBUTE_HANDLE_LIST, handles_.data(),
                                      sizeof(handles_), nullptr, nullptr);
  }
  ~Inheritance() {
    if (initialised_) ::DeleteProcThreadAttributeList(list());
  }
  Inheritance(const Inheritance&) = delete;
  Inheritance& operator=(const Inheritance&) = delete;
  bool ok() const { return ok_; }
  LPPROC_THREAD_ATTRIBUTE_LIST list() {
    return reinterpret_cast<LPPROC_THREAD_ATTRIBUTE_LIST>(memory_.data());
  }

 private:
  std::array<HANDLE, 3> handles_;  // the list points at them
  std::vector<unsigned char> memory_;
  bool initialised_ = false, ok_ = false;
};

}  // namespace

Result<ChildOutcome> RunChild(const std::vector<std::string>& command,
                              const ChildOptions& options) {
  Pipe out, err;
  if (!out.Open() || !err.Open())
    return Error(Code::kIo, StrCat("no pipe: ", Reason(::GetLastError())));
  SECURITY_ATTRIBUTES inherited = {sizeof(inherited), nullptr, TRUE};
  const Owned nothing(::CreateFileW(L"NUL", GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE,
                                    &inherited, OPEN_EXISTING, 0, nullptr));
  Inheritance inheritance({nothing.get(), out.theirs.get(), err.theirs.get()});
  const Owned job(::CreateJobObjectW(nullptr, nullptr));
  if (!inheritance.ok() || job.get() == nullptr)
    return Error(Code::kIo, StrCat(command[0], ": cannot be started: ", Reason(::GetLastError())));
  STARTUPINFOEXW start = {};
  start.StartupInfo.cb = sizeof(start);
  start.StartupInfo.dwFlags = STARTF_USESTDHANDLES;
  start.StartupInfo.hStdInput = nothing.get();
  start.StartupInfo.hStdOutput = out.theirs.get();
  start.StartupInfo.hStdError = err.theirs.get();
  start.lpAttributeList = inheritance.list();
  constexpr DWORD kFlags =
      CREATE_UNICODE_ENVIRONMENT | EXTENDED_STARTUPINFO_PRESENT | CREATE_SUSPENDED;
  PROCESS_INFORMATION info = {};
  std::wstring line = CommandLine(command), environment = EnvironmentBlock(options);
  if (!::CreateProcessW(nullptr, line.data(), nullptr, nullptr, TRUE, kFlags, environment.data(),
                        nullptr, &start.StartupInfo, &info)) {
    const DWORD error = ::GetLastError();
    const bool absent = error == ERROR_FILE_NOT_FOUND || error == ERROR_PATH_NOT_FOUND;
    return Error(absent ? Code::kNotFound : Code::kIo,
                 StrCat(command[0], ": cannot be started: ", Reason(error)));
  }
  const Owned process(info.hProcess), main_thread(info.hThread);
  ::AssignProcessToJobObject(job.get(), process.get());  // and so all that it starts
  ::ResumeThread(main_thread.get());
  out.theirs.Close();
  err.theirs.Close();
  ChildOutcome outcome;
  std::thread reads_out([&] { out.ReadAll(&outcome.out); });
  std::thread reads_err([&] { err.ReadAll(&outcome.err); });
  const DWORD wait = static_cast<DWORD>(options.timeout_seconds * 1000);
  if (::WaitForSingleObject(process.get(), wait) != WAIT_OBJECT_0) {
    outcome.timed_out = true;
    ::TerminateProcess(process.get(), 137);
    ::WaitForSingleObject(process.get(), INFINITE);
  }
  ::TerminateJobObject(job.get(), 137);  // children of the child hold the pipes open
  reads_out.join();
  reads_err.join();
  DWORD status = 0;
  ::GetExitCodeProcess(process.get(), &status);
  if (!outcome.timed_out) outcome.exit_code = static_cast<int>(status);
  return outcome;
}

std::vector<std::string> ProgramArguments(int argc, char** argv) {
  int count = 0;
  wchar_t** const wide = ::CommandLineToArgvW(::GetCommandLineW(), &count);
  if (wide == nullptr) return std::vector<std::string>(argv, argv + argc);
  std::vector<std::string> arguments;
  for (int i = 0; i < count; ++i) arguments.push_back(Narrow(wide[i]));
  ::LocalFree(wide);
  return arguments;
}

Result<std::string> ProgramPath() {
  std::wstring path(32768, L'\0');
  const DWORD length = ::GetModuleFileNameW(nullptr, path.data(), static_cast<DWORD>(path.size()));
  if (length == 0 || length >= path.size())
    return Error(Code::kNotFound, "the file of the running program cannot be found");
  path.resize(length);
  return Narrow(path);
}

void SetEnv(const std::string& name, const std::string& value) {
  ::_wputenv_s(Wide(name).c_str(), Wide(value).c_str());
  // The C library takes an empty value for "unset"; the system does not.
  ::SetEnvironmentVariableW(Wide(name).c_str(), Wide(value).c_str());
}

std::optional<std::string> GetEnv(const char* name) {
  const std::wstring wide = Wide(name);
  std::wstring value(256, L'\0');
  while (true) {
    ::SetLastError(ERROR_SUCCESS);
    const DWORD room = static_cast<DWORD>(value.size());
    const DWORD length = ::GetEnvironmentVariableW(wide.c_str(), value.data(), room);
    if (length == 0 && ::GetLastError() == ERROR_ENVVAR_NOT_FOUND) return std::nullopt;
    value.resize(length);
    if (length < room) return Narrow(value);
  }
}

std::vector<std::pair<std::string, std::string>> Environment() {
  std::vector<std::pair<std::string, std::string>> variables;
  wchar_t* const block = ::GetEnvironmentStringsW();
  if (block == nullptr) return variables;
  for (const wchar_t* entry = block; *entry != L'\0';) {
    const std::wstring line = entry;
    entry += line.size() + 1;
    const size_t equals = line.find(L'=', 1);  // "=C:=C:\..." keeps a drive's folder
    if (equals != std::wstring::npos)
      variables.emplace_back(Narrow(line.substr(0, equals)), Narrow(line.substr(equals + 1)));
  }
  ::FreeEnvironmentStringsW(block);
  return variables;
}

Result<Library> Library::Open(const std::string& path, LibraryScope) {
  // A name alone is looked up in the usual folders. A path must be whole, with backslashes, for the
  // library's own folder to be searched for what it needs.
  const bool is_name = path.find_first_of("/\\:") == std::string::npos;
  const DWORD where =
      LOAD_LIBRARY_SEARCH_DEFAULT_DIRS | (is_name ? 0 : LOAD_LIBRARY_SEARCH_DLL_LOAD_DIR);
  const std::wstring file = is_name ? Wide(path) : FullPath(path);
  if (void* handle = reinterpret_cast<void*>(::LoadLibraryExW(file.c_str(), nullptr, where)))
    return Library(handle);
  const DWORD error = ::GetLastError();
  if (!FileExists(path)) return Error(Code::kNotFound, StrCat(path, ": there is no such library"));
  return Error(Code::kUnavailable, StrCat(path, ": the library cannot be opened: ", Reason(error)));
}

void* Library::Symbol(const char* name) const {
  return reinterpret_cast<void*>(::GetProcAddress(static_cast<HMODULE>(handle_), name));
}

}  // namespace needle

#endif
