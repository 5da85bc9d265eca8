#include "runtime/output.h"

#include <gtest/gtest.h>

#include <limits>

#include "runtime/sampling.h"

namespace needle {
namespace {

std::string Calls(const ParsedOutput& parsed) {
  return parsed.calls ? json::Dump(*parsed.calls) : "none";
}

TEST(Output, TakesReasoningAndCallsApart) {
  const ParsedOutput parsed = ParseOutput(
      "<think>\n'den' -> room </think> early\n</think>\n<tool_call>[{\"name\":\"a\",\"arguments\":"
      "{\"x\":\"</tool_call>\"}}]</tool_call><|im_end|>");
  EXPECT_EQ("'den' -> room </think> early", parsed.reasoning);
  EXPECT_EQ(R"([{"name":"a","arguments":{"x":"</tool_call>"}}])", Calls(parsed));
  EXPECT_EQ("", parsed.error);
}

TEST(Output, AnEmptyListIsARefusalAndNoCallIsText) {
  EXPECT_EQ("[]", Calls(ParseOutput("<tool_call>[]</tool_call><|im_end|>")));
  EXPECT_EQ("none", Calls(ParseOutput("hello")));
  EXPECT_EQ("", ParseOutput("hello").error);
  EXPECT_EQ("none", Calls(ParseOutput("")));
}

TEST(Output, SaysWhyCallsCannotBeRead) {
  for (const char* text :
       {"<tool_call>[", "<tool_call>[</tool_call>", "<tool_call>7</tool_call>",
        "<tool_call>[{}]</tool_call>", "<tool_call>[{\"name\":1}]</tool_call>",
        "<tool_call>[{\"name\":\"a\",\"arguments\":[]}]</tool_call>", "</tool_call><tool_call>"}) {
    const ParsedOutput parsed = ParseOutput(text);
    EXPECT_FALSE(parsed.calls.has_value()) << text;
    EXPECT_GT(parsed.error.size(), 20u) << text;
  }
}

TEST(Output, ReadsCallsFromListsTextsAndNull) {
  const auto calls = [](const char* text) {
    const Result<json::Value> parsed = ParseCalls(*json::Parse(text));
    return parsed.ok() ? json::Dump(*parsed) : "error";
  };
  EXPECT_EQ("[]", calls("null"));
  EXPECT_EQ("[]", calls(R"("[]")"));
  EXPECT_EQ(R"([{"name":"a","arguments":{}}])", calls(R"([{"name":"a"}])"));
  EXPECT_EQ(R"([{"name":"a","arguments":{"b":1}}])",
            calls(R"("[{\"arguments\":{\"b\":1},\"name\":\"a\"}]")"));
  EXPECT_EQ("error", calls(R"("[")"));
  EXPECT_EQ("error", calls(R"("\"x\"")"));
  EXPECT_EQ("error", calls("{}"));
}

TEST(Greedy, TakesTheLargestAllowedLogitAndTheLowestIdOnTies) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits = {1, 3, nan, 3, 9};
  grammar::TokenMask mask(5);
  EXPECT_EQ(-1, Greedy(logits, &mask));
  mask.Set(2);
  EXPECT_EQ(-1, Greedy(logits, &mask));
  mask.Set(3);
  EXPECT_EQ(3, Greedy(logits, &mask));
  mask.Set(1);
  EXPECT_EQ(1, Greedy(logits, &mask));
  EXPECT_EQ(4, Greedy(logits, nullptr));
}

TEST(Greedy, ProbabilitiesAreASoftmax) {
  const std::vector<float> logits = {1000, 1001, 999};
  double sum = 0;
  for (int32_t id = 0; id < 3; ++id) sum += Probability(logits, id);
  EXPECT_NEAR(1, sum, 1e-12);
  EXPECT_NEAR(std::exp(1.0), Probability(logits, 1) / Probability(logits, 0), 1e-9);
}

}  // namespace
}  // namespace needle
