// The synthetic corpus: reproducible, free of the examples' tools, and every row true to its
// schema.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "corpus/rng.h"
#include "corpus/rows.h"
#include "corpus/toolset.h"

namespace needle::corpus {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kGroups = 500;

const std::vector<std::string>& Lines(Part part) {
  static const std::vector<std::vector<std::string>> both = [] {
    std::vector<std::vector<std::string>> out(2);
    for (const Part p : {Part::kTrain, Part::kValid}) {
      CorpusOptions options;
      options.part = p;
      for (uint64_t group = 0; group < kGroups; ++group)
        for (std::string& line : MakeGroup(options, group))
          out[static_cast<size_t>(p)].push_back(std::move(line));
    }
    return out;
  }();
  return both[static_cast<size_t>(part)];
}

uint64_t HashOf(const std::vector<std::string>& lines) {
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  return Hash(all);
}

Json Unwrapped(const Json& value) {
  return value.is_string() ? Json::parse(value.get<std::string>()) : value;
}

Json ToolsOf(const Json& row) { return Unwrapped(row.at("tools")); }

Json AnswersOf(const Json& row) {
  return Unwrapped(row.contains("answers") ? row.at("answers") : row.at("function_calls"));
}

bool Lists(const Json& schema, const Json& value) {
  if (!schema.contains("enum")) return true;
  const Json& entries = schema.at("enum");
  return std::find(entries.begin(), entries.end(), value) != entries.end();
}

// What is wrong with a value, or "".
std::string Misfit(const Json& schema, const Json& value, const std::string& query) {
  const std::string type = schema.at("type");
  if (type == "object") {
    size_t last = 0;
    for (const auto& [key, member] : value.items()) {
      const Json& properties = schema.at("properties");
      const auto found = properties.find(key);
      if (found == properties.end()) return "unknown key " + key;
      const size_t at = static_cast<size_t>(std::distance(properties.begin(), found)) + 1;
      if (at <= last) return "keys out of order at " + key;
      last = at;
      const std::string misfit = Misfit(*found, member, query);
      if (!misfit.empty()) return misfit;
    }
    if (schema.contains("required"))
      for (const Json& key : schema.at("required"))
        if (!value.contains(key.get<std::string>())) return "missing " + key.dump();
    return "";
  }
  if (type == "array") {
    for (const Json& item : value) {
      const std::string misfit = Misfit(schema.at("items"), item, query);
      if (!misfit.empty()) return misfit;
    }
    return value.is_array() && !value.empty() ? "" : "no list: " + value.dump();
  }
  if (type == "boolean") return value.is_boolean() ? "" : "no boolean: " + value.dump();
  if (type == "integer" && !value.is_number_integer()) return "no integer: " + value.dump();
  if (type == "number" && !value.is_number()) return "no number: " + value.dump();
  if (type == "string" && !value.is_string()) return "no string: " + value.dump();
  if (!Lists(schema, value)) return "not listed: " + value.dump();
  const std::string said = value.is_string() ? value.get<std::string>() : value.dump();
  return query.find(said) != std::string::npos ? "" : "not in the query: " + said;
}

std::string RowMisfit(const Json& row) {
  for (const Json& call : AnswersOf(row)) {
    const Json tools = ToolsOf(row);
    const auto tool = std::find_if(tools.begin(), tools.end(),
                                   [&](const Json& t) { return t.at("name") == call.at("name"); });
    if (tool == tools.end()) return "unknown tool " + call.at("name").dump();
    const std::string misfit =
        Misfit(tool->at("parameters"), call.at("arguments"), row.at("query"));
    if (!misfit.empty()) return misfit;
  }
  return "";
}

std::string Plain(const std::string& text) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

TEST(Corpus, IsTheSameBytesForTheSameSeed) {
  // Golden: changes only when the generator is changed on purpose; equal for every compiler.
  EXPECT_EQ(HashOf(Lines(Part::kTrain)), UINT64_C(16651465542235655532));
  EXPECT_EQ(HashOf(Lines(Part::kValid)), UINT64_C(7964079123486075834));
}

TEST(Corpus, ChangesWithTheSeed) {
  CorpusOptions other;
  other.seed = 2;
  EXPECT_NE(MakeGroup(other, 0), MakeGroup(CorpusOptions(), 0));
}

TEST(Corpus, CallsFitTheirSchemasAndTheirValuesStandInTheQuery) {
  for (const Part part : {Part::kTrain, Part::kValid})
    for (const std::string& line : Lines(part)) EXPECT_EQ(RowMisfit(Json::parse(line)), "") << line;
}

TEST(Corpus, CheckOfThisTestSeesAWrongValue) {
  const Json row = Json::parse(
      R"({"query":"go 5","tools":[{"name":"go","parameters":{"type":"object","properties":)"
      R"({"n":{"type":"integer"}},"required":["n"]}}],"answers":[{"name":"go","arguments":{"n":5}}]})");
  EXPECT_EQ(RowMisfit(row), "");
  Json wrong = row;
  wrong["answers"][0]["arguments"]["n"] = 6;
  EXPECT_NE(RowMisfit(wrong), "");
  wrong["answers"][0]["arguments"] = Json::object();
  EXPECT_NE(RowMisfit(wrong), "");
  wrong["answers"][0]["name"] = "stay";
  EXPECT_NE(RowMisfit(wrong), "");
}

TEST(Corpus, HasNoneOfTheToolsOfTheExamples) {
  std::set<std::string> reserved;
  for (const std::string& name : ReservedNames()) reserved.insert(Plain(name));
  EXPECT_EQ(reserved.size(), 12u);
  for (const Part part : {Part::kTrain, Part::kValid})
    for (const std::string& line : Lines(part))
      for (const Json& tool : ToolsOf(Json::parse(line)))
        EXPECT_EQ(reserved.count(Plain(tool.at("name"))), 0u) << line;
}

TEST(Corpus, RowsOfAGroupShareToolsAndSystem) {
  CorpusOptions options;
  options.queries_per_toolset = 5;
  for (uint64_t group = 0; group < 50; ++group) {
    const std::vector<std::string> lines = MakeGroup(options, group);
    ASSERT_EQ(lines.size(), 5u);
    const Json first = Json::parse(lines[0]);
    for (const std::string& line : lines) {
      const Json row = Json::parse(line);
      EXPECT_EQ(row.at("tools"), first.at("tools"));
      EXPECT_EQ(row.value("system", ""), first.value("system", ""));
    }
  }
}

TEST(Corpus, DrillsAreShortPromptsWhoseTextsStandInTheQuery) {
  CorpusOptions options;
  options.drills = 1;
  for (uint64_t group = 0; group < 50; ++group)
    for (const std::string& line : MakeGroup(options, group)) {
      const Json row = Json::parse(line);
      EXPECT_EQ(RowMisfit(row), "") << line;
      EXPECT_EQ(ToolsOf(row).size(), 1u);
      EXPECT_FALSE(AnswersOf(row).empty());
    }
}

TEST(Corpus, HasTheAskedSharesOfRefusalsAndReasoning) {
  size_t refusals = 0, reasoning = 0;
  for (const std::string& line : Lines(Part::kTrain)) {
    const Json row = Json::parse(line);
    refusals += AnswersOf(row).empty() ? 1 : 0;
    reasoning += row.contains("reasoning") ? 1 : 0;
  }
  const double rows = static_cast<double>(Lines(Part::kTrain).size());
  EXPECT_NEAR(static_cast<double>(refusals) / rows, 0.12, 0.03);
  EXPECT_NEAR(static_cast<double>(reasoning) / rows, 0.5, 0.05);
}

TEST(Corpus, ValidationUsesOtherShapesThanTraining) {
  std::set<std::string> train, valid;
  for (const Part part : {Part::kTrain, Part::kValid})
    for (const std::string& line : Lines(part))
      for (const Json& tool : ToolsOf(Json::parse(line)))
        (part == Part::kTrain ? train : valid).insert(Plain(tool.at("name")));
  std::vector<std::string> both;
  std::set_intersection(train.begin(), train.end(), valid.begin(), valid.end(),
                        std::back_inserter(both));
  EXPECT_TRUE(both.empty()) << both.front();
  EXPECT_GT(train.size(), 300u);
}

}  // namespace
}  // namespace needle::corpus
