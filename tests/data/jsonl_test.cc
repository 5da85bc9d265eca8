#include "data/jsonl.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/str_cat.h"
#include "support/npz.h"

namespace needle {
namespace {

std::vector<std::string> ProblemsOf(std::string_view text) {
  std::vector<std::string> out;
  for (const DataProblem& p : ReadData(text, "d.jsonl").problems) out.push_back(p.message);
  return out;
}

/// The one problem of a line starts and goes on as said.
void ExpectProblem(std::string_view line, std::string_view want) {
  const auto problems = ProblemsOf(line);
  ASSERT_EQ(problems.size(), 1u) << line;
  EXPECT_EQ(problems[0].substr(0, want.size()), want);
}

const std::string kGood = R"({"query":"q","tools":[{"name":"x"}],"answers":[]})";

TEST(Jsonl, EndsLinesAsPythonsTextModeDoes) {
  const DataReport r = ReadData(kGood + "\r\n" + kGood + "\r\r" + kGood + "\n  \t\n" + kGood, "d");
  EXPECT_TRUE(r.problems.empty());
  EXPECT_EQ(r.lines, 6u);
  EXPECT_EQ(r.blank, 2u);
  std::vector<size_t> lines;
  for (const DataExample& e : r.examples) {
    lines.push_back(e.line);
    EXPECT_EQ(static_cast<size_t>(e.row) + 1, e.line);
  }
  EXPECT_EQ(lines, (std::vector<size_t>{1, 2, 4, 6}));
}

TEST(Jsonl, DoesNotEndALineAtOtherUnicodeLineEnds) {
  const DataReport r = ReadData("{\"query\":\"a\u2028b\u0085c\"}\x0b\x0c\n", "d");
  ASSERT_EQ(r.examples.size(), 1u);
  EXPECT_EQ(r.examples[0].query, "a\u2028b\u0085c");
}

TEST(Jsonl, KeepsWhatTrainingAndScoringNeed) {
  const DataReport r = ReadData(R"({"query":" q","system":" s ","tools":"[ {\"name\":\"x\"} ]",)"
                                R"("function_calls":[{"name":"x","arguments":{"a":1}}]})",
                                "d");
  ASSERT_EQ(r.examples.size(), 1u);
  const DataExample& e = r.examples[0];
  EXPECT_EQ(e.system, "s");
  EXPECT_EQ(e.query, " q");
  EXPECT_EQ(e.tools_text, "[ {\"name\":\"x\"} ]");
  EXPECT_EQ(json::Dump(e.tools), R"([{"name":"x"}])");
  EXPECT_EQ(json::Dump(e.answers), R"([{"name":"x","arguments":{"a":1}}])");
  EXPECT_EQ(e.text.prompt, RenderPrompt(e.system, e.tools_text, e.query));
  EXPECT_EQ(e.text.target,
            "<tool_call>[{\"name\":\"x\",\"arguments\":{\"a\":1}}]</tool_call><|im_end|>");
}

TEST(Jsonl, TakesMissingAndNullToolsAsNone) {
  const DataReport r = ReadData("{\"query\":\"q\"}\n{\"query\":\"q\",\"tools\":null}", "d");
  ASSERT_EQ(r.examples.size(), 2u);
  EXPECT_TRUE(r.examples[0].tools.items().empty());
  EXPECT_EQ(r.examples[1].tools_text, "null");
}

TEST(Jsonl, NamesToolsOfChatApisByTheirFunction) {
  EXPECT_TRUE(ProblemsOf(R"({"query":"q","tools":[{"type":"function","function":{"name":"x"}}],)"
                         R"("answers":[{"name":"x","arguments":{}}]})")
                  .empty());
}

TEST(Jsonl, SaysWhatIsWrongWithEachLineAndHowToFixIt) {
  ExpectProblem("{\"query\":", "d.jsonl:1: not valid JSON: ");
  ExpectProblem("\n[1]", "d.jsonl:2: the line is not a JSON object; wanted ");
  ExpectProblem("{\"a\":1}", "d.jsonl:1: the line has no \"query\"; add ");
  ExpectProblem("{\"messages\":[]}",
                "d.jsonl:1: the line has no \"query\"; add \"query\" with what the user says (a "
                "chat in \"messages\" is not read;");
  ExpectProblem("{\"query\":1}", "d.jsonl:1: \"query\" is 1; it must be a string");
  ExpectProblem("{\"query\":\"\xFF\"}", "d.jsonl:1: byte 10 of the line is not UTF-8; ");
  ExpectProblem("\xEF\xBB\xBF" + kGood, "d.jsonl:1: the line begins with a byte order mark; ");
  ExpectProblem(R"({"query":"q","tools":3})", "d.jsonl:1: \"tools\" is a number; write a list of ");
  ExpectProblem(R"({"query":"q","tools":{"name":"x"}})", "d.jsonl:1: \"tools\" is an object; ");
  ExpectProblem(R"({"query":"q","tools":"none"})",
                "d.jsonl:1: \"tools\" is a string that is not a JSON list; ");
  ExpectProblem(R"({"query":"q","tools":[{"name":"x"},{"nam":"y"}]})",
                "d.jsonl:1: tool 2 has no \"name\"; each tool needs ");
  ExpectProblem(R"({"query":"q","answers":null})", "d.jsonl:1: \"answers\" is null; write a list ");
  ExpectProblem(R"({"query":"q","function_calls":"[1"})",
                "d.jsonl:1: \"function_calls\" is a string that is not a JSON list; ");
  ExpectProblem(R"({"query":"q","answers":["x"]})", "d.jsonl:1: call 1 is a string; write ");
  ExpectProblem(R"({"query":"q","tools":[{"name":"x"}],"answers":[{"name":"y","arguments":{}}]})",
                "d.jsonl:1: call 1 is to \"y\", which this line's \"tools\" do not declare; ");
  ExpectProblem(R"({"query":"q","answers":"[{\"name\":\"y\",\"arguments\":{}}]"})",
                "d.jsonl:1: call 1 is to \"y\", which this line's \"tools\" do not declare (there "
                "are none); ");
  ExpectProblem(R"({"query":"q","answers":[{"arguments":{}}]})",
                "d.jsonl:1: call 1 has no \"name\"; add ");
  ExpectProblem(R"({"query":"q","tools":[{"name":"x"}],"answers":[{"name":"x"}]})",
                "d.jsonl:1: call 1 has no \"arguments\"; add ");
  ExpectProblem(R"({"query":"q","tools":[{"name":"x"}],"answers":[{"name":"x","arguments":"{}"}]})",
                "d.jsonl:1: the \"arguments\" of call 1 are a string; write an object");
}

TEST(Jsonl, CollectsEveryProblemOfEveryLine) {
  const DataReport r = ReadData(R"({"tools":3,"answers":[{"name":"y","arguments":1}]})"
                                "\n" +
                                    kGood + "\n{",
                                "d");
  std::vector<size_t> lines;
  for (const DataProblem& p : r.problems) lines.push_back(p.line);
  EXPECT_EQ(lines, (std::vector<size_t>{1, 1, 1, 3}));
  EXPECT_EQ(r.skipped, 2u);
  EXPECT_EQ(r.examples.size(), 1u);
}

class DataFile : public testing::Test {
 protected:
  std::string Write(const std::string& text) {
    std::ofstream(path_, std::ios::binary) << text;
    return path_;
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_ = testing::TempDir() + "needle_jsonl_" +
                      testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl";
};

TEST_F(DataFile, StopsAtProblemsAndListsTheFirstTwenty) {
  std::string text;
  for (int i = 0; i < 25; ++i) text += "{}\n";
  const auto r = LoadData(Write(text + kGood), BadLines::kStop);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code(), Code::kInvalidArgument);
  const std::string& m = r.error().message();
  EXPECT_NE(m.find("25 of 26 lines cannot be used:"), std::string::npos) << m;
  EXPECT_NE(m.find(":20: the line has no"), std::string::npos) << m;
  EXPECT_EQ(m.find(":21: the line has no"), std::string::npos) << m;
  EXPECT_NE(m.find("... and 5 more problems"), std::string::npos) << m;
  EXPECT_NE(m.find("--skip-bad"), std::string::npos) << m;
}

TEST_F(DataFile, SkipsBadLinesWhenAskedAndRemembersThem) {
  const auto r = LoadData(Write("{}\n" + kGood + "\n{\n"), BadLines::kSkip);
  ASSERT_TRUE(r.ok()) << r.error().message();
  EXPECT_EQ(r->examples.size(), 1u);
  EXPECT_EQ(r->skipped, 2u);
  EXPECT_EQ(r->problems.size(), 2u);
}

TEST_F(DataFile, WithoutUsableLinesIsAnError) {
  for (const char* text : {"", "\n\n", "{}\n"}) {
    const auto r = LoadData(Write(text), BadLines::kSkip);
    ASSERT_FALSE(r.ok());
    EXPECT_NE(r.error().message().find("no usable examples in "), std::string::npos);
  }
}

TEST_F(DataFile, ThatIsNotThereIsNotFound) {
  const auto r = LoadData(path_, BadLines::kStop);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code(), Code::kNotFound);
}

TEST(Jsonl, ReadsTheReferenceTasksWithoutAProblem) {
  const std::string dir = std::string(NEEDLE_SOURCE_DIR) + "/examples/home";
  const auto train = LoadData(dir + "/train.jsonl", BadLines::kStop);
  ASSERT_TRUE(train.ok()) << train.error().message();
  EXPECT_EQ(train->examples.size(), 800u);
  const auto heldout = LoadData(dir + "/heldout.jsonl", BadLines::kStop);
  ASSERT_TRUE(heldout.ok()) << heldout.error().message();
  EXPECT_EQ(heldout->examples.size(), 200u);
}

}  // namespace
}  // namespace needle
