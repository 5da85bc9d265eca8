#include "json/number.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <locale>
#include <sstream>
#include <system_error>

#include "json/json.h"

namespace needle::json {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

size_t DigitsFrom(std::string_view text, size_t at) {
  const size_t start = at;
  while (at < text.size() && IsDigit(text[at])) ++at;
  return at - start;
}

// Length of "[eE][+-]?[0-9]+" at `at`, or 0.
size_t ExponentFrom(std::string_view text, size_t at) {
  const size_t start = at;
  if (at >= text.size() || (text[at] != 'e' && text[at] != 'E')) return 0;
  ++at;
  if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
  const size_t digits = DigitsFrom(text, at);
  return digits == 0 ? 0 : at + digits - start;
}

// The value of the exponent part, saturated far outside the range of doubles.
int64_t ExponentValue(std::string_view text) {
  const size_t e = text.find_first_of("eE");
  if (e == std::string_view::npos) return 0;
  const bool negative = text[e + 1] == '-';
  int64_t value = 0;
  for (const char c : text.substr(e + 1))
    if (IsDigit(c)) value = std::min<int64_t>(value * 10 + (c - '0'), int64_t{1} << 40);
  return negative ? -value : value;
}

// For a non-zero number outside the range of doubles: is it too large (else it is too small)?
// Its first non-zero digit decides: above or below the units place.
bool IsTooLarge(std::string_view text) {
  const size_t end = std::min(text.find_first_of("eE"), text.size());
  const size_t point = std::min(text.find('.'), end);
  const size_t first = text.find_first_of("123456789");
  const int64_t place =
      first < point ? static_cast<int64_t>(point - first) : -static_cast<int64_t>(first - point);
  return place + ExponentValue(text) > 0;
}

// The nearest double, or false when the number lies outside their range.
bool NearestDouble(std::string_view text, double& value) {
#if defined(__cpp_lib_to_chars)
  return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc();
#else  // a standard library that cannot read floating-point numbers without a locale
  std::istringstream in{std::string(text)};
  in.imbue(std::locale::classic());
  return static_cast<bool>(in >> value) && value != 0;
#endif
}

bool IsZero(std::string_view text) {
  return text.substr(0, text.find_first_of("eE")).find_first_of("123456789") ==
         std::string_view::npos;
}

// Shortest digits that round-trip and the decimal exponent of the first: 1.5e300 is {"15", 300}.
struct Shortest {
  std::string digits;
  int exponent = 0;
};

Shortest ShortestDigits(double magnitude) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), magnitude,
                                 std::chars_format::scientific)
                       .ptr;
  const std::string_view text(buffer.data(), static_cast<size_t>(end - buffer.data()));
  const size_t e = text.find('e');
  Shortest out;
  for (const char c : text.substr(0, e))
    if (IsDigit(c)) out.digits += c;
  const size_t digits = text[e + 1] == '+' ? e + 2 : e + 1;
  std::from_chars(text.data() + digits, text.data() + text.size(), out.exponent);
  return out;
}

std::string ExponentForm(const Shortest& s) {
  std::string out = s.digits.substr(0, 1);
  if (s.digits.size() > 1) out += "." + s.digits.substr(1);
  out += s.exponent < 0 ? "e-" : "e+";
  const int magnitude = std::abs(s.exponent);
  return out + (magnitude < 10 ? "0" : "") + std::to_string(magnitude);
}

std::string PlainForm(const Shortest& s) {
  if (s.exponent < 0)
    return "0." + std::string(static_cast<size_t>(-s.exponent - 1), '0') + s.digits;
  const size_t whole = static_cast<size_t>(s.exponent) + 1;
  if (s.digits.size() <= whole) return s.digits + std::string(whole - s.digits.size(), '0') + ".0";
  return s.digits.substr(0, whole) + "." + s.digits.substr(whole);
}

}  // namespace

NumberToken ScanNumber(std::string_view text) {
  size_t at = !text.empty() && text[0] == '-' ? 1 : 0;
  const size_t digits = DigitsFrom(text, at);
  if (digits == 0) return {};
  at += text[at] == '0' ? 1 : digits;
  const size_t whole = at;
  if (at < text.size() && text[at] == '.') {
    const size_t fraction = DigitsFrom(text, at + 1);
    if (fraction > 0) at += 1 + fraction;
  }
  at += ExponentFrom(text, at);
  return {at, at > whole};
}

double ToDouble(std::string_view text) {
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  const bool negative = !text.empty() && text[0] == '-';
  const std::string_view magnitude = text.substr(negative ? 1 : 0);
  double value = 0;
  if (magnitude == "Infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (!IsZero(magnitude) && !NearestDouble(magnitude, value)) {
    value = IsTooLarge(magnitude) ? std::numeric_limits<double>::infinity() : 0.0;
  }
  return negative ? -value : value;
}

std::string ExactInteger(double v) {
  if (!std::isfinite(v) || v != std::trunc(v)) return "";
  std::array<char, 400> buffer;  // 309 digits at most
  const double unsigned_zero = v == 0 ? 0.0 : v;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), unsigned_zero,
                                 std::chars_format::fixed, 0)
                       .ptr;
  return std::string(buffer.data(), end);
}

std::string PythonFloat(double v) {
  if (std::isnan(v)) return "NaN";
  if (std::isinf(v)) return v < 0 ? "-Infinity" : "Infinity";
  const Shortest s = ShortestDigits(std::abs(v));
  const std::string sign = std::signbit(v) ? "-" : "";
  return sign + (s.exponent < -4 || s.exponent >= 16 ? ExponentForm(s) : PlainForm(s));
}

}  // namespace needle::json
