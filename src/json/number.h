// Numbers of JSON text: their grammar, and their way to and from doubles, whatever the locale.
// Source of the rules: Python 3's json module and float repr. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace needle::json {

/// A number at the start of a text: its length (0: none) and whether it has a fraction or exponent.
struct NumberToken {
  size_t length = 0;
  bool is_float = false;
};

/// The longest prefix that is -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?, as Python scans it:
/// "1.x" holds the integer 1.
NumberToken ScanNumber(std::string_view text);

/// The nearest double; overflow gives an infinity, underflow a zero. Takes what ScanNumber accepts,
/// and NaN, Infinity, -Infinity.
double ToDouble(std::string_view text);

/// All digits of a double without a fraction ("100000000000000000000"), "" for any other.
std::string ExactInteger(double v);

}  // namespace needle::json
