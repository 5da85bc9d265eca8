#include "json/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <ctime>
#include <fstream>
#include <limits>

#include "base/str_cat.h"
#include "support/npz.h"

namespace needle::json {
namespace {

// What Python's json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False) gives.
std::string Redump(std::string_view text) {
  const auto value = Parse(text);
  return value.ok() ? Dump(*value) : "error: " + value.error().message();
}

std::string ErrorOf(std::string_view text) {
  const auto value = Parse(text);
  return value.ok() ? "" : value.error().message();
}

void ExpectError(std::string_view text, std::string_view piece) {
  const std::string error = ErrorOf(text);
  EXPECT_NE(error.find(piece), std::string::npos) << "for " << text << "\ngot: " << error;
}

TEST(Json, DumpsCompactlyAndKeepsTheOrderOfKeys) {
  EXPECT_EQ(Redump(" { \"b\" : [ 1 , true , null ] ,\t\"a\" : { } , \"c\":[ ]\r\n} "),
            R"({"b":[1,true,null],"a":{},"c":[]})");
}

TEST(Json, KeepsAllDigitsOfIntegers) {
  for (const char* text :
       {"0", "7", "-12", "123456789012345678901234567890", "-999999999999999999999999999999999"}) {
    EXPECT_EQ(Redump(text), text);
    EXPECT_TRUE(Parse(text)->is_int());
  }
}

TEST(Json, DropsTheSignOfIntegerZeroButKeepsThatOfFloatZero) {
  EXPECT_EQ(Redump("-0"), "0");
  EXPECT_EQ(Redump("-0.0"), "-0.0");
  EXPECT_EQ(Redump("-0e5"), "-0.0");
  EXPECT_EQ(Redump("0e999999999999999999999"), "0.0");
}

TEST(Json, SpellsFloatsAsPythonDoes) {
  const std::pair<const char*, const char*> cases[] = {
      {"1.0", "1.0"},
      {"1.50", "1.5"},
      {"1e2", "100.0"},
      {"1E+2", "100.0"},
      {"1e16", "1e+16"},
      {"1e15", "1000000000000000.0"},
      {"0.0001", "0.0001"},
      {"0.00001", "1e-05"},
      {"123456789012345680.0", "1.2345678901234568e+17"},
      {"1234567890123456.0", "1234567890123456.0"},
      {"5e-324", "5e-324"},
      {"1.7976931348623157e308", "1.7976931348623157e+308"},
      {"1.5e300", "1.5e+300"},
      {"0.1000000000000000055511151231257827", "0.1"},
      {"2.5e-7", "2.5e-07"},
      {"1e-100", "1e-100"}};
  for (const auto& [text, want] : cases) EXPECT_EQ(Redump(text), want) << text;
}

TEST(Json, TurnsOverflowIntoInfinityAndUnderflowIntoZero) {
  const std::string zeros(400, '0');
  EXPECT_EQ(Redump("1e400"), "Infinity");
  EXPECT_EQ(Redump("-1e400"), "-Infinity");
  EXPECT_EQ(Redump("1e99999999999999999999999999"), "Infinity");
  EXPECT_EQ(Redump("1e-400"), "0.0");
  EXPECT_EQ(Redump("-1e-99999999999999999999999999"), "-0.0");
  EXPECT_EQ(Redump("1" + zeros + ".0"), "Infinity");
  EXPECT_EQ(Redump("0." + zeros + "1"), "0.0");
  EXPECT_EQ(Redump("1" + zeros + "e-400"), "1.0");
  EXPECT_EQ(Redump("0." + zeros + "1e401"), "1.0");
  EXPECT_EQ(Redump("1.7976931348623159e308"), "Infinity");
  EXPECT_EQ(Redump("2e-324"), "0.0");
  EXPECT_EQ(Redump("3e-324"), "5e-324");
}

TEST(Json, AcceptsAndWritesBackNanAndInfinities) {
  EXPECT_EQ(Redump("[NaN,Infinity,-Infinity]"), "[NaN,Infinity,-Infinity]");
  EXPECT_TRUE(std::isnan(Parse("NaN")->as_double()));
  EXPECT_EQ(Parse("-Infinity")->as_double(), -std::numeric_limits<double>::infinity());
  for (const char* text : {"-NaN", "nan", "Inf", "+Infinity", "infinity"})
    EXPECT_NE(ErrorOf(text), "") << text;
}

TEST(Json, DuplicateKeysKeepTheFirstPositionAndTheLastValue) {
  EXPECT_EQ(Redump(R"({"a":1,"b":2,"a":3,"c":4,"a":5})"), R"({"a":5,"b":2,"c":4})");
  const Value built = Value::Object({{"x", Value::Int(1)}, {"y", Value()}, {"x", Value::Int(2)}});
  EXPECT_EQ(Dump(built), R"({"x":2,"y":null})");
}

TEST(Json, DuplicateKeysFollowTheSameRuleInLongObjects) {
  std::string text = "{", want = "{";
  for (int round = 0; round < 2; ++round)
    for (int i = 0; i < 100; ++i) text += StrCat("\"k", i, "\":", round * 1000 + i, ",");
  text.back() = '}';
  for (int i = 0; i < 100; ++i) want += StrCat("\"k", i, "\":", 1000 + i, ",");
  want.back() = '}';
  EXPECT_EQ(Redump(text), want);
}

TEST(Json, EscapesOnlyWhatPythonEscapes) {
  EXPECT_EQ(Redump(R"("\u0000\u001f\u007f\u2028\/\b\f\n\r\t\"\\")"),
            "\"\\u0000\\u001f\x7f\xE2\x80\xA8/\\b\\f\\n\\r\\t\\\"\\\\\"");
  EXPECT_EQ(Redump("{\"\\n\\u00e9\":\"\\u00E9\"}"), "{\"\\n\xC3\xA9\":\"\xC3\xA9\"}");
}

TEST(Json, JoinsSurrogatePairsAndRefusesHalves) {
  EXPECT_EQ(Parse(R"("\ud83d\ude00")")->as_string(), "\xF0\x9F\x98\x80");
  EXPECT_EQ(Parse(R"("\uDBFF\uDFFF")")->as_string(), "\xF4\x8F\xBF\xBF");
  for (const char* text : {R"("x\ud800")", R"("x\udc00")", R"("x\ud800\u0041")", R"("x\ud800\n")",
                           R"("x\ud800\ud800")", R"("x\ude00\ud83d")"})
    ExpectError(text, "byte 2");
  ExpectError(R"("\ud800")", "half of a surrogate pair");
}

TEST(Json, RefusesInvalidUtf8AndNamesTheByte) {
  ExpectError("\"ab\xFF\"", "byte 3");
  ExpectError("\"\xED\xA0\x80\"", "byte 1");  // a surrogate in UTF-8's clothes
  ExpectError("\"\xC0\xAF\"", "not valid UTF-8");
  ExpectError("\xEF\xBB\xBF{}", "byte order mark");
}

TEST(Json, ErrorsNameTheByteAndWhatWasExpected) {
  ExpectError("", "byte 0: found the end of the text where a value was expected");
  ExpectError("[1,]", "byte 3: found ']' where a value was expected");
  ExpectError("{\"a\":1,}", "byte 7: found '}' where a key in double quotes was expected");
  ExpectError("{\"a\" 1}", "byte 5: found '1' where ':' was expected");
  ExpectError("[1 2]", "byte 3: found '2' where ',' or ']' was expected");
  ExpectError("{\"a\":1 \"b\"}", "found '\"' where ',' or '}' was expected");
  ExpectError("1 2", "byte 2: found '2' where the end of the document was expected");
  ExpectError("[\"abc", "byte 1: this string has no closing");
  ExpectError("\"a\nb\"", "byte 2: control character 10 inside a string");
  ExpectError("\"a\x1f\"", "\\u001f");
  ExpectError("\"\\x41\"", "byte 2: found 'x' where one of");
  ExpectError("\"\\u12g4\"", "byte 5: found 'g' where four hex digits after \\u was expected");
  ExpectError("\"\\u12", "found the end of the text where four hex digits");
  ExpectError("\"\\", "where an escape was expected");
  ExpectError("\xC3\xA9", "found '\xC3\xA9' where a value was expected");
}

TEST(Json, RefusesWhatPythonRefuses) {
  for (const char* text : {"01",
                           "1.",
                           ".5",
                           "1e",
                           "1e+",
                           "+1",
                           "-",
                           "--1",
                           "0x10",
                           "1_000",
                           "tru",
                           "nulll",
                           "True",
                           "'a'",
                           "{a:1}",
                           "{1:1}",
                           "[",
                           "{",
                           "]",
                           "[1",
                           "{\"a\"",
                           "{\"a\":",
                           "[,1]",
                           "[1,,2]",
                           "// c\n1",
                           "\"\\'\"",
                           "\"a",
                           "\xC2\xA0"
                           "1",
                           "\v1"})
    EXPECT_NE(ErrorOf(text), "") << text;
}

TEST(Json, NestingIsLimitedWithoutOverflowingTheStack) {
  const auto nested = [](size_t n) { return std::string(n, '[') + std::string(n, ']'); };
  EXPECT_EQ(Redump(nested(512)), nested(512));
  ExpectError(nested(513), "nested more than 512 levels");
  ExpectError(std::string(1000000, '['), "byte 512: nested more than 512 levels");
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  ExpectError(objects, "nested more than 512 levels");
}

// The least processor time of three readings of an object of so many keys.
double SecondsToRead(int keys) {
  std::string text = "{";
  for (int i = 0; i < keys; ++i) text += StrCat("\"key", i, "\":", i, ",");
  text.back() = '}';
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 3; ++i) {
    const std::clock_t start = std::clock();
    EXPECT_EQ(Parse(text)->members().size(), static_cast<size_t>(keys));
    least = std::min(least, static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC);
  }
  return least;
}

TEST(Json, ReadsManyKeysInLinearTime) {
  // Eight times the keys take 8 times as long when the time is linear, 64 times when quadratic.
  EXPECT_LT(SecondsToRead(64000), 32 * SecondsToRead(8000));
}

TEST(Json, NumbersConvert) {
  EXPECT_EQ(Parse("12")->as_int64(), 12);
  EXPECT_EQ(Parse("12.0")->as_int64(), 12);
  EXPECT_EQ(Parse("1e3")->as_int64(), 1000);
  EXPECT_EQ(Parse("12.5")->as_int64(), std::nullopt);
  EXPECT_EQ(Parse("NaN")->as_int64(), std::nullopt);
  EXPECT_EQ(Parse("1e400")->as_int64(), std::nullopt);
  EXPECT_EQ(Parse("9223372036854775807")->as_int64(), INT64_MAX);
  EXPECT_EQ(Parse("-9223372036854775808")->as_int64(), INT64_MIN);
  EXPECT_EQ(Parse("9223372036854775808")->as_int64(), std::nullopt);
  EXPECT_EQ(Parse("9223372036854775808.0")->as_int64(), std::nullopt);
  EXPECT_EQ(Parse("\"12\"")->as_int64(), std::nullopt);
  EXPECT_EQ(Parse("123456789012345678901234567890")->as_double(), 123456789012345678901234567890.0);
  EXPECT_EQ(Value::Number("-0").text(), "0");
  EXPECT_EQ(Value::Number("1E1").text(), "10.0");
  EXPECT_EQ(Value::Int(INT64_MIN).text(), "-9223372036854775808");
  EXPECT_EQ(Value::Float(-0.0).text(), "-0.0");
}

TEST(Json, FindsAndSetsMembers) {
  Value object = *Parse(R"({"a":1,"b":2})");
  ASSERT_NE(object.Find("b"), nullptr);
  EXPECT_EQ(object.Find("b")->as_int64(), 2);
  EXPECT_EQ(object.Find("c"), nullptr);
  EXPECT_EQ(Parse("[1]")->Find("a"), nullptr);
  object.Set("a", Value::String("x"));
  object.Set("c", Value::Null());
  EXPECT_EQ(Dump(object), R"({"a":"x","b":2,"c":null})");
}

TEST(Json, EqualComparesValues) {
  const std::pair<const char*, const char*> same[] = {
      {"1", "1.0"},
      {"-0", "0.0"},
      {"0.0", "-0.0"},
      {"NaN", "NaN"},
      {"1e400", "Infinity"},
      {"100000000000000000000", "1e20"},
      {R"({"a":1,"b":[1,2]})", R"({"b":[1.0,2],"a":1})"},
      {"\"\\u0041\"", "\"A\""},
      {"{}", "{}"}};
  for (const auto& [a, b] : same) EXPECT_TRUE(Equal(*Parse(a), *Parse(b))) << a << " " << b;
  const std::pair<const char*, const char*> different[] = {
      {"1", "2"},
      {"1", "true"},
      {"0", "false"},
      {"0", "null"},
      {"1", "\"1\""},
      {"9007199254740993", "9007199254740992.0"},
      {"100000000000000000001", "1e20"},
      {"1", "1.5"},
      {"1", "NaN"},
      {"Infinity", "-Infinity"},
      {"[1,2]", "[2,1]"},
      {"[1]", "[1,1]"},
      {"[]", "{}"},
      {R"({"a":1})", R"({"a":1,"b":1})"},
      {R"({"a":1})", R"({"b":1})"},
      {R"({"a":1})", R"({"a":2})"},
      {"\"a\"", "\"A\""}};
  for (const auto& [a, b] : different) {
    EXPECT_FALSE(Equal(*Parse(a), *Parse(b))) << a << " " << b;
    EXPECT_FALSE(Equal(*Parse(b), *Parse(a))) << b << " " << a;
  }
}

// Lines "<bits in hex> <json.dumps>" written by Python: edge values, random bits, random decimals.
TEST(PythonFloat, SpellsFourHundredFloatsAsPython) {
  std::ifstream in(test::Golden("python_floats.txt"));
  std::string bits, want;
  int lines = 0;
  for (; in >> bits >> want; ++lines) {
    const double v = std::bit_cast<double>(static_cast<uint64_t>(std::stoull(bits, nullptr, 16)));
    EXPECT_EQ(PythonFloat(v), want);
    EXPECT_EQ(Redump(want), want);
    EXPECT_EQ(std::bit_cast<uint64_t>(Parse(want)->as_double()), std::bit_cast<uint64_t>(v));
  }
  EXPECT_EQ(lines, 400);
}

}  // namespace
}  // namespace needle::json
