#include "grammar/byte_automaton.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "grammar/utf8.h"
#include "grammar/validator.h"
#include "json/json.h"

namespace needle::grammar {
namespace {

json::Value Json(const std::string& text) {
  Result<json::Value> value = json::Parse(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? *value : json::Value();
}

ByteAutomaton Of(const std::string& schema) {
  Result<SchemaGraph> graph = CompileSchema(Json(schema));
  EXPECT_TRUE(graph.ok()) << (graph.ok() ? "" : graph.error().message());
  return ByteAutomaton(std::make_shared<const SchemaGraph>(std::move(*graph)));
}

bool Reads(ByteAutomaton& a, const std::string& text) { return a.Accepts(a.Next(a.Start(), text)); }

void ExpectReads(const std::string& schema, const std::vector<std::string>& yes,
                 const std::vector<std::string>& no) {
  ByteAutomaton a = Of(schema);
  for (const std::string& text : yes)
    EXPECT_TRUE(Reads(a, text)) << schema << " must read " << text;
  for (const std::string& text : no) EXPECT_FALSE(Reads(a, text)) << schema << " reads " << text;
}

TEST(ByteAutomaton, ReadsStringsExactlyAsPythonDumpsThem) {
  ExpectReads(R"({"type":"string"})",
              {R"("")", R"("a b")", R"("\"\\\n\r\t\f\b")", R"("\u0000\u0007\u000b\u000e\u001f")",
               "\"\x7f/\u2028 \u00e9 \u65e5 \U0001F600\""},
              {"", "\"", "\"a", "a", R"("\u0041")", R"("\u000a")", R"("\u001F")", R"("\/")",
               "\"\n\"", "\"\x01\"", R"("a"")", R"("\x")", "'a'"});
}

TEST(ByteAutomaton, RefusesStringsThatAreNotUtf8) {
  ExpectReads(R"({"type":"string"})", {"\"\xF4\x8F\xBF\xBF\"", "\"\xED\x9F\xBF\""},
              {"\"\x80\"", "\"\xC0\x80\"", "\"\xC3\"", "\"\xE0\x80\x80\"", "\"\xED\xA0\x80\"",
               "\"\xF0\x80\x80\x80\"", "\"\xF4\x90\x80\x80\"", "\"\xFF\""});
}

TEST(ByteAutomaton, ReadsNumbersAsPythonDumpsThem) {
  ExpectReads(R"({"type":"number"})",
              {"0", "-0", "-0.0", "12", "-3.5", "1e-05", "1.5e+300", "1e+16",
               "123456789012345678901234567890"},
              {"", "-", "01", "1.", ".5", "+1", "1e5", "1E+05", "1e+5", "NaN", "--1", "1 "});
  ExpectReads(R"({"type":"integer"})", {"0", "7", "-12", "123456789012345678901234567890"},
              {"-0", "1.0", "1e+16", "00", "-", "-01"});
}

TEST(ByteAutomaton, ReadsLiteralsOfEveryKind) {
  ExpectReads(R"({"type":"boolean"})", {"true", "false"}, {"null", "tru", "True", "truex"});
  ExpectReads(R"({"type":"null"})", {"null"}, {"nul", "0"});
  ExpectReads(R"({"enum":["a","ab",1,12,1.5,null,true,[1,"x"],{"k":[]}]})",
              {R"("a")", R"("ab")", "1", "12", "1.5", "null", "true", R"([1,"x"])", R"({"k":[]})"},
              {"a", "13", "1.", R"("abc")", "[1]", "{}"});
  ExpectReads(R"({"const":{"b":1,"a":"é"}})", {R"({"b":1,"a":"é"})"}, {R"({"a":"é","b":1})"});
}

TEST(ByteAutomaton, TakesOnlyTheEnumValuesOfTheDeclaredType) {
  ExpectReads(R"({"type":"string","enum":["a",1]})", {R"("a")"}, {"1"});
  EXPECT_FALSE(CompileSchema(Json(R"({"type":"string","enum":[1,2]})")).ok());
}

TEST(ByteAutomaton, ReadsArraysWithinTheirLimits) {
  ExpectReads(R"({"type":"array","items":{"type":"integer"}})", {"[]", "[1]", "[1,2,3,4,5,6]"},
              {"[", "[1", "[1,]", "[,1]", "[ ]", "[1, 2]", R"(["a"])"});
  ExpectReads(R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":2})",
              {"[1]", "[1,2]"}, {"[]", "[1,2,3]"});
  ExpectReads(R"({"type":"array","items":{"type":"integer"},"minItems":3})",
              {"[1,2,3]", "[1,2,3,4]"}, {"[]", "[1,2]"});
  ExpectReads(R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"});
}

TEST(ByteAutomaton, ReadsObjectKeysInAnyOrderOnceEach) {
  ExpectReads(
      R"({"type":"object","properties":{"a":{"type":"integer"},"ab":{"type":"boolean"},"b\"":{}},)"
      R"("required":["a"]})",
      {R"({"a":1})", R"({"ab":true,"a":1})", R"({"a":1,"ab":false})", R"({"b\"":[{}],"a":0})",
       R"({"b\"":"x","ab":true,"a":0})"},
      {"{}", R"({"ab":true})", R"({"a":1,"a":2})", R"({"a":1,})", R"({"a":"1"})", R"({"c":1})",
       R"({"a": 1})", R"({"a":1,"ab":true,"b\"":1,"a":1})", R"({,"a":1})", R"({"a"})"});
}

