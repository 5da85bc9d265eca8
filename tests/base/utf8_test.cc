#include "base/utf8.h"

#include <gtest/gtest.h>

namespace needle {
namespace {

TEST(Utf8, EveryCodePointGoesThroughAndBack) {
  std::string all;
  size_t count = 0;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string one;
    AppendUtf8(one, c);
    const CodePoint back = DecodeUtf8(one, 0);
    ASSERT_EQ(back.value, c);
    ASSERT_EQ(back.length, one.size());
    ASSERT_EQ(one.size(), c < 0x80 ? 1u : c < 0x800 ? 2u : c < 0x10000 ? 3u : 4u);
    all += one;
    ++count;
  }
  EXPECT_EQ(count, 0x110000u - 0x800u);
  EXPECT_TRUE(IsValidUtf8(all));
}

TEST(Utf8, RefusesOverlongFormsSurrogatesAndValuesBeyondUnicode) {
  for (const char* bad : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF",
                          "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x80\x80\x80", "\xF0\x8F\xBF\xBF",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xC3",
                          "\xC3"
                          "A",
                          "\xE2\x82",
                          "\xE2\x82"
                          "A",
                          "\xF0\x9F\x98",
                          "\xF0\x9F\x98"
                          "A"}) {
    EXPECT_EQ(DecodeUtf8(bad, 0).length, 0u) << bad;
    EXPECT_EQ(ValidUtf8Length(std::string("ok") + bad), 2u) << bad;
  }
}

TEST(Utf8, SaysHowFarATextIsValid) {
  EXPECT_EQ(ValidUtf8Length(""), 0u);
  EXPECT_EQ(ValidUtf8Length("a\xC3\xA9\xF0\x9F\x98\x80"), 7u);
  EXPECT_EQ(ValidUtf8Length("a\xC3\xA9\xF0\x9F\x98"), 3u);
  EXPECT_TRUE(IsValidUtf8(std::string_view("\0x", 2)));
  EXPECT_EQ(DecodeUtf8("a", 1).length, 0u);
}

}  // namespace
}  // namespace needle
