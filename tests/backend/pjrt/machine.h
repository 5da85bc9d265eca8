// Machines for the tests of discovery and choice: files, environment and hardware as a test says.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backend/pjrt/platform.h"

namespace needle::test {

class FakeFiles final : public pjrt::FileView {
 public:
  std::map<std::string, std::string> files;
  bool Exists(const std::string& path) const override {
    return files.count(path) > 0 || !List(path).empty();
  }
  std::vector<std::string> List(const std::string& folder) const override {
    std::set<std::string> names;
    for (const auto& [path, text] : files)
      if (path.rfind(folder + "/", 0) == 0) {
        const std::string rest = path.substr(folder.size() + 1);
        names.insert(rest.substr(0, rest.find('/')));
      }
    return {names.begin(), names.end()};
  }
  std::optional<std::string> Read(const std::string& path) const override {
    const auto it = files.find(path);
    if (it == files.end()) return std::nullopt;
    return it->second;
  }
};

/// A machine that is built line by line: Machine(Os::kLinux).Nvidia().Env("A", "b").
class Machine {
 public:
  explicit Machine(pjrt::Os os) {
    platform_.os = os;
    platform_.arch = os == pjrt::Os::kMacOs ? "arm64" : "x86_64";
    platform_.env["HOME"] = os == pjrt::Os::kMacOs ? "/Users/ann" : "/home/ann";
  }
  Machine& Env(const std::string& name, const std::string& value) {
    platform_.env[name] = value;
    return *this;
  }
  Machine& File(const std::string& path, const std::string& text = "") {
    files_.files[path] = text;
    return *this;
  }
  Machine& Nvidia() { return File("/dev/nvidia0"); }
  Machine& Amd() {
    return File("/sys/class/kfd/kfd/topology/nodes/0/properties",
                "cpu_cores_count 8\nsimd_count 0\n")
        .File("/sys/class/kfd/kfd/topology/nodes/1/properties", "simd_count 480\n");
  }
  Machine& Tpu() { return File("/sys/bus/pci/devices/0000:00:04.0/vendor", "0x1ae0\n"); }
  Machine& Intel() { return File("/sys/class/drm/card0/device/vendor", "0x8086\n"); }
  /// A file of a package in the environment that is active.
  Machine& Package(const std::string& path, const std::string& dist_info = "") {
    platform_.env["VIRTUAL_ENV"] = "/venv";
    if (!dist_info.empty()) File(kSite + "/" + dist_info + ".dist-info/METADATA");
    return File(kSite + "/" + path);
  }
  Machine& Cuda() {
    return Package("jax_plugins/xla_cuda13/xla_cuda_plugin.so", "jax_cuda13_pjrt-0.11.2");
  }
  Machine& Rocm() {
    return Package("jax_plugins/xla_rocm7/xla_rocm_plugin.so", "jax_rocm7_pjrt-0.12.0");
  }
  Machine& XlaCpu() {
    return Package("lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so", "lammps_jax_pjrt_cpu-0.11.2");
  }
  Machine& Python(std::vector<std::string> folders) {
    platform_.ask_python = [folders] { return folders; };
    return *this;
  }

  pjrt::Platform platform() const {
    pjrt::Platform p = platform_;
    p.files = std::make_shared<FakeFiles>(files_);
    return p;
  }
  operator pjrt::Platform() const { return platform(); }  // NOLINT

  static inline const std::string kSite = "/venv/lib/python3.11/site-packages";

 private:
  pjrt::Platform platform_;
  FakeFiles files_;
};

}  // namespace needle::test