TEST(ByteAutomaton, OffersNoCommaAndNoSharedBeginningWhenOnlyUsedKeysAreLeft) {
  ByteAutomaton a = Of(R"({"type":"object","properties":{"abc":{"type":"integer"},)"
                       R"("abd":{"type":"integer"},"x":{"type":"integer"}}})");
  EXPECT_NE(ByteAutomaton::kDead, a.Next(a.Start(), R"({"abc":1,"ab)"));
  EXPECT_EQ(ByteAutomaton::kDead, a.Next(a.Start(), R"({"abc":1,"abc)"));
  EXPECT_EQ(ByteAutomaton::kDead, a.Next(a.Start(), R"({"abc":1,"abd":2,"a)"));
  EXPECT_EQ(ByteAutomaton::kDead, a.Next(a.Start(), R"({"abc":1,"abd":2,"x":3,)"));
}

TEST(ByteAutomaton, AnObjectWithoutPropertiesTakesAnyKeys) {
  ExpectReads(R"({"type":"object"})", {"{}", R"({"k":[1,{"z":null}],"":"v"})"}, {"{,}", "[]"});
  ExpectReads(R"({"type":"object","additionalProperties":{"type":"integer"}})",
              {"{}", R"({"k":1,"l":2})"}, {R"({"k":"v"})"});
  ExpectReads(R"({"type":"object","properties":{}})", {"{}"}, {R"({"k":1})"});
}

TEST(ByteAutomaton, ASchemaWithoutATypeAllowsEveryValue) {
  ExpectReads("{}", {"1", R"("a")", "[]", R"([1,"a",{"b":[]}])", "true", "-2.5"},
              {"", "nan", "[1"});
  ExpectReads("true", {"1", "{}"}, {"x"});
}

TEST(ByteAutomaton, ReadsAlternatives) {
  ExpectReads(R"({"type":["string","null","integer"]})", {R"("a")", "null", "5"}, {"true", "5.5"});
  ExpectReads(R"({"anyOf":[{"type":"integer"},{"type":"array","items":{"type":"string"}}]})",
              {"3", R"(["a"])"}, {R"("a")", "[3]"});
  ExpectReads(
      R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"v":{"type":"integer"}}},)"
      R"({"type":"object","properties":{"k":{"const":"b"},"v":{"type":"string"}}}]})",
      {R"({"k":"a","v":1})", R"({"k":"b","v":"x"})", R"({"v":1,"k":"a"})"},
      {R"({"k":"a","v":"x"})", R"({"v":1,"k":"b"})"});
  ExpectReads(R"({"type":"integer","nullable":true})", {"1", "null"}, {"true"});
  ExpectReads(R"({"allOf":[{"type":"integer"}]})", {"1"}, {R"("a")"});
  ExpectReads(
      R"({"type":"object","properties":{"a":{"type":"integer"}},"anyOf":[{"required":["a"]}]})",
      {R"({"a":1})"}, {R"({"b":1})"});
}

