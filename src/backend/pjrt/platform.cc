#include "backend/pjrt/platform.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/native_path.h"
#include "base/parse_integer.h"
#include "base/process.h"
#include "base/str_cat.h"

namespace needle::pjrt {
namespace {

class RealFiles final : public FileView {
 public:
  bool Exists(const std::string& path) const override {
    return FileExists(path) || IsDirectory(path);
  }
  std::vector<std::string> List(const std::string& folder) const override {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(NativePath(folder), error))
      names.push_back(Utf8Path(entry.path().filename()));
    std::sort(names.begin(), names.end());
    return names;
  }
  std::optional<std::string> Read(const std::string& path) const override {
    Result<std::string> text = ReadTextFile(path);
    if (!text.ok()) return std::nullopt;
    return *std::move(text);
  }
};

std::vector<std::string> AskPython() {
  ChildOptions options;
  options.timeout_seconds = 10;
  const Result<ChildOutcome> asked =
      RunChild({"python3", "-c",
                "import site, sysconfig\n"
                "for p in [sysconfig.get_path('purelib'), sysconfig.get_path('platlib'), "
                "*site.getsitepackages(), site.getusersitepackages()]: print(p)"},
               options);
  std::vector<std::string> folders;
  if (!asked.ok() || asked->exit_code != 0) return folders;
  for (size_t at = 0; at < asked->out.size();) {
    const size_t end = std::min(asked->out.find('\n', at), asked->out.size());
    std::string folder = asked->out.substr(at, end - at);
    if (!folder.empty() && folder.back() == '\r') folder.pop_back();
    if (IsDirectory(folder) && std::count(folders.begin(), folders.end(), folder) == 0)
      folders.push_back(folder);
    at = end + 1;
  }
  return folders;
}

Os ThisOs() {
#if defined(_WIN32)
  return Os::kWindows;
#elif defined(__APPLE__)
  return Os::kMacOs;
#else
  return Os::kLinux;
#endif
}

std::string ThisArch() {
#if defined(__aarch64__) || defined(_M_ARM64)
  return "arm64";
#else
  return "x86_64";
#endif
}

/// Digits of a name as a number, for "python3.9" before "python3.12".
std::vector<int> NumbersIn(const std::string& name) {
  std::vector<int> numbers;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] < '0' || name[i] > '9') continue;
    if (i == 0 || name[i - 1] < '0' || name[i - 1] > '9') numbers.push_back(0);
    numbers.back() = numbers.back() * 10 + (name[i] - '0');
  }
  return numbers;
}

/// Collects folders that exist, each once.
class Folders {
 public:
  explicit Folders(const FileView& files) : files_(files) {}
  void Add(const std::string& folder) {
    if (!folder.empty() && files_.Exists(folder) &&
        std::count(found_.begin(), found_.end(), folder) == 0)
      found_.push_back(folder);
  }
  /// <lib>/python3*/<each>, the newest Python first.
  void AddPythons(const std::string& lib, const std::string& prefix,
                  const std::vector<std::string>& inside) {
    std::vector<std::string> names;
    for (const std::string& name : files_.List(lib))
      if (name.rfind(prefix, 0) == 0) names.push_back(name);
    std::stable_sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
      return NumbersIn(a) > NumbersIn(b);
    });
    for (const std::string& name : names)
      for (const std::string& folder : inside) Add(StrCat(lib, "/", name, "/", folder));
  }
  std::vector<std::string> Take() { return std::move(found_); }

 private:
  const FileView& files_;
  std::vector<std::string> found_;
};

void AddSearchPath(const std::string& path, char separator, Folders& folders) {
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find(separator, at), path.size());
    folders.Add(path.substr(at, end - at));
    at = end + 1;
  }
}

const std::vector<std::string> kPackages = {"site-packages", "dist-packages"};

