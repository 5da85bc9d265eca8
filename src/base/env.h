// Environment variables, UTF-8 on every system. Thread-safe as long as nobody changes the
// environment meanwhile.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace needle {

/// The variable's value, or nullopt when it is not set (an empty value counts as set).
#ifdef _WIN32
std::optional<std::string> GetEnv(const char* name);  // os_process_win.cc
#else
inline std::optional<std::string> GetEnv(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}
#endif

/// The variable's value, or `fallback` when it is not set or empty.
inline std::string GetEnvOr(const char* name, const std::string& fallback) {
  const auto value = GetEnv(name);
  return value && !value->empty() ? *value : fallback;
}

}  // namespace needle
