#include "runtime/engine.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>
#include <thread>

#include "runtime/fake_model.h"
#include "support/npz.h"
#include "text/render.h"

namespace needle {
namespace {

const char* kTools =
    R"([{"name":"set_lamp","parameters":{"type":"object","properties":{"room":{"type":"string"},)"
    R"("level":{"type":"integer"}},"required":["room"]}},{"name":"stop","parameters":{}}])";
const char* kOtherTools = R"([{"name":"stop","parameters":{}}])";

std::string Target(const std::string& calls) {
  return "<tool_call>" + calls + "</tool_call><|im_end|>";
}

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() : tokenizer_(*Tokenizer::Load(test::Golden("nano/tokenizer.model"))) {}

  Session Open(std::map<std::string, std::string> answers, size_t max_length = 4096) {
    auto engine = Engine::Make(tokenizer_, [this, answers, max_length] {
      return std::make_unique<test::FakeModel>(tokenizer_, answers, max_length);
    });
    EXPECT_TRUE(engine.ok());
    return Session(*engine);
  }
  Session WithTools(std::map<std::string, std::string> answers, size_t max_length = 4096) {
    Session session = Open(std::move(answers), max_length);
    EXPECT_TRUE(session.SetContext("", *json::Parse(kTools)).ok());
    return session;
  }
  static Completion Get(Session& session, const std::string& query,
                        const CompleteOptions& options = {}) {
    Result<Completion> completion = session.Complete(query, options);
    EXPECT_TRUE(completion.ok()) << (completion.ok() ? "" : completion.error().message());
    return completion.ok() ? *completion : Completion();
  }
  static test::FakeModel& Fake(Session& session) {
    return static_cast<test::FakeModel&>(session.model());
  }

  Tokenizer tokenizer_;
};

TEST_F(EngineTest, AnswersWithTheCallsThatTheModelWrites) {
  const std::string calls = R"([{"name":"set_lamp","arguments":{"room":"dén","level":20}}])";
  Session session = WithTools({{"dim the", Target(calls)}, {"nothing", Target("[]")}});
  const Completion call = Get(session, "dim the den");
  EXPECT_EQ(CompletionType::kCall, call.type);
  EXPECT_TRUE(call.ok());
  EXPECT_EQ(calls, json::Dump(call.calls));
  EXPECT_EQ(Target(calls), call.text);
  EXPECT_EQ(*tokenizer_.Encode(Target(calls)), call.tokens);
  EXPECT_EQ(call.tokens.size(), call.probabilities.size());
  const Completion refusal = Get(session, "nothing to do");
  EXPECT_EQ(CompletionType::kRefuse, refusal.type);
  EXPECT_TRUE(refusal.ok());
}

TEST_F(EngineTest, KeepsReasoningApart) {
  Session session = WithTools({{"q", "<think>\nlook: 日本\n</think>\n" + Target("[]")}});
  const Completion completion = Get(session, "q");
  EXPECT_EQ("look: 日本", completion.reasoning);
  EXPECT_EQ(CompletionType::kRefuse, completion.type);
}

TEST_F(EngineTest, WithoutTheGrammarTheAnswerIsTheModelsOwn) {
  Session session = WithTools({{"free", "hello there"},
                               {"bad", Target("[{]")},
                               {"other", Target(R"([{"name":"unknown","arguments":{"x":1}}])")}});
  CompleteOptions options;
  options.constrain = false;
  const Completion text = Get(session, "free", options);
  EXPECT_EQ(CompletionType::kRespond, text.type);
  EXPECT_EQ("hello there", text.text);
  EXPECT_TRUE(text.ok());
  const Completion bad = Get(session, "bad", options);
  EXPECT_EQ("malformed", bad.error_code);
  EXPECT_EQ(CompletionType::kCall, Get(session, "other", options).type);
}

TEST_F(EngineTest, TheGrammarTurnsAWrongWishIntoAnAllowedCall) {
  Session session = WithTools({{"q", Target(R"([{"name":"unknown","arguments":{"x":1}}])")}});
  CompleteOptions options;
  options.max_new_tokens = 4000;
  const Completion completion = Get(session, "q", options);
  const std::string text = completion.text;
  EXPECT_EQ(std::string::npos, text.find("unknown")) << text;
  EXPECT_TRUE(completion.ok() ? completion.type != CompletionType::kRespond
                              : completion.truncated());
}

TEST_F(EngineTest, ATruncatedAnswerIsNoRefusal) {
  Session session =
      WithTools({{"q", Target(R"([{"name":"set_lamp","arguments":{"room":"den"}}])")}});
  CompleteOptions options;
  options.max_new_tokens = 6;
  const Completion completion = Get(session, "q", options);
  EXPECT_TRUE(completion.truncated());
  EXPECT_EQ(CompletionType::kRespond, completion.type);
  EXPECT_EQ(6u, completion.tokens.size());
  EXPECT_TRUE(completion.calls.items().empty());
  EXPECT_EQ("truncated", ToJson(completion).Find("error_code")->as_string());
}

TEST_F(EngineTest, ATruncatedAnswerNamesTheLimitAsTheCallerKnowsIt) {
  Session session = WithTools({{"q", Target("[]")}});
  CompleteOptions options;
  options.max_new_tokens = 2;
  EXPECT_NE(std::string::npos, Get(session, "q", options).error.find("(max_new_tokens)"));
  options.limit_name = "--max-len";
  EXPECT_NE(std::string::npos, Get(session, "q", options).error.find("(--max-len)"));
  options.limit_name = "";
  EXPECT_EQ("the answer did not end within 2 tokens", Get(session, "q", options).error);
}

TEST_F(EngineTest, ALogitThatIsNoNumberIsAnErrorWhateverItsId) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity})
    for (const bool constrain : {true, false}) {
      Session session = WithTools({{"q", Target("[]")}});
      Fake(session).last_logit_ = bad;
      CompleteOptions options;
      options.constrain = constrain;
      const Result<Completion> completion = session.Complete("q", options);
      ASSERT_FALSE(completion.ok()) << bad;
      EXPECT_EQ(Code::kInternal, completion.error().code());
      EXPECT_NE(std::string::npos, completion.error().message().find("not all numbers"));
      Fake(session).last_logit_.reset();
      EXPECT_EQ(CompletionType::kRefuse, Get(session, "q").type) << "the next query is answered";
    }
}

