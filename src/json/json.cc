#include "json/json.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <unordered_map>

#include "base/str_cat.h"
#include "base/utf8.h"
#include "json/number.h"

namespace needle::json {

using Members = std::vector<std::pair<std::string, Value>>;

namespace {

// Adds members one by one under Python's rule for duplicates. Short objects are searched; from
// kIndexed members on, a hash map keeps the time linear.
class MemberBuilder {
 public:
  void Add(std::string key, Value value) {
    if (Value* old = Find(key)) {
      *old = std::move(value);
      return;
    }
    if (!index_.empty()) index_.emplace(key, members_.size());
    members_.emplace_back(std::move(key), std::move(value));
    if (members_.size() == kIndexed) BuildIndex();
  }
  Members Take() { return std::move(members_); }

 private:
  static constexpr size_t kIndexed = 16;

  Value* Find(const std::string& key) {
    if (!index_.empty()) {
      const auto found = index_.find(key);
      return found == index_.end() ? nullptr : &members_[found->second].second;
    }
    for (auto& member : members_)
      if (member.first == key) return &member.second;
    return nullptr;
  }
  void BuildIndex() {
    for (size_t i = 0; i < members_.size(); ++i) index_.emplace(members_[i].first, i);
  }

  Members members_;
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace

Value Value::Bool(bool b) {
  Value v;
  v.kind_ = Kind::kBool;
  v.bool_ = b;
  return v;
}

Value Value::Int(int64_t i) {
  Value v;
  v.kind_ = Kind::kInt;
  v.text_ = std::to_string(i);
  return v;
}

Value Value::Float(double d) {
  Value v;
  v.kind_ = Kind::kFloat;
  v.text_ = PythonFloat(d);
  return v;
}

Value Value::Number(std::string text) {
  const NumberToken token = ScanNumber(text);
  assert(token.length == text.size() && token.length > 0);
  if (token.is_float) return Float(ToDouble(text));
  Value v;
  v.kind_ = Kind::kInt;
  v.text_ = text == "-0" ? "0" : std::move(text);
  return v;
}

Value Value::String(std::string s) {
  Value v;
  v.kind_ = Kind::kString;
  v.text_ = std::move(s);
  return v;
}

Value Value::Array(std::vector<Value> items) {
  Value v;
  v.kind_ = Kind::kArray;
  v.items_ = std::move(items);
  return v;
}

Value Value::Object(Members members) {
  MemberBuilder builder;
  for (auto& member : members) builder.Add(std::move(member.first), std::move(member.second));
  Value v;
  v.kind_ = Kind::kObject;
  v.members_ = builder.Take();
  return v;
}

double Value::as_double() const {
  assert(is_number());
  return ToDouble(text_);
}

std::optional<int64_t> Value::as_int64() const {
  if (is_int()) {
    int64_t v = 0;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), v);
    if (error != std::errc()) return std::nullopt;
    return v;
  }
  if (!is_float()) return std::nullopt;
  const double v = as_double();
  if (!(v >= -0x1p63 && v < 0x1p63) || v != std::trunc(v)) return std::nullopt;
  return static_cast<int64_t>(v);
}

const Value* Value::Find(std::string_view key) const {
  for (const auto& member : members_)
    if (member.first == key) return &member.second;
  return nullptr;
}

void Value::Set(std::string key, Value value) {
  assert(is_object());
  for (auto& member : members_) {
    if (member.first != key) continue;
    member.second = std::move(value);
    return;
  }
  members_.emplace_back(std::move(key), std::move(value));
}

namespace {

constexpr int kMaxDepth = 512;

// A recursive descent over valid UTF-8; recursion is bounded by kMaxDepth.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Value> Document() {
    NEEDLE_ASSIGN(Value value, ParseValue(0));
    SkipSpace();
    if (at_ < text_.size()) return Expected("the end of the document");
    return value;
  }

 private:
  Error At(size_t offset, const std::string& what) const {
    return Error(Code::kInvalidArgument, StrCat("JSON, byte ", offset, ": ", what));
  }
  Error Expected(std::string_view wanted) const {
    return At(at_, StrCat("found ", Here(), " where ", wanted, " was expected"));
  }
  // What stands at the cursor, quoted for an error sentence.
  std::string Here() const {
    if (at_ >= text_.size()) return "the end of the text";
    const size_t length = DecodeUtf8(text_, at_).length;
    if (static_cast<unsigned char>(text_[at_]) < 0x20)
      return StrCat("control character ", static_cast<int>(text_[at_]));
    return StrCat("'", text_.substr(at_, length), "'");
  }

