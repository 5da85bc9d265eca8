// The part of process.h and library.h that is the operating system's own: POSIX.
#ifndef _WIN32

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef __APPLE__
#include <crt_externs.h>
#include <mach-o/dyld.h>
#endif

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "base/library.h"
#include "base/process.h"
#include "base/str_cat.h"

#ifndef __APPLE__
extern char** environ;  // NOLINT: POSIX names it and no header declares it
#endif

namespace needle {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kMostOutput = size_t{1} << 20;

char** EnvironmentBlock() {
#ifdef __APPLE__
  return *_NSGetEnviron();
#else
  return environ;
#endif
}

std::string Reason(int error) { return std::generic_category().message(error); }

/// One output of a child: we read `ours`, the child writes `theirs`.
class Pipe {
 public:
  Pipe() {
    std::array<int, 2> ends;
    if (::pipe(ends.data()) != 0) return;
    ours_ = ends[0];
    theirs_ = ends[1];
    ::fcntl(ours_, F_SETFD, FD_CLOEXEC);
    ::fcntl(theirs_, F_SETFD, FD_CLOEXEC);
  }
  ~Pipe() {
    CloseOurs();
    CloseTheirs();
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  bool ok() const { return ours_ >= 0; }
  int ours() const { return ours_; }
  int theirs() const { return theirs_; }
  void CloseOurs() { CloseOnce(&ours_); }
  void CloseTheirs() { CloseOnce(&theirs_); }

  /// Takes what is there; closes our end when the child's is closed.
  void Read(std::string* text) {
    std::array<char, 4096> bytes;
    const ssize_t n = ::read(ours_, bytes.data(), bytes.size());
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (n <= 0) return CloseOurs();
    const size_t room = kMostOutput - std::min(kMostOutput, text->size());
    text->append(bytes.data(), std::min(room, static_cast<size_t>(n)));
  }

 private:
  static void CloseOnce(int* fd) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
  int ours_ = -1, theirs_ = -1;
};

std::vector<std::string> MergedEnvironment(const ChildOptions& options) {
  std::vector<std::string> lines;
  const auto replaced = [&](const std::string& line) {
    for (const auto& [name, value] : options.environment)
      if (line.starts_with(StrCat(name, "="))) return true;
    return false;
  };
  for (char** entry = EnvironmentBlock(); *entry != nullptr; ++entry)
    if (!replaced(*entry)) lines.emplace_back(*entry);
  for (const auto& [name, value] : options.environment) lines.push_back(StrCat(name, "=", value));
  return lines;
}

std::vector<char*> Pointers(std::vector<std::string>& lines) {
  std::vector<char*> pointers;
  pointers.reserve(lines.size() + 1);
  for (std::string& line : lines) pointers.push_back(line.data());
  pointers.push_back(nullptr);
  return pointers;
}

Result<pid_t> Spawn(const std::vector<std::string>& command, const ChildOptions& options,
                    const Pipe& out, const Pipe& err) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.theirs(), 1);
  posix_spawn_file_actions_adddup2(&actions, err.theirs(), 2);
  std::vector<std::string> arguments = command, environment = MergedEnvironment(options);
  pid_t child = 0;
  const int error = posix_spawnp(&child, command[0].c_str(), &actions, nullptr,
                                 Pointers(arguments).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return child;
  return Error(error == ENOENT ? Code::kNotFound : Code::kIo,
               StrCat(command[0], ": cannot be started: ", Reason(error)));
}

/// Reads both outputs until they end or the time is over.
bool ReadUntil(Clock::time_point end, Pipe& out, Pipe& err, ChildOutcome* outcome) {
  while (out.ok() || err.ok()) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now());
    if (left.count() <= 0) return false;
    std::array<pollfd, 2> waits = {{{out.ours(), POLLIN, 0}, {err.ours(), POLLIN, 0}}};
    if (::poll(waits.data(), waits.size(), static_cast<int>(left.count()) + 1) <= 0) continue;
    if (waits[0].revents != 0) out.Read(&outcome->out);
    if (waits[1].revents != 0) err.Read(&outcome->err);
  }
  return true;
}

/// Waits for the end that is near, since its outputs are closed; false when it does not come.
bool WaitUntil(Clock::time_point end, pid_t child, int* status) {
  while (true) {
    const pid_t got = ::waitpid(child, status, WNOHANG);
    if (got == child) return true;
    if (got < 0 && errno != EINTR) return true;
    if (Clock::now() >= end) return false;
    ::usleep(2000);
  }
}

}  // namespace

Result<ChildOutcome> RunChild(const std::vector<std::string>& command,
                              const ChildOptions& options) {
  Pipe out, err;
  if (!out.ok() || !err.ok()) return Error(Code::kIo, StrCat("no pipe: ", Reason(errno)));
  NEEDLE_ASSIGN(const pid_t child, Spawn(command, options, out, err));
  out.CloseTheirs();
  err.CloseTheirs();
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(options.timeout_seconds));
  ChildOutcome outcome;
  int status = 0;
  if (!ReadUntil(end, out, err, &outcome) || !WaitUntil(end, child, &status)) {
    outcome.timed_out = true;
    ::kill(child, SIGKILL);
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return outcome;
  }
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  return outcome;
}

std::vector<std::string> ProgramArguments(int argc, char** argv) {
  return std::vector<std::string>(argv, argv + argc);
}

Result<std::string> ProgramPath() {
#ifdef __APPLE__
  std::string path(4096, '\0');
  uint32_t size = static_cast<uint32_t>(path.size());
  if (_NSGetExecutablePath(path.data(), &size) == 0) return std::string(path.c_str());
#else
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) return path.string();
#endif
  return Error(Code::kNotFound, "the file of the running program cannot be found");
}

void SetEnv(const std::string& name, const std::string& value) {
  ::setenv(name.c_str(), value.c_str(), 1);
}

std::vector<std::pair<std::string, std::string>> Environment() {
  std::vector<std::pair<std::string, std::string>> variables;
  for (char** entry = EnvironmentBlock(); *entry != nullptr; ++entry) {
    const std::string line = *entry;
    const size_t equals = line.find('=');
    if (equals != std::string::npos)
      variables.emplace_back(line.substr(0, equals), line.substr(equals + 1));
  }
  return variables;
}

Result<Library> Library::Open(const std::string& path, LibraryScope scope) {
  const int visible = scope == LibraryScope::kShared ? RTLD_GLOBAL : RTLD_LOCAL;
  if (void* handle = ::dlopen(path.c_str(), RTLD_NOW | visible)) return Library(handle);
  const char* reason = ::dlerror();
  if (path.find('/') != std::string::npos && !FileExists(path))
    return Error(Code::kNotFound, StrCat(path, ": there is no such library"));
  return Error(Code::kUnavailable, StrCat(path, ": the library cannot be opened: ",
                                          reason != nullptr ? reason : "no reason is given"));
}

void* Library::Symbol(const char* name) const { return ::dlsym(handle_, name); }

}  // namespace needle

#endif
