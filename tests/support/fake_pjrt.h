// A copy of the fake plugin in a place and a mode of its own (tests/backend/pjrt/fake_plugin.cc).
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace needle::test {

/// How a process ends that a plugin aborts.
#ifdef _WIN32
constexpr const char* kAborted = "exited with status 3";
#else
constexpr const char* kAborted = "was ended by signal 6";
#endif

/// Copies the fake plugin to `path`; `mode` has a key=value a line.
inline std::string PutFakePlugin(const std::string& path, const std::string& mode,
                                 const std::string& from = NEEDLE_FAKE_PLUGIN) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::filesystem::copy_file(from, path, std::filesystem::copy_options::overwrite_existing);
  std::ofstream(path + ".mode") << mode << "\n";
  return path;
}

/// How often it was loaded.
inline int LoadsOf(const std::string& path) {
  std::ifstream log(path + ".log");
  int loads = 0;
  for (std::string line; std::getline(log, line);) ++loads;
  return loads;
}

}  // namespace needle::test