TEST_F(EngineTest, ADevicesErrorIsTheQuerysAndTheNextQueryStartsAnew) {
  Session session = WithTools({{"q", Target("[]")}});
  const Completion want = Get(session, "q");
  Fake(session).error_ = Error(Code::kUnavailable, "the device has gone");
  const Result<Completion> failed = session.Complete("q too");
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ("the device has gone", failed.error().message());
  EXPECT_EQ(0u, session.model().length());
  const Completion again = Get(session, "q");
  EXPECT_EQ(want.tokens, again.tokens);
  EXPECT_EQ(0u, again.reused_tokens);
}

TEST_F(EngineTest, ReasoningHasItsOwnBudgetAndEndsBetweenCodePoints) {
  const std::string thought =
      "日本語の天気を教えて、大阪、日本語の天気を教えて、大阪、日本語の天気";
  Session session = WithTools({{"q", "<think>\n" + thought + "\n</think>\n" + Target("[]")}});
  for (int budget = 0; budget < 12; ++budget) {
    CompleteOptions options;
    options.max_reasoning_tokens = budget;
    std::string streamed;
    options.on_text = [&](std::string_view piece) { streamed += piece; };
    const Completion completion = Get(session, "q", options);
    EXPECT_NE(std::string::npos, completion.text.find("</think>\n<tool_call>[")) << completion.text;
    EXPECT_EQ(std::string::npos, completion.text.find("\xEF\xBF\xBD")) << completion.text;
    EXPECT_EQ(0u, thought.find(completion.reasoning));
    EXPECT_EQ(completion.text, streamed);
  }
}

TEST_F(EngineTest, NeverCutsInsideACodePoint) {
  Session session = WithTools({{"q",
                                "<think>\nab"
                                "\U0001F9FF\U0001F9FF"
                                "\n</think>"}});
  for (int budget = 1; budget < 20; ++budget) {
    CompleteOptions options;
    options.constrain = false;
    options.max_new_tokens = budget;
    const Completion completion = Get(session, "q", options);
    EXPECT_EQ(std::string::npos, completion.text.find("\xEF\xBF\xBD")) << completion.text;
  }
}

TEST_F(EngineTest, KeepsTheRowsThatTwoPromptsShare) {
  Session session = WithTools({{"", Target("[]")}});
  const Completion first = Get(session, "first question");
  EXPECT_EQ(0u, first.reused_tokens);
  const Completion second = Get(session, "second question");
  const size_t prefix = *session.SetContext("", *json::Parse(kTools));
  EXPECT_GE(second.reused_tokens, prefix);
  EXPECT_LT(second.reused_tokens, second.prompt_tokens);
  EXPECT_EQ(prefix, Fake(session).sinks_);
  // The rows are those of the second prompt, whatever was there before.
  std::vector<int32_t> want = {kBosId};
  const std::vector<int32_t> encoded =
      *tokenizer_.Encode(RenderPrompt("", kTools, "second question"));
  want.insert(want.end(), encoded.begin(), encoded.end());
  const std::vector<int32_t>& rows = Fake(session).rows_;
  ASSERT_GE(rows.size(), want.size());
  EXPECT_TRUE(std::equal(want.begin(), want.end(), rows.begin()));
  const Completion again = Get(session, "second question");
  EXPECT_EQ(second.prompt_tokens, again.reused_tokens);
  EXPECT_EQ(second.tokens, again.tokens);
}