  void SkipSpace() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
      ++at_;
  }
  // Skips white space, then takes `c` if it is next.
  bool Take(char c) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool TakeWord(std::string_view word) {
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  Result<Value> ParseValue(int depth) {
    SkipSpace();
    if (at_ >= text_.size()) return Expected("a value");
    switch (text_[at_]) {
      case '{':
        return ParseObject(depth + 1);
      case '[':
        return ParseArray(depth + 1);
      case '"':
        return ParseStringValue();
      default:
        return ParseWordOrNumber();
    }
  }

  Result<Value> ParseStringValue() {
    NEEDLE_ASSIGN(std::string text, ParseString());
    return Value::String(std::move(text));
  }

  Result<Value> ParseWordOrNumber() {
    if (TakeWord("null")) return Value::Null();
    if (TakeWord("true")) return Value::Bool(true);
    if (TakeWord("false")) return Value::Bool(false);
    if (TakeWord("NaN")) return Value::Float(std::numeric_limits<double>::quiet_NaN());
    if (TakeWord("Infinity")) return Value::Float(std::numeric_limits<double>::infinity());
    if (TakeWord("-Infinity")) return Value::Float(-std::numeric_limits<double>::infinity());
    const NumberToken token = ScanNumber(text_.substr(at_));
    if (token.length == 0) return Expected("a value");
    std::string text(text_.substr(at_, token.length));
    at_ += token.length;
    return Value::Number(std::move(text));
  }

  Status CheckDepth(int depth) const {
    if (depth <= kMaxDepth) return {};
    return At(at_, StrCat("nested more than ", kMaxDepth, " levels deep; use fewer brackets"));
  }

  Result<Value> ParseArray(int depth) {
    NEEDLE_TRY(CheckDepth(depth));
    ++at_;  // [
    std::vector<Value> items;
    if (Take(']')) return Value::Array(std::move(items));
    while (true) {
      NEEDLE_ASSIGN(Value item, ParseValue(depth));
      items.push_back(std::move(item));
      if (Take(']')) return Value::Array(std::move(items));
      if (!Take(',')) return Expected("',' or ']'");
    }
  }

  Result<Value> ParseObject(int depth) {
    NEEDLE_TRY(CheckDepth(depth));
    ++at_;  // {
    MemberBuilder members;
    if (Take('}')) return Value::Object(members.Take());
    while (true) {
      SkipSpace();
      if (at_ >= text_.size() || text_[at_] != '"') return Expected("a key in double quotes");
      NEEDLE_ASSIGN(std::string key, ParseString());
      if (!Take(':')) return Expected("':'");
      NEEDLE_ASSIGN(Value value, ParseValue(depth));
      members.Add(std::move(key), std::move(value));
      if (Take('}')) return Value::Object(members.Take());
      if (!Take(',')) return Expected("',' or '}'");
    }
  }

  Result<std::string> ParseString() {
    const size_t start = at_++;  // "
    std::string out;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return out;
      }
      if (static_cast<unsigned char>(c) < 0x20)
        return At(at_, StrCat("control character ", static_cast<int>(c),
                              " inside a string; write it as an escape such as \\n or \\u00",
                              c < 0x10 ? "0" : "1", "0123456789abcdef"[c & 15]));
      if (c == '\\') {
        NEEDLE_TRY(ParseEscape(out));
      } else {
        out += c;
        ++at_;
      }
    }
    return At(start, "this string has no closing '\"'");
  }

  Status ParseEscape(std::string& out) {
    const size_t start = at_++;  // backslash
    if (at_ >= text_.size()) return Expected("an escape");
    constexpr std::string_view kNames = "\"\\/bfnrt", kBytes = "\"\\/\b\f\n\r\t";
    const size_t plain = kNames.find(text_[at_]);
    if (plain != std::string_view::npos) {
      out += kBytes[plain];
      ++at_;
      return {};
    }
    if (text_[at_] != 'u') return Expected("one of \" \\ / b f n r t u after a backslash");
    ++at_;
    return ParseUnicodeEscape(start, out);
  }

  // After "\u": four hex digits, and for a high surrogate the low one that must follow.
  Status ParseUnicodeEscape(size_t start, std::string& out) {
    NEEDLE_ASSIGN(char32_t unit, ParseHex4());
    if (unit >= 0xD800 && unit <= 0xDBFF && TakeWord("\\u")) {
      NEEDLE_ASSIGN(const char32_t low, ParseHex4());
      if (low < 0xDC00 || low > 0xDFFF) return LoneSurrogate(start);
      unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
    } else if (unit >= 0xD800 && unit <= 0xDFFF) {
      return LoneSurrogate(start);
    }
    AppendUtf8(out, unit);
    return {};
  }
  Error LoneSurrogate(size_t start) const {
    return At(start, StrCat(text_.substr(start, 6),
                            " is half of a surrogate pair, which is no character by itself; write "
                            "the character itself or both halves (\\ud83d\\ude00)"));
  }

  Result<char32_t> ParseHex4() {
    char32_t value = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const int digit = at_ < text_.size() ? HexDigit(text_[at_]) : -1;
      if (digit < 0) return Expected("four hex digits after \\u");
      value = value * 16 + static_cast<char32_t>(digit);
    }
    return value;
  }
  static int HexDigit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  }

  std::string_view text_;
  size_t at_ = 0;
};