TEST(ByteAutomaton, FollowsReferencesAlsoIntoThemselves) {
  ExpectReads(R"({"$defs":{"t/x":{"type":"object","properties":{"v":{"type":"integer"},"next":)"
              R"({"anyOf":[{"$ref":"#/$defs/t~1x"},{"type":"null"}]}},"required":["v"]}},)"
              R"("$ref":"#/$defs/t~1x"})",
              {R"({"v":1})", R"({"v":1,"next":{"v":2,"next":null}})"},
              {R"({"v":1,"next":{}})", R"({"next":null})"});
  for (const char* bad :
       {R"({"$ref":"http://a/b"})", R"({"$ref":"#/$defs/no"})", R"({"$ref":"#"})", R"({"$ref":7})",
        R"({"$defs":{"a":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})"})
    EXPECT_FALSE(CompileSchema(Json(bad)).ok()) << bad;
}

TEST(ByteAutomaton, RefusesSchemasThatNothingSatisfies) {
  for (const char* bad :
       {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
        R"({"type":"array","items":{"$ref":"#"},"minItems":1})", "false", R"({"enum":[]})",
        R"({"type":"array","minItems":2,"maxItems":1})", R"({"type":"sting"})", R"({"type":[]})",
        R"({"type":"array","minItems":-1})", R"({"anyOf":[]})", R"({"properties":[1]})", "7",
        R"({"type":"object","properties":{"a":{}},"required":["b"]})"}) {
    const Result<SchemaGraph> graph = CompileSchema(Json(bad));
    ASSERT_FALSE(graph.ok()) << bad;
    EXPECT_EQ(Code::kInvalidArgument, graph.error().code());
    EXPECT_GT(graph.error().message().size(), 20u) << graph.error().message();
  }
}

TEST(ByteAutomaton, LimitsNestingWithoutGettingStuck) {
  ByteAutomaton a = Of("{}");
  std::string open(kMaxDepth, '[');
  ByteAutomaton::State state = a.Next(a.Start(), open);
  ASSERT_NE(ByteAutomaton::kDead, state);
  EXPECT_EQ(ByteAutomaton::kDead, a.Next(state, "["));
  EXPECT_EQ(ByteAutomaton::kDead, a.Next(state, "{"));
  EXPECT_TRUE(a.Accepts(a.Next(state, "1" + std::string(kMaxDepth, ']'))));
}

