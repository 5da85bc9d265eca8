// The PJRT plugins that tests run on when they are there: scripts/pjrt_plugins.sh puts them into
// build/pjrt. A test that wants one and finds none is skipped by name.
#pragma once

#include <cstdlib>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/process.h"

namespace needle::test {

/// Plugins write what they do to standard error; a test's output is not the place for it.
inline const bool kQuietPlugins = [] {
  if (std::getenv("TF_CPP_MIN_LOG_LEVEL") == nullptr) SetEnv("TF_CPP_MIN_LOG_LEVEL", "3");
  return true;
}();

/// The folder of the plugins: NEEDLE_TEST_PJRT, else build/pjrt of the source tree.
inline std::string PjrtDir() {
  const char* set = std::getenv("NEEDLE_TEST_PJRT");
  return set != nullptr && *set != '\0' ? set : NEEDLE_SOURCE_DIR "/build/pjrt";
}

inline std::string IfThere(const std::string& path) { return FileExists(path) ? path : ""; }

/// The CPU plugin of the newest interface that the tests know (0.115); "" when it is absent.
inline std::string CpuPlugin() {
  return IfThere(PjrtDir() + "/lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so");
}
/// One of an older interface (0.106); "" when it is absent.
inline std::string OlderCpuPlugin() {
  return IfThere(PjrtDir() + "/fastatomstruct_xla_cpu/libpjrt_cpu.so");
}
/// The oldest (0.81), whose wheel also has the published header.
inline std::string OldestCpuPlugin() {
  return IfThere(PjrtDir() + "/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so");
}

}  // namespace needle::test

/// Skips the test when `path` (an std::string) is empty.
#define NEEDLE_NEED_PLUGIN(path) \
  if ((path).empty()) GTEST_SKIP() << "no PJRT plugin; scripts/pjrt_plugins.sh installs them"
