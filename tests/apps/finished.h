// Test support: how the program is started, and how it ended.
#pragma once

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace needle::test {

using Arguments = std::vector<std::string>;
using Variables = std::vector<std::pair<std::string, std::string>>;

/// The status of a program that was killed, on every system.
constexpr int kKilled = 128 + 9;

struct Finished {
  int status = -1;  // exit status; on POSIX systems 128 + the signal that ended it
  std::string out, err;
};

inline std::string Contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream out;
  out << file.rdbuf();
  return std::move(out).str();
}

inline bool Exists(const std::string& path) { return std::filesystem::exists(path); }

/// What a child does not take over from the tests' environment ...
inline const char* const kUnsetVariables[] = {
    "JAX_PLATFORMS", "HF_TOKEN",  "HF_HUB_CACHE", "NEEDLE_FAULT", "PJRT_NAMES_AND_LIBRARY_PATHS",
    "XLA_FLAGS",     "PYTHONPATH"};

/// ... and what it gets: no test looks at this machine's devices or into the user's cache.
inline Variables DefaultVariables(const std::string& folder) {
  return {{"NEEDLE_DEVICE", "cpu"},
          {"NEEDLE_CACHE_DIR", folder + "/cache"},
          {"HF_HOME", folder + "/hub"},
          {"HF_HUB_OFFLINE", "1"}};
}

}  // namespace needle::test