void DumpString(std::string_view s, std::string& out) {
  out += '"';
  for (const char c : s) {
    constexpr std::string_view kBytes = "\"\\\n\r\t\f\b", kNames = "\"\\nrtfb";
    const size_t named = kBytes.find(c);
    if (named != std::string_view::npos) {
      out += {'\\', kNames[named]};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += {'\\', 'u', '0', '0', c < 0x10 ? '0' : '1', "0123456789abcdef"[c & 15]};
    } else {
      out += c;
    }
  }
  out += '"';
}

void DumpTo(const Value& value, std::string& out);

void DumpArray(const Value& value, std::string& out) {
  out += '[';
  for (size_t i = 0; i < value.items().size(); ++i) {
    if (i > 0) out += ',';
    DumpTo(value.items()[i], out);
  }
  out += ']';
}

void DumpObject(const Value& value, std::string& out) {
  out += '{';
  for (size_t i = 0; i < value.members().size(); ++i) {
    if (i > 0) out += ',';
    DumpString(value.members()[i].first, out);
    out += ':';
    DumpTo(value.members()[i].second, out);
  }
  out += '}';
}

void DumpTo(const Value& value, std::string& out) {
  switch (value.kind()) {
    case Kind::kNull:
      out += "null";
      return;
    case Kind::kBool:
      out += value.as_bool() ? "true" : "false";
      return;
    case Kind::kInt:
    case Kind::kFloat:
      out += value.text();
      return;
    case Kind::kString:
      return DumpString(value.text(), out);
    case Kind::kArray:
      return DumpArray(value, out);
    case Kind::kObject:
      return DumpObject(value, out);
  }
}

bool EqualNumbers(const Value& a, const Value& b) {
  if (a.kind() == b.kind()) {
    // Canonical texts: equal numbers are spelled alike, except for the two float zeros.
    return a.text() == b.text() || (a.is_float() && a.as_double() == b.as_double());
  }
  const double real = a.is_float() ? a.as_double() : b.as_double();
  return ExactInteger(real) == (a.is_int() ? a : b).text();
}

bool EqualArrays(const Value& a, const Value& b) {
  return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), Equal);
}

std::vector<const std::pair<std::string, Value>*> SortedByKey(const Value& object) {
  std::vector<const std::pair<std::string, Value>*> out;
  for (const auto& member : object.members()) out.push_back(&member);
  std::sort(out.begin(), out.end(), [](auto* x, auto* y) { return x->first < y->first; });
  return out;
}

bool EqualObjects(const Value& a, const Value& b) {
  if (a.members().size() != b.members().size()) return false;
  const auto x = SortedByKey(a), y = SortedByKey(b);
  for (size_t i = 0; i < x.size(); ++i)
    if (x[i]->first != y[i]->first || !Equal(x[i]->second, y[i]->second)) return false;
  return true;
}

}  // namespace

Result<Value> Parse(std::string_view text) {
  const size_t valid = ValidUtf8Length(text);
  if (valid < text.size())
    return Error(Code::kInvalidArgument,
                 StrCat("JSON, byte ", valid, ": byte ",
                        static_cast<int>(static_cast<unsigned char>(text[valid])),
                        " is not valid UTF-8; save the text as UTF-8"));
  if (text.substr(0, 3) == "\xEF\xBB\xBF")
    return Error(
        Code::kInvalidArgument,
        "JSON, byte 0: the text starts with a byte order mark; save it as UTF-8 without one");
  return Parser(text).Document();
}

std::string Dump(const Value& value) {
  std::string out;
  DumpTo(value, out);
  return out;
}

bool Equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return EqualNumbers(a, b);
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kBool:
      return a.as_bool() == b.as_bool();
    case Kind::kString:
      return a.text() == b.text();
    case Kind::kArray:
      return EqualArrays(a, b);
    case Kind::kObject:
      return EqualObjects(a, b);
    default:
      return true;  // null; numbers were compared above
  }
}

}  // namespace needle::json