void AddUnix(const Platform& p, Folders& folders) {
  for (const char* active : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (!p.Env(active).empty()) folders.AddPythons(p.Env(active) + "/lib", "python3", kPackages);
  const std::string home = p.Env("HOME");
  if (!home.empty()) folders.AddPythons(home + "/.local/lib", "python3", kPackages);
  if (p.os == Os::kMacOs) {
    if (!home.empty())
      folders.AddPythons(home + "/Library/Python", "3", {"lib/python/site-packages"});
    folders.AddPythons("/opt/homebrew/lib", "python3", kPackages);
    for (const std::string& version :
         p.files->List("/Library/Frameworks/Python.framework/Versions"))
      folders.AddPythons(StrCat("/Library/Frameworks/Python.framework/Versions/", version, "/lib"),
                         "python3", kPackages);
  }
  for (const char* lib : {"/usr/local/lib", "/usr/lib"})
    folders.AddPythons(lib, "python3", kPackages);
}

void AddWindows(const Platform& p, Folders& folders) {
  for (const char* active : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (!p.Env(active).empty()) folders.Add(p.Env(active) + "/Lib/site-packages");
  if (!p.Env("APPDATA").empty())
    folders.AddPythons(p.Env("APPDATA") + "/Python", "Python3", {"site-packages"});
  if (!p.Env("LOCALAPPDATA").empty())
    folders.AddPythons(p.Env("LOCALAPPDATA") + "/Programs/Python", "Python3",
                       {"Lib/site-packages"});
}

bool HasAmd(const FileView& files) {
  const std::string nodes = "/sys/class/kfd/kfd/topology/nodes";
  for (const std::string& node : files.List(nodes)) {
    const std::optional<std::string> text = files.Read(StrCat(nodes, "/", node, "/properties"));
    if (!text) continue;
    const size_t at = text->find("simd_count ");
    if (at != std::string::npos && std::atoi(text->c_str() + at + 11) > 0) return true;
  }
  return false;
}

bool HasVendor(const FileView& files, const std::string& folder, const std::string& file,
               const std::string& vendor) {
  for (const std::string& name : files.List(folder)) {
    const std::optional<std::string> text = files.Read(StrCat(folder, "/", name, file));
    if (text && text->rfind(vendor, 0) == 0) return true;
  }
  return false;
}

}  // namespace

std::string Platform::Env(const std::string& name) const {
  const auto it = env.find(name);
  return it == env.end() ? "" : it->second;
}

Platform ThisPlatform() {
  Platform platform;
  platform.os = ThisOs();
  platform.arch = ThisArch();
  for (auto& [name, value] : Environment()) platform.env[name] = value;
  platform.files = std::make_shared<RealFiles>();
  platform.ask_python = AskPython;
  return platform;
}

std::vector<std::string> SitePackages(const Platform& platform) {
  Folders folders(*platform.files);
  AddSearchPath(platform.Env("PYTHONPATH"), platform.os == Os::kWindows ? ';' : ':', folders);
  platform.os == Os::kWindows ? AddWindows(platform, folders) : AddUnix(platform, folders);
  return folders.Take();
}

Hardware HardwareOf(const Platform& p) {
  Hardware found;
  switch (p.os) {
    case Os::kLinux:
      for (const char* device : {"/dev/nvidia0", "/dev/nvidiactl", "/dev/dxg"})
        found.nvidia |= p.files->Exists(device);
      found.amd = HasAmd(*p.files);
      found.intel = HasVendor(*p.files, "/sys/class/drm", "/device/vendor", "0x8086");
      found.tpu = HasVendor(*p.files, "/sys/bus/pci/devices", "/vendor", "0x1ae0");
      break;
    case Os::kMacOs:
      found.apple = p.arch == "arm64";
      break;
    case Os::kWindows:
      found.nvidia = p.files->Exists("C:/Windows/System32/nvcuda.dll");
      break;
  }
  return found;
}

std::string CacheFolder(const Platform& p) {
  if (!p.Env("NEEDLE_CACHE_DIR").empty()) return p.Env("NEEDLE_CACHE_DIR");
  if (p.os == Os::kWindows)
    return p.Env("LOCALAPPDATA").empty() ? "" : p.Env("LOCALAPPDATA") + "/needle/cache";
  if (p.Env("HOME").empty()) return "";
  if (p.os == Os::kMacOs) return p.Env("HOME") + "/Library/Caches/needle";
  if (!p.Env("XDG_CACHE_HOME").empty()) return p.Env("XDG_CACHE_HOME") + "/needle";
  return p.Env("HOME") + "/.cache/needle";
}

std::vector<std::pair<std::string, std::string>> MissingEnvironment(const Platform& p, bool quiet) {
  std::vector<std::pair<std::string, std::string>> missing;
  if (p.os == Os::kMacOs && !p.HasEnv("ENABLE_PJRT_COMPATIBILITY"))
    missing.emplace_back("ENABLE_PJRT_COMPATIBILITY", "1");
  if (!p.HasEnv("TF_CPP_MIN_LOG_LEVEL"))
    missing.emplace_back("TF_CPP_MIN_LOG_LEVEL", quiet ? "3" : "2");
  return missing;
}

Result<int> HostDeviceCount(const Platform& p) {
  const std::string flags = p.Env("XLA_FLAGS");
  const std::string name = "--xla_force_host_platform_device_count=";
  const size_t at = flags.rfind(name);  // the last of a repeated flag counts
  if (at == std::string::npos) return 1;
  const size_t begin = at + name.size();
  const std::string text = flags.substr(begin, flags.find_first_of(" \t\n", begin) - begin);
  if (const std::optional<int> count = ParseInteger<int>(text); count && *count >= 1) return *count;
  return Error(Code::kInvalidArgument,
               StrCat("XLA_FLAGS: ", name, text, ": wanted is a number of devices from 1 on"));
}

}  // namespace needle::pjrt
