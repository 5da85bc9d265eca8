#include "eval/score.h"

#include <gtest/gtest.h>

#include <mutex>

#include "eval/report.h"
#include "runtime/fake_model.h"
#include "support/npz.h"

namespace needle {
namespace {

json::Value Json(const std::string& text) {
  Result<json::Value> value = json::Parse(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? *value : json::Value();
}

const std::string kLamp = R"([{"name":"set_lamp","arguments":{"room":"den","level":1}}])";
const std::string kStop = R"([{"name":"stop","arguments":{}}])";
const std::string kTools =
    R"([{"name":"set_lamp","parameters":{"type":"object","properties":{"room":{"type":"string"},)"
    R"("level":{"type":"number"}},"required":["room"]}},{"name":"stop","parameters":{}}])";

TEST(Judge, ComparesCallsAsJsonValuesInOrder) {
  const auto judge = [](const std::string& a, const std::string& b) {
    return Judge(Json(a), Json(b));
  };
  EXPECT_EQ(Outcome::kExact,
            judge(kLamp, R"([{"name":"set_lamp","arguments":{"level":1.0,"room":"den"}}])"));
  EXPECT_EQ(Outcome::kExact, judge("[]", "[]"));
  EXPECT_EQ(Outcome::kWrongArguments,
            judge(kLamp, R"([{"name":"set_lamp","arguments":{"room":"Den","level":1}}])"));
  EXPECT_EQ(Outcome::kWrongArguments,
            judge(kLamp, R"([{"name":"set_lamp","arguments":{"room":"den"}}])"));
  EXPECT_EQ(Outcome::kWrongCalls, judge(kLamp, kStop));
  const std::string both = kLamp.substr(0, kLamp.size() - 1) + "," + kStop.substr(1);
  const std::string swapped = kStop.substr(0, kStop.size() - 1) + "," + kLamp.substr(1);
  EXPECT_EQ(Outcome::kWrongCalls, judge(both, swapped));
  EXPECT_EQ(Outcome::kWrongCalls, judge(both, kLamp));
  EXPECT_EQ(Outcome::kFalseAlarm, judge("[]", kStop));
  EXPECT_EQ(Outcome::kMiss, judge(kStop, "[]"));
}

TEST(McNemar, IsTheExactTwoSidedBinomialTest) {
  EXPECT_DOUBLE_EQ(1, McNemarExact(0, 0));
  EXPECT_DOUBLE_EQ(1, McNemarExact(3, 3));
  EXPECT_NEAR(0.5, McNemarExact(0, 2), 1e-12);
  EXPECT_NEAR(2 * (1 + 10 + 45) / 1024.0, McNemarExact(2, 8), 1e-12);
  EXPECT_DOUBLE_EQ(McNemarExact(2, 8), McNemarExact(8, 2));
  EXPECT_GT(McNemarExact(0, 500), 0);
}

TEST(Wilson, HoldsTheShareAndNarrows) {
  EXPECT_EQ((std::pair<double, double>{0, 1}), WilsonInterval(0, 0));
  const auto ten = WilsonInterval(5, 10), many = WilsonInterval(500, 1000);
  EXPECT_NEAR(0.2366, ten.first, 1e-4);  // the textbook value
  EXPECT_NEAR(0.7634, ten.second, 1e-4);
  EXPECT_GT(many.first, ten.first);
  EXPECT_NEAR(0, WilsonInterval(0, 10).first, 1e-12);
  EXPECT_NEAR(1, WilsonInterval(10, 10).second, 1e-12);
}

RowScore Row(size_t line, const std::string& expected, const std::string& got) {
  RowScore row;
  row.line = line;
  row.query = "q" + std::to_string(line);
  row.expected = Json(expected);
  row.got = Json(got);
  row.outcome = Judge(row.expected, row.got);
  return row;
}

EvalReport Sample() {
  EvalReport report;
  report.model = "m<1>.cact";
  report.data = "d.jsonl";
  report.rows = {
      Row(1, kLamp, kLamp), Row(2, kLamp, kStop),
      Row(3, kStop, "[]"),  Row(4, "[]", kLamp),
      Row(5, "[]", "[]"),   Row(6, kLamp, R"([{"name":"set_lamp","arguments":{"room":"x"}}])")};
  RowScore cut = Row(7, kStop, "[]");
  cut.outcome = Outcome::kTruncated;
  cut.error = "did not end <b>\x01";
  cut.text = "<think>\"'&";
  report.rows.push_back(cut);
  Summarise(&report);
  return report;
}

TEST(Report, CountsByToolAndKeepsRefusalsApart) {
  const EvalReport report = Sample();
  EXPECT_EQ(2u, report.exact());
  EXPECT_EQ(2u, report.refusals_wanted());
  EXPECT_EQ(1u, report.refusals_right());
  EXPECT_EQ(5u, report.calls_wanted());
  EXPECT_EQ(1u, report.calls_right());
  EXPECT_EQ(1u, report.Count(Outcome::kFalseAlarm));
  EXPECT_EQ(1u, report.Count(Outcome::kMiss));
  ASSERT_EQ(2u, report.tools.size());
  const ToolScore& lamp = report.tools[0];
  EXPECT_EQ("set_lamp", lamp.name);
  EXPECT_EQ(3u, lamp.support);
  EXPECT_EQ(1u, lamp.exact);
  EXPECT_EQ(1u, lamp.wrong_name);
  EXPECT_EQ(1u, lamp.wrong_arguments);
  EXPECT_EQ(0u, lamp.missing);
  EXPECT_EQ(1u, lamp.unwanted);
  const ToolScore& stop = report.tools[1];
  EXPECT_EQ(2u, stop.support);
  EXPECT_EQ(2u, stop.missing);
  EXPECT_EQ(1u, stop.unwanted);
}

TEST(Report, WarnsAboutSmallSetsAndMissingRefusals) {
  EvalReport report = Sample();
  const auto has = [&](const std::string& part) {
    return std::any_of(report.notes.begin(), report.notes.end(), [&](const std::string& note) {
      return note.find(part) != std::string::npos;
    });
  };
  EXPECT_TRUE(has("only 7 rows"));
  EXPECT_TRUE(has("1 answer did not end"));
  EXPECT_FALSE(has("no row wants a refusal"));
  report.rows.clear();
  for (size_t i = 0; i < 30; ++i) report.rows.push_back(Row(i + 1, kStop, kStop));
  Summarise(&report);
  EXPECT_FALSE(has("only"));
  EXPECT_TRUE(has("no row wants a refusal"));
}

TEST(Report, JsonHoldsCountsAndEveryFailure) {
  const EvalReport report = Sample();
  const PairedComparison comparison = *Compare(report, report);
  const json::Value value = ReportToJson(report, &report, &comparison);
  EXPECT_EQ(7, value.Find("rows")->as_int64());
  EXPECT_EQ(2, value.Find("exact")->as_int64());
  EXPECT_DOUBLE_EQ(2.0 / 7, value.Find("accuracy")->as_double());
  EXPECT_EQ(1, value.Find("refusals")->Find("false_alarms")->as_int64());
  EXPECT_EQ(1, value.Find("calls")->Find("misses")->as_int64());
  ASSERT_EQ(5u, value.Find("failures")->items().size());
  const json::Value& failure = value.Find("failures")->items()[0];
  EXPECT_EQ(2, failure.Find("line")->as_int64());
  EXPECT_EQ("q2", failure.Find("query")->as_string());
  EXPECT_TRUE(json::Equal(Json(kLamp), *failure.Find("expected")));
  EXPECT_TRUE(json::Equal(Json(kStop), *failure.Find("got")));
  EXPECT_EQ(5, value.Find("paired")->Find("neither")->as_int64());
  EXPECT_TRUE(json::Parse(json::Dump(value)).ok());
}

TEST(Report, HtmlEscapesEverythingThatComesFromOutside) {
  EXPECT_EQ("&lt;a href=&quot;x&quot;&gt;&amp;&#39;\xEF\xBF\xBD\xEF\xBF\xBDé",
            EscapeHtml("<a href=\"x\">&'\x01\xFFé"));
  const EvalReport report = Sample();
  const PairedComparison comparison = *Compare(report, report);
  const std::string html = ReportToHtml(report, &report, &comparison);
  EXPECT_NE(std::string::npos, html.find("m&lt;1&gt;.cact"));
  EXPECT_EQ(std::string::npos, html.find("<1>"));
  EXPECT_EQ(std::string::npos, html.find("<think>"));
  EXPECT_EQ(std::string::npos, html.find("<b>"));
  EXPECT_EQ(std::string::npos, html.find("http"));  // nothing is loaded
  EXPECT_NE(std::string::npos, html.find("McNemar"));
}

TEST(Compare, CountsRowByRowAndRefusesOtherRows) {
  const EvalReport first = Sample();
  EvalReport second = first;
  second.rows[0] = Row(1, kLamp, kStop);
  second.rows[1] = Row(2, kLamp, kLamp);
  second.rows[2] = Row(3, kStop, kStop);
  const PairedComparison c = *Compare(first, second);
  EXPECT_EQ(1u, c.both);
  EXPECT_EQ(1u, c.only_first);
  EXPECT_EQ(2u, c.only_second);
  EXPECT_EQ(3u, c.neither);
  EXPECT_DOUBLE_EQ(1, c.p_value);
  second.rows.pop_back();
  EXPECT_FALSE(Compare(first, second).ok());
}

class ScoreTest : public ::testing::Test {
 protected:
  ScoreTest() : tokenizer_(*Tokenizer::Load(test::Golden("nano/tokenizer.model"))) {}

  std::shared_ptr<const Engine> EngineOf(std::map<std::string, std::string> answers) {
    for (auto& answer : answers)
      answer.second = "<tool_call>" + answer.second + "</tool_call><|im_end|>";
    auto engine = Engine::Make(tokenizer_, [this, answers] {
      return std::make_unique<test::FakeModel>(tokenizer_, answers);
    });
    EXPECT_TRUE(engine.ok());
    return *engine;
  }
  std::string Line(const std::string& query, const std::string& answers, const std::string& tools) {
    return R"({"query":")" + query + R"(","tools":)" + tools + R"(,"answers":)" + answers + "}\n";
  }
  Tokenizer tokenizer_;
};

TEST_F(ScoreTest, ReportsInFileOrderWhateverTheOrderOfWork) {
  const std::string other = R"([{"name":"stop","parameters":{}}])";
  std::string text;
  for (int i = 0; i < 10; ++i) {
    const std::string n = std::to_string(i);
    text += Line("call alpha " + n, kLamp, kTools) + Line("call beta " + n, kStop, other) +
            Line("call gamma " + n, "[]", kTools) + Line("call delta " + n, kStop, kTools);
  }
  const DataReport data = ReadData(text, "test.jsonl");
  ASSERT_EQ(40u, data.examples.size());
  const auto engine =
      EngineOf({{"alpha", kLamp}, {"beta", kStop}, {"gamma", kStop}, {"delta", "[]"}});
  EvalReport one;
  for (const int sessions : {1, 3}) {
    ScoreOptions options;
    options.sessions = sessions;
    size_t calls = 0, last = 0;
    options.progress = [&](size_t done, size_t total, size_t exact) {
      EXPECT_EQ(++calls, done);
      EXPECT_EQ(40u, total);
      last = exact;
    };
    const EvalReport report = ScoreExamples(engine, data.examples, options);
    EXPECT_EQ(40u, calls);
    EXPECT_EQ(20u, last);
    ASSERT_EQ(40u, report.rows.size());
    EXPECT_EQ(20u, report.exact());
    EXPECT_EQ(10u, report.Count(Outcome::kFalseAlarm));
    EXPECT_EQ(10u, report.Count(Outcome::kMiss));
    for (size_t i = 0; i < 40; ++i) {
      EXPECT_EQ(i + 1, report.rows[i].line);
      EXPECT_EQ(data.examples[i].query, report.rows[i].query);
    }
    if (sessions == 1) one = report;
    EXPECT_TRUE(
        json::Equal(*ReportToJson(one).Find("failures"), *ReportToJson(report).Find("failures")));
  }
}

TEST_F(ScoreTest, ARowThatCannotRunIsCountedAndNamed) {
  const std::string bad = R"([{"name":"stop","parameters":{"type":"object","properties":)"
                          R"({"a":{"type":"nonsense"}}}}])";
  const DataReport data = ReadData(Line("one", kStop, kTools) + Line("two", "[]", bad), "t.jsonl");
  ASSERT_EQ(2u, data.examples.size());
  const EvalReport report = ScoreExamples(EngineOf({{"", kStop}}), data.examples, {});
  EXPECT_EQ(Outcome::kExact, report.rows[0].outcome);
  EXPECT_EQ(Outcome::kError, report.rows[1].outcome);
  EXPECT_NE(std::string::npos, report.rows[1].error.find("nonsense"));
  EXPECT_NE(std::string::npos, report.notes.back().find("line 2"));
  EXPECT_EQ(1u, report.exact());
}

TEST_F(ScoreTest, ACutAnswerIsTruncatedAndNoMiss) {
  const DataReport data = ReadData(Line("one", kLamp, kTools), "t.jsonl");
  ScoreOptions options;
  options.complete.max_new_tokens = 5;
  const EvalReport report = ScoreExamples(EngineOf({{"", kLamp}}), data.examples, options);
  EXPECT_EQ(Outcome::kTruncated, report.rows[0].outcome);
  EXPECT_EQ(0u, report.Count(Outcome::kMiss));
}

}  // namespace
}  // namespace needle
