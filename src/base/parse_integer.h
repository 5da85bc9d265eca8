// A whole text as an integer. Thread-safe.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace needle {

/// Decimal digits, with a minus where T has one; nullopt for anything else and what T cannot hold.
template <class T>
std::optional<T> ParseInteger(std::string_view text) {
  T value{};
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, value);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return value;
}

}  // namespace needle
