// Test support: a folder of its own for a test, removed with all its contents at the end.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <random>
#include <string>

namespace needle::test {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::random_device random;  // tests run side by side, in processes of their own
    const uint64_t name = (uint64_t{random()} << 32) | random();
    path_ = testing::TempDir() + "needle_test_" + std::to_string(name);
    std::filesystem::create_directory(path_);
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }
  /// The path of a file in the folder.
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

/// Whether this system lets programs make symbolic links, and the C++ library can.
inline bool LinksWork() {
  const ScratchFolder folder;
  std::error_code error;
  std::filesystem::create_symlink("target", folder.File("link"), error);
  return !error;
}

}  // namespace needle::test
