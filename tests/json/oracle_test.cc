// Our JSON against nlohmann-json, on random documents and on random near-documents.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "json/json.h"

namespace needle::json {
namespace {

using Oracle = nlohmann::ordered_json;

// Uniform in [low, high): inRange alone follows RapidCheck's growing size and starts near `low`.
int Pick(int low, int high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(low, high));
}

std::string RandomText() {
  std::string out;
  const auto points = *rc::gen::container<std::vector<uint32_t>>(
      rc::gen::oneOf(rc::gen::inRange<uint32_t>(0, 0x80), rc::gen::inRange<uint32_t>(0x80, 0xD800),
                     rc::gen::inRange<uint32_t>(0xE000, 0x110000)));
  for (const uint32_t c : points) {
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 63))};
    } else if (c < 0x10000) {
      out += {static_cast<char>(0xE0 | (c >> 12)), static_cast<char>(0x80 | ((c >> 6) & 63)),
              static_cast<char>(0x80 | (c & 63))};
    } else {
      out += {static_cast<char>(0xF0 | (c >> 18)), static_cast<char>(0x80 | ((c >> 12) & 63)),
              static_cast<char>(0x80 | ((c >> 6) & 63)), static_cast<char>(0x80 | (c & 63))};
    }
  }
  return out;
}

double RandomFinite() {
  return *rc::gen::suchThat(rc::gen::map(rc::gen::arbitrary<uint64_t>(),
                                         [](uint64_t bits) { return std::bit_cast<double>(bits); }),
                            [](double v) { return std::isfinite(v); });
}

constexpr int kDepth = 4;

// An array or object of up to four entries at the top, anything below, kDepth levels deep at most.
Oracle RandomDocument(int depth) {
  switch (depth == kDepth ? Pick(6, 8) : Pick(0, depth > 0 ? 8 : 6)) {
    case 0:
      return nullptr;
    case 1:
      return *rc::gen::arbitrary<bool>();
    case 2:
      return *rc::gen::arbitrary<int64_t>();
    case 3:
      return *rc::gen::arbitrary<double>();
    case 4:
      return RandomFinite();
    case 5:
      return RandomText();
    case 6: {
      Oracle array = Oracle::array();
      for (int i = Pick(0, 5); i > 0; --i) array.push_back(RandomDocument(depth - 1));
      return array;
    }
    default: {
      Oracle object = Oracle::object();
      for (int i = Pick(0, 5); i > 0; --i) object[RandomText()] = RandomDocument(depth - 1);
      return object;
    }
  }
}

// Python's Infinity, also as the value of 1e999, is an error to the oracle.
bool IsComparable(const Result<Value>& ours) {
  return !ours.ok() || Dump(*ours).find("Infinity") == std::string::npos;
}

TEST(JsonOracle, EveryDumpOfTheOracleIsReadAndWrittenBackWithTheSameMeaning) {
  size_t bytes = 0;
  EXPECT_TRUE(rc::check([&] {
    const Oracle document = RandomDocument(kDepth);
    const int indent = *rc::gen::element(-1, 0, 3);
    const std::string text = document.dump(indent, ' ', *rc::gen::arbitrary<bool>());
    const auto ours = Parse(text);
    RC_ASSERT(ours.ok());
    RC_ASSERT(Oracle::parse(Dump(*ours)) == document);
    RC_ASSERT(Dump(*Parse(Dump(*ours))) == Dump(*ours));
    RC_ASSERT(Equal(*ours, *Parse(Dump(*ours))));
    bytes += text.size();
  }));
  EXPECT_GT(bytes, 5000u);  // the documents were worth reading
}

TEST(JsonOracle, StringsAreDumpedAlike) {
  EXPECT_TRUE(rc::check([] {
    const std::string text = RandomText();
    RC_ASSERT(Dump(Value::String(text)) == Oracle(text).dump());
  }));
}

// A short text over JSON's own alphabet: many are valid, and most others almost are.
std::string RandomNearDocument() {
  static const std::vector<std::string> kPieces = {
      "{",    "}",     "[",    "]",       ",",       ":",     "\"", "\"a\"",
      "\\",   "\\u00", "e9",   "\\ud83d", "\\ude00", "0",     "1",  "-",
      ".",    "e",     "E+",   "null",    "true",    "false", " ",  "\n",
      "\x01", "\xC3",  "\xA9", "7",       "\"k\":",  "[1]",   "{}"};
  std::string text;
  for (int i = Pick(0, 10); i > 0; --i)
    text += kPieces[static_cast<size_t>(Pick(0, static_cast<int>(kPieces.size())))];
  return text;
}

TEST(JsonOracle, AcceptsExactlyWhatTheOracleAccepts) {
  int accepted = 0;
  EXPECT_TRUE(rc::check([&] {
    for (int i = 0; i < 30; ++i) {
      const std::string text = RandomNearDocument();
      const auto ours = Parse(text);
      if (!IsComparable(ours)) continue;
      RC_ASSERT(ours.ok() == Oracle::accept(text));
      accepted += ours.ok();
    }
  }));
  EXPECT_GT(accepted, 20);  // of 3000
}

TEST(JsonOracle, OneChangedByteIsJudgedAlike) {
  EXPECT_TRUE(rc::check([] {
    std::string text = RandomDocument(kDepth).dump();
    const size_t at = static_cast<size_t>(Pick(0, static_cast<int>(text.size())));
    text[at] = static_cast<char>(
        *rc::gen::oneOf(rc::gen::inRange(0, 256), rc::gen::element<int>('"', ',', '0', '.', 'e')));
    const auto ours = Parse(text);
    RC_PRE(IsComparable(ours));
    RC_ASSERT(ours.ok() == Oracle::accept(text));
  }));
}

}  // namespace
}  // namespace needle::json
