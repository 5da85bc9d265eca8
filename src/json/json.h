// JSON documents that remember what a prompt needs: the number's own text, the order of keys,
// Python's rules for duplicates (first position, last value), NaN/Infinity, and Python's dump.
// Source of the rules: Python 3 json.loads / json.dumps as upstream uses them (docs/formats.md).
// Thread-safety: values; const access from many threads is fine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace needle::json {

enum class Kind { kNull, kBool, kInt, kFloat, kString, kArray, kObject };

class Value {
 public:
  Value() = default;  // null
  static Value Null() { return Value(); }
  static Value Bool(bool b);
  static Value Int(int64_t v);
  static Value Float(double v);
  /// An integer or float by its own JSON text (any number of digits); must be valid.
  static Value Number(std::string text);
  static Value String(std::string s);
  static Value Array(std::vector<Value> items = {});
  /// Duplicate keys keep the first position and the last value, as in a parsed document.
  static Value Object(std::vector<std::pair<std::string, Value>> members = {});

  Kind kind() const { return kind_; }
  bool is_null() const { return kind_ == Kind::kNull; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_int() const { return kind_ == Kind::kInt; }
  bool is_float() const { return kind_ == Kind::kFloat; }
  bool is_number() const { return is_int() || is_float(); }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_array() const { return kind_ == Kind::kArray; }
  bool is_object() const { return kind_ == Kind::kObject; }

  bool as_bool() const { return bool_; }
  /// The number as a double (exact for floats; large integers round; NaN and infinities possible).
  double as_double() const;
  /// The integer, if it is one (or a float with an integral value) and fits.
  std::optional<int64_t> as_int64() const;
  /// A string's text, or a number's canonical text (integers: all digits; floats: Python repr).
  const std::string& text() const { return text_; }
  const std::string& as_string() const { return text_; }

  const std::vector<Value>& items() const { return items_; }
  std::vector<Value>& items() { return items_; }
  const std::vector<std::pair<std::string, Value>>& members() const { return members_; }
  std::vector<std::pair<std::string, Value>>& members() { return members_; }
  /// The member of an object, or nullptr (also when this is no object).
  const Value* Find(std::string_view key) const;
  /// Sets a member: replaces in place, or appends.
  void Set(std::string key, Value value);

 private:
  Kind kind_ = Kind::kNull;
  bool bool_ = false;
  std::string text_;
  std::vector<Value> items_;
  std::vector<std::pair<std::string, Value>> members_;
};

/// Parses one whole document (Python json.loads: NaN, Infinity, -Infinity accepted; duplicate keys
/// keep the first position and the last value; lone surrogate escapes are an error that says so).
/// The error names the byte offset and what was expected. Nesting is limited to 512; the time is
/// linear in the text, whatever is in it.
Result<Value> Parse(std::string_view text);

/// Python json.dumps(v, separators=(",", ":"), ensure_ascii=False).
std::string Dump(const Value& value);

/// Python's repr of a float: shortest digits that round-trip, "1.0", "1e-05", "1.5e+300", "nan" is
/// written NaN, infinities Infinity and -Infinity.
std::string PythonFloat(double v);

/// Equal as JSON values: key order ignored, numbers by their exact value (1 equals 1.0, and true
/// equals no number), NaN equals NaN, strings exact.
bool Equal(const Value& a, const Value& b);

}  // namespace needle::json
