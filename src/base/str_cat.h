// StrCat("line ", 3, ": ", 0.5f): text from pieces, for error sentences and names.
// Numbers print as std::ostream prints them (floats with 9 digits). Thread-safe.
#pragma once

#include <sstream>
#include <string>

namespace needle {

template <class... Pieces>
std::string StrCat(const Pieces&... pieces) {
  std::ostringstream out;
  out.precision(9);
  (out << ... << pieces);
  return std::move(out).str();
}

}  // namespace needle
