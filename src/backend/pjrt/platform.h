// What the choice of a device depends on: operating system, environment, files. It is a plain
// input, so that every machine can be played in a test. Thread-safety: values; a FileView is const.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace needle::pjrt {

enum class Os { kLinux, kMacOs, kWindows };

/// The files of a machine.
class FileView {
 public:
  virtual ~FileView() = default;
  /// A file, folder or device of this name.
  virtual bool Exists(const std::string& path) const = 0;
  /// The names in a folder, sorted; empty when there is none.
  virtual std::vector<std::string> List(const std::string& folder) const = 0;
  virtual std::optional<std::string> Read(const std::string& path) const = 0;
};

struct Platform {
  Os os = Os::kLinux;
  std::string arch = "x86_64";  // or "arm64"
  std::map<std::string, std::string> env;
  std::shared_ptr<const FileView> files;
  /// The site-packages that python3 names; asked when no known place holds a plugin that is wanted.
  /// May be empty.
  std::function<std::vector<std::string>()> ask_python;

  /// A variable's value; "" when it is unset.
  std::string Env(const std::string& name) const;
  bool HasEnv(const std::string& name) const { return env.count(name) > 0; }
};

/// The machine that this runs on, as it is now.
Platform ThisPlatform();

/// The folders in which Python packages may be, the active environment's first; each exists.
std::vector<std::string> SitePackages(const Platform& platform);

/// What is built in, by the gates that JAX uses: a plugin is not loaded without its hardware.
struct Hardware {
  bool nvidia = false, amd = false, intel = false, tpu = false, apple = false;
};
Hardware HardwareOf(const Platform& platform);

/// The folder for what is kept between runs: NEEDLE_CACHE_DIR, else the system's usual place and
/// "needle"; "" when there is none.
std::string CacheFolder(const Platform& platform);

/// What must be in the environment before a plugin is loaded and is not there yet: plugins on macOS
/// want ENABLE_PJRT_COMPATIBILITY, and all log a lot without TF_CPP_MIN_LOG_LEVEL. `quiet` keeps
/// their errors off too: XLA's CPU plugin takes each program from a cache for another machine's.
std::vector<std::pair<std::string, std::string>> MissingEnvironment(const Platform& platform,
                                                                    bool quiet = false);

/// The number in --xla_force_host_platform_device_count of XLA_FLAGS, which CPU plugins leave to
/// their host; 1 when it is not there. Error: it is no number from 1 on.
Result<int> HostDeviceCount(const Platform& platform);

}  // namespace needle::pjrt
