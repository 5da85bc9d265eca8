// Paths between this program, where they are UTF-8, and std::filesystem, which on Windows takes a
// plain string for text of the user's code page. Thread-safe.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace needle {

inline std::filesystem::path NativePath(std::string_view utf8) {
  return std::filesystem::path(std::u8string(utf8.begin(), utf8.end()));
}

/// The path as it is written, in UTF-8.
inline std::string Utf8Path(const std::filesystem::path& path) {
  const std::u8string text = path.u8string();
  return std::string(text.begin(), text.end());
}

}  // namespace needle