TEST(ByteAutomaton, ManyOverlappingAlternativesStayBounded) {
  // Two different lists at every level: 2^64 stacks if each were kept.
  ByteAutomaton a = Of(R"({"anyOf":[{"type":"array","items":{"$ref":"#"}},)"
                       R"({"type":"array","items":{"$ref":"#"},"maxItems":9},{"type":"null"}]})");
  const std::string text = std::string(40, '[') + "null" + std::string(40, ']');
  EXPECT_TRUE(Reads(a, text));
}

TEST(ByteAutomaton, AHugeEnumKeepsEveryValue) {
  std::string schema = R"({"enum":[)";
  for (int i = 0; i < 20000; ++i) schema += "\"value " + std::to_string(i) + "\",";
  schema += "0]}";
  ByteAutomaton a = Of(schema);
  for (int i = 0; i < 20000; i += 777) EXPECT_TRUE(Reads(a, "\"value " + std::to_string(i) + "\""));
  EXPECT_FALSE(Reads(a, "\"value 20000\""));
}

TEST(ByteAutomaton, CompactKeepsWhatMayFollow) {
  ByteAutomaton a = Of(R"({"type":"object","properties":{"a":{"type":"array","items":{}},)"
                       R"("b":{"type":["string","integer"]},"c":{}},"required":["c"]})");
  ByteAutomaton b = Of(R"({"type":"object","properties":{"a":{"type":"array","items":{}},)"
                       R"("b":{"type":["string","integer"]},"c":{}},"required":["c"]})");
  const std::string text = R"({"b":12,"a":[1,{"x":"y"}],"c":"é"})";
  ByteAutomaton::State compacted = a.Start(), plain = b.Start();
  for (size_t i = 0; i < text.size(); ++i) {
    compacted = a.Compact(a.Next(compacted, text.substr(i, 1)));
    plain = b.Next(plain, text.substr(i, 1));
    ASSERT_NE(ByteAutomaton::kDead, compacted) << text.substr(0, i + 1);
    for (int byte = 0; byte < 256; ++byte)
      EXPECT_EQ(a.Next(compacted, static_cast<uint8_t>(byte)) == ByteAutomaton::kDead,
                b.Next(plain, static_cast<uint8_t>(byte)) == ByteAutomaton::kDead);
  }
  EXPECT_TRUE(a.Accepts(compacted));
}

TEST(ByteAutomaton, RandomWalksGiveValidDocumentsAndNeverStop) {
  const std::string schema =
      R"({"$defs":{"t":{"type":"object","properties":{"v":{"type":"integer"},"n":{"anyOf":)"
      R"([{"$ref":"#/$defs/t"},{"type":"null"}]}},"required":["v"]}},"type":"object","properties":)"
      R"({"s":{"type":"string"},"e":{"enum":["a","ab",1,12]},"l":{"type":"array","items":{"type":)"
      R"(["number","boolean"]},"minItems":1,"maxItems":3},"t":{"$ref":"#/$defs/t"},"any":{}},)"
      R"("required":["l","e"]})";
  const json::Value parsed = Json(schema);
  ByteAutomaton a = Of(schema);
  std::mt19937 random(7);
  int complete = 0;
  for (int walk = 0; walk < 300; ++walk) {
    std::string text;
    ByteAutomaton::State state = a.Start();
    while (!a.Accepts(state) && text.size() < 3000) {
      std::vector<int> allowed;
      for (int byte = 0; byte < 256; ++byte)
        if (a.Next(state, static_cast<uint8_t>(byte)) != ByteAutomaton::kDead) {
          allowed.push_back(byte);
          if (byte == '"' || byte == '}' || byte == ']') allowed.insert(allowed.end(), 60, byte);
        }
      ASSERT_FALSE(allowed.empty()) << text;
      text.push_back(static_cast<char>(allowed[random() % allowed.size()]));
      state = a.Next(state, static_cast<uint8_t>(text.back()));
    }
    if (!a.Accepts(state)) continue;
    ++complete;
    const Result<json::Value> value = json::Parse(text);
    ASSERT_TRUE(value.ok()) << text << ": " << value.error().message();
    EXPECT_TRUE(test::Valid(*value, parsed, parsed)) << text;
  }
  EXPECT_GT(complete, 250);
}

TEST(Utf8, AgreesWithADecoderOnEveryCodePoint) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    std::string s;
    if (c < 0x80) {
      s = {static_cast<char>(c)};
    } else if (c < 0x800) {
      s = {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 63))};
    } else if (c < 0x10000) {
      s = {static_cast<char>(0xE0 | (c >> 12)), static_cast<char>(0x80 | ((c >> 6) & 63)),
           static_cast<char>(0x80 | (c & 63))};
    } else {
      s = {static_cast<char>(0xF0 | (c >> 18)), static_cast<char>(0x80 | ((c >> 12) & 63)),
           static_cast<char>(0x80 | ((c >> 6) & 63)), static_cast<char>(0x80 | (c & 63))};
    }
    Utf8 state = Utf8::kBoundary;
    for (size_t i = 0; i < s.size(); ++i) {
      ASSERT_TRUE(i == 0 || state != Utf8::kBoundary);
      state = Utf8Next(state, static_cast<uint8_t>(s[i]));
    }
    const bool surrogate = c >= 0xD800 && c < 0xE000;
    ASSERT_EQ(surrogate, state != Utf8::kBoundary) << c;
  }
}

}  // namespace
}  // namespace needle::grammar
