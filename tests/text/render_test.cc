#include "text/render.h"

#include <gtest/gtest.h>

namespace needle {
namespace {

RenderedExample Render(const std::string& line) {
  const auto rendered = RenderExample(*json::Parse(line));
  EXPECT_TRUE(rendered.ok()) << rendered.error().message();
  return *rendered;
}

std::string ErrorOf(const std::string& line) {
  const auto rendered = RenderExample(*json::Parse(line));
  return rendered.ok() ? "" : rendered.error().message();
}

TEST(StripPython, RemovesUnicodeWhiteSpaceAtBothEndsOnly) {
  EXPECT_EQ(StripPython("\u00a0\u3000\x1c a\u2028b \u205f\r\n"), "a\u2028b");
  EXPECT_EQ(StripPython(" \t"), "");
  EXPECT_EQ(StripPython(""), "");
}

TEST(StripPython, KeepsZeroWidthSpaceAndByteOrderMark) {
  EXPECT_EQ(StripPython("\u200b"), "\u200b");
  EXPECT_EQ(StripPython("\ufeff "), "\ufeff");
}

TEST(StripPython, LeavesBrokenBytesAlone) {
  EXPECT_EQ(StripPython(" \x80\x80\x80\x80\x80 "), "\x80\x80\x80\x80\x80");
  EXPECT_EQ(StripPython("\xC2"), "\xC2");
}

TEST(Render, BuildsThePromptAndTheTarget) {
  const auto r = Render(
      R"({"query":" q ","tools":[{"name":"x"}],"answers":[],"system":" s ","reasoning":" r\n"})");
  EXPECT_EQ(r.prompt,
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\n<tools>[{\"name\":\"x\"}]</tools>\n"
            " q <|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(r.target, "<think>\nr\n</think>\n<tool_call>[]</tool_call><|im_end|>");
}

TEST(Render, PrefersAnswersEvenWhenNullToFunctionCalls) {
  EXPECT_EQ(Render(R"({"query":"q","answers":null,"function_calls":[1]})").target,
            "<tool_call>null</tool_call><|im_end|>");
  EXPECT_EQ(Render(R"({"query":"q","function_calls":[1]})").target,
            "<tool_call>[1]</tool_call><|im_end|>");
  EXPECT_EQ(Render(R"({"query":"q"})").target, "<tool_call>[]</tool_call><|im_end|>");
}

TEST(Render, InsertsStringsVerbatim) {
  const auto r = Render(R"({"query":"q","tools":" [ ] ","answers":"[ 1 ]"})");
  EXPECT_NE(r.prompt.find("<tools> [ ] </tools>"), std::string::npos);
  EXPECT_EQ(r.target, "<tool_call>[ 1 ]</tool_call><|im_end|>");
}

TEST(Render, SharesThePromptWithTheRunner) {
  EXPECT_EQ(Render(R"({"query":"q","tools":[{"name":"x"}],"system":"s"})").prompt,
            RenderPrompt(" s\n", RenderTools(*json::Parse(R"([{"name": "x"}])")), "q"));
}

TEST(Render, SaysWhatIsWrongWithALine) {
  EXPECT_NE(ErrorOf("[]").find("not a JSON object"), std::string::npos);
  EXPECT_NE(ErrorOf("{}").find("no \"query\""), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"query":[1]})").find("\"query\" is [1]"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"query":"q","system":3})").find("\"system\" is 3"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"query":"q","reasoning":{}})").find("\"reasoning\""), std::string::npos);
}

}  // namespace
}  // namespace needle