TEST_F(EngineTest, OtherToolsKeepNoRowThatSawOtherSinks) {
  Session session = WithTools({{"", Target("[]")}});
  Get(session, "question");
  const size_t other = *session.SetContext("", *json::Parse(kOtherTools));
  const Completion completion = Get(session, "question");
  EXPECT_GT(completion.reused_tokens, 0u);
  EXPECT_LE(completion.reused_tokens, other);
  EXPECT_EQ(other, Fake(session).sinks_);
}

TEST_F(EngineTest, EachQueryStandsAlone) {
  Session session =
      WithTools({{"alpha", Target(R"([{"name":"stop","arguments":{}}])")}, {"beta", Target("[]")}});
  const Completion alpha = Get(session, "alpha");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(CompletionType::kRefuse, Get(session, "beta").type);
    EXPECT_EQ(alpha.tokens, Get(session, "alpha").tokens);
  }
}

TEST_F(EngineTest, APromptThatIsTooLongIsAnErrorSentence) {
  Session session = WithTools({{"", Target("[]")}}, 50);
  const Result<Completion> completion = session.Complete("q");
  ASSERT_FALSE(completion.ok());
  EXPECT_EQ(Code::kInvalidArgument, completion.error().code());
  EXPECT_NE(std::string::npos, completion.error().message().find("holds 50"));
}

TEST_F(EngineTest, AnAnswerThatFillsTheModelIsTruncated) {
  Session probe = WithTools({{"q", "x"}});
  const size_t prompt = Get(probe, "q").prompt_tokens;
  for (size_t room = 2; room < 8; ++room) {
    Session session = WithTools(
        {{"q", Target(R"([{"name":"set_lamp","arguments":{"room":"den"}}])")}}, prompt + room);
    const Completion completion = Get(session, "q");
    EXPECT_TRUE(completion.truncated()) << room;
    EXPECT_EQ(room + 1, completion.tokens.size());  // the last one needs no row
  }
}

TEST_F(EngineTest, ToolsAsTextAreUsedVerbatimAndUnderstood) {
  Session session = Open({{"\"name\" : \"stop\"", Target(R"([{"name":"stop","arguments":{}}])")}});
  const json::Value text = json::Value::String(R"( [ {"name" : "stop", "parameters": {} } ] )");
  ASSERT_TRUE(session.SetContext("", text).ok());
  EXPECT_EQ(R"([{"name":"stop","arguments":{}}])", json::Dump(Get(session, "q").calls));
}

TEST_F(EngineTest, ToolsThatTheGrammarCannotUseAreAnErrorOnlyWithTheGrammar) {
  Session session = Open({{"", Target("[]")}});
  CompleteOptions free;
  free.constrain = false;
  for (const json::Value& tools : {json::Value::String("[{"), json::Value::Int(7)}) {
    ASSERT_TRUE(session.SetContext("", tools).ok());
    EXPECT_FALSE(session.Complete("q").ok());
    EXPECT_TRUE(session.Complete("q", free).ok());
  }
  EXPECT_FALSE(session.Complete("\xFF", free).ok());
  EXPECT_FALSE(session.SetContext("\xFF", json::Value::Array()).ok());
}

TEST_F(EngineTest, SessionsOfOneEngineRunSideBySide) {
  std::map<std::string, std::string> answers;
  for (int i = 0; i < 8; ++i)
    answers["room " + std::to_string(i)] =
        Target(R"([{"name":"set_lamp","arguments":{"room":")" + std::to_string(i) + R"("}}])");
  auto engine = Engine::Make(
      tokenizer_, [&] { return std::make_unique<test::FakeModel>(tokenizer_, answers); });
  ASSERT_TRUE(engine.ok());
  std::vector<std::thread> threads;
  std::vector<int> right(4, 0);
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      Session session(*engine);
      if (!session.SetContext("", *json::Parse(kTools)).ok()) return;
      for (int i = 0; i < 8; ++i) {
        const auto c = session.Complete("room " + std::to_string((i + t) % 8));
        if (c.ok() && !c->calls.items().empty() &&
            c->calls.items()[0].Find("arguments")->Find("room")->as_string() ==
                std::to_string((i + t) % 8))
          ++right[static_cast<size_t>(t)];
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ((std::vector<int>{8, 8, 8, 8}), right);
}

}  // namespace
}  // namespace needle
