// Text helpers that know ASCII only, whatever the locale. Thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace needle {

/// A to Z become a to z; other bytes stay.
inline std::string AsciiLower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

/// Without blanks, tabs and line ends at both ends.
inline std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

}  // namespace needle
