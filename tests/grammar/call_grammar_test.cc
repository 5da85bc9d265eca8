#include "grammar/call_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "grammar/validator.h"
#include "json/json.h"
#include "support/npz.h"
#include "text/render.h"

namespace needle::grammar {
namespace {

json::Value Json(const std::string& text) {
  Result<json::Value> value = json::Parse(text);
  EXPECT_TRUE(value.ok()) << text;
  return value.ok() ? *value : json::Value();
}

/// Markers, all bytes, single characters and some words: enough for every text.
Tokenizer SmallTokenizer() {
  std::vector<Piece> pieces = {{"<pad>", 0, PieceType::kControl},
                               {"</s>", 0, PieceType::kControl},
                               {"<s>", 0, PieceType::kControl},
                               {"<unk>", 0, PieceType::kUnknown}};
  for (const std::string_view marker : kChatMarkers)
    pieces.push_back({std::string(marker), 0, PieceType::kUserDefined});
  for (int b = 0; b < 256; ++b) {
    char text[8];
    std::snprintf(text, sizeof text, "<0x%02X>", b);
    pieces.push_back({text, 0, PieceType::kByte});
  }
  float score = 0;
  for (const char* text :
       {"\u2581", "[",      "]", "{", "}", "\"", ":",      ",",     "a",   "b",  "c",
        "d",      "e",      "l", "m", "n", "o",  "r",      "s",     "t",   "u",  "0",
        "1",      "2",      "-", ".", "é", "日", "\"name", "\":\"", "}}]", "[{", "arguments\":",
        "\"}",    "\u2581a"})
    pieces.push_back({text, score -= 1, PieceType::kNormal});
  Result<Tokenizer> tokenizer = Tokenizer::FromPieces(std::move(pieces));
  EXPECT_TRUE(tokenizer.ok()) << (tokenizer.ok() ? "" : tokenizer.error().message());
  return std::move(*tokenizer);
}

std::shared_ptr<const Vocabulary> VocabularyOf(const Tokenizer& tokenizer) {
  auto vocabulary = Vocabulary::Make(tokenizer);
  EXPECT_TRUE(vocabulary.ok()) << (vocabulary.ok() ? "" : vocabulary.error().message());
  return *vocabulary;
}

std::unique_ptr<CallGrammar> Grammar(const std::shared_ptr<const Vocabulary>& vocabulary,
                                     const json::Value& tools) {
  auto grammar = CallGrammar::Make(vocabulary, tools);
  EXPECT_TRUE(grammar.ok()) << (grammar.ok() ? "" : grammar.error().message());
  return std::move(*grammar);
}

/// True if the grammar, by its masks and its steps, takes these tokens and EOS.
bool Takes(CallGrammar& grammar, std::vector<int32_t> ids) {
  CallState state = grammar.Start();
  ids.push_back(kEosId);
  for (const int32_t id : ids) {
    const bool masked = !grammar.Mask(state).Test(id);
    const std::optional<CallState> next = grammar.Advance(state, id);
    EXPECT_EQ(masked, !next.has_value()) << "the mask and the step disagree about token " << id;
    if (!next) return false;
    state = *next;
  }
  return CallGrammar::Done(state);
}

bool Takes(CallGrammar& grammar, const Tokenizer& tokenizer, const std::string& target) {
  const auto ids = tokenizer.Encode(target);
  EXPECT_TRUE(ids.ok());
  return Takes(grammar, *ids);
}

const char* kTools =
    R"([{"name":"set_lamp","description":"x","parameters":{"type":"object","properties":)"
    R"({"room":{"type":"string"},"level":{"type":"integer"},"mode":{"enum":["a","é"]}},)"
    R"("required":["room"]}},{"name":"stop","parameters":{}},)"
    R"({"type":"function","function":{"name":"set","parameters":{"type":"object","properties":)"
    R"({"on":{"type":"boolean"},"l":{"type":"array","items":{"type":"number"}}}}}}])";

TEST(CallGrammar, TakesTargetsAndRefusesEverythingElse) {
  const Tokenizer tokenizer = SmallTokenizer();
  const auto grammar = Grammar(VocabularyOf(tokenizer), Json(kTools));
  const std::string end = "</tool_call><|im_end|>";
  for (const char* calls :
       {"[]", R"([{"name":"stop","arguments":{}}])",
        R"([{"name":"set_lamp","arguments":{"room":"den"}}])",
        R"([{"name":"set_lamp","arguments":{"mode":"é","level":-2,"room":"\"日"}}])",
        R"([{"name":"set","arguments":{"on":true,"l":[1,2.5]}},{"name":"stop","arguments":{}}])"}) {
    EXPECT_TRUE(Takes(*grammar, tokenizer, std::string("<tool_call>") + calls + end)) << calls;
    EXPECT_TRUE(Takes(*grammar, tokenizer,
                      std::string("<think>\nab 日 [\n</think>\n<tool_call>") + calls + end));
    EXPECT_FALSE(Takes(*grammar, tokenizer, std::string("<tool_call>") + calls + "</tool_call>"));
    EXPECT_FALSE(Takes(*grammar, tokenizer, std::string("<tool_call>") + calls + "<|im_end|>"));
    EXPECT_FALSE(Takes(*grammar, tokenizer, std::string("a<tool_call>") + calls + end));
    EXPECT_FALSE(Takes(*grammar, tokenizer, calls));
  }
  for (const char* calls :
       {"", "[", "{}", "[{}]", R"([{"name":"stop"}])", R"([{"name":"sto","arguments":{}}])",
        R"([{"name":"stops","arguments":{}}])", R"([{"name":"stop","arguments":{"a":1}}])",
        R"([{"arguments":{},"name":"stop"}])", R"([{"name":"set_lamp","arguments":{}}])",
        R"([{"name":"set_lamp","arguments":{"room":1}}])",
        R"([{"name":"set_lamp","arguments":{"room":"a","mode":"b"}}])",
        R"([{"name":"set_lamp","arguments":{"room":"a","room":"b"}}])",
        R"([{"name":"set_lamp","arguments":{"room":"<think>"}}])",
        R"([{"name":"set","arguments":{"on":1}}])", R"([{"name":"stop","arguments":{}},])"})
    EXPECT_FALSE(Takes(*grammar, tokenizer, std::string("<tool_call>") + calls + end)) << calls;
}

TEST(CallGrammar, WithoutToolsOnlyTheEmptyListIsLeft) {
  const Tokenizer tokenizer = SmallTokenizer();
  for (const char* tools : {"[]", "null"}) {
    const auto grammar = Grammar(VocabularyOf(tokenizer), Json(tools));
    EXPECT_TRUE(Takes(*grammar, tokenizer, "<tool_call>[]</tool_call><|im_end|>"));
    EXPECT_FALSE(Takes(*grammar, tokenizer, "<tool_call>[{</tool_call><|im_end|>"));
  }
}

TEST(CallGrammar, ClosesThinkingOnlyBetweenCodePoints) {
  const Tokenizer tokenizer = SmallTokenizer();
  const auto vocabulary = VocabularyOf(tokenizer);
  const auto grammar = Grammar(vocabulary, Json("[]"));
  CallState state = grammar->Start();
  const std::vector<int32_t> ids = *tokenizer.Encode("<think>a");
  for (const int32_t id : ids) state = *grammar->Advance(state, id);
  EXPECT_TRUE(grammar->MayCloseThinking(state));
  state = *grammar->Advance(state, tokenizer.IdOf("<0xC3>"));
  EXPECT_FALSE(grammar->MayCloseThinking(state));
  EXPECT_FALSE(grammar->Mask(state).Test(vocabulary->think_end()));
  EXPECT_FALSE(grammar->Mask(state).Test(tokenizer.IdOf("a")));
  EXPECT_EQ(64u, grammar->Mask(state).Count());  // the continuation bytes
}

TEST(CallGrammar, TwoToolsOfOneNameAllowBothSchemas) {
  const Tokenizer tokenizer = SmallTokenizer();
  const auto grammar = Grammar(
      VocabularyOf(tokenizer),
      Json(R"([{"name":"a","parameters":{"type":"object","properties":{"b":{"type":"integer"}}}},)"
           R"({"name":"a","parameters":{"type":"object","properties":{"b":{"type":"string"}}}}])"));
  const std::string begin = R"(<tool_call>[{"name":"a","arguments":{"b":)";
  EXPECT_TRUE(Takes(*grammar, tokenizer, begin + "1}}]</tool_call><|im_end|>"));
  EXPECT_TRUE(Takes(*grammar, tokenizer, begin + "\"1\"}}]</tool_call><|im_end|>"));
  EXPECT_FALSE(Takes(*grammar, tokenizer, begin + "null}}]</tool_call><|im_end|>"));
}

TEST(CallGrammar, RefusesToolsThatAreNotToolsWithASentence) {
  const auto vocabulary = VocabularyOf(SmallTokenizer());
  std::string nested = R"({"type":"array","items":)", close = "}";
  for (int i = 0; i < 7; ++i) nested += nested, close += close;
  for (const std::string& tools : std::vector<std::string>{
           "{}", "7", "[7]", R"([{"name":7}])", R"([{"parameters":{}}])",
           R"([{"name":"a","parameters":[]}])", R"([{"name":"a","parameters":{"type":"string"}}])",
           R"([{"name":"a","parameters":{"type":"object","properties":7}}])",
           R"([{"name":"a","parameters":{"type":"object","properties":{"b":{"type":"dict"}}}}])",
           R"([{"name":"a","parameters":{"type":"object","properties":{"b":)" + nested + "{}" +
               close + "}}}]"}) {
    const auto grammar = CallGrammar::Make(vocabulary, Json(tools));
    ASSERT_FALSE(grammar.ok()) << tools;
    EXPECT_EQ(Code::kInvalidArgument, grammar.error().code());
    EXPECT_GT(grammar.error().message().size(), 30u);
  }
}

TEST(CallGrammar, AThousandToolsAreStillExact) {
  std::string tools = "[";
  for (int i = 0; i < 1000; ++i)
    tools += R"({"name":"t)" + std::to_string(i) +
             R"(","parameters":{"type":"object","properties":{"a)" + std::to_string(i) +
             R"(":{"type":"integer"}}}},)";
  tools.back() = ']';
  const Tokenizer tokenizer = SmallTokenizer();
  const auto grammar = Grammar(VocabularyOf(tokenizer), Json(tools));
  const std::string end = "</tool_call><|im_end|>";
  EXPECT_TRUE(
      Takes(*grammar, tokenizer, R"(<tool_call>[{"name":"t777","arguments":{"a777":1}}])" + end));
  EXPECT_FALSE(
      Takes(*grammar, tokenizer, R"(<tool_call>[{"name":"t777","arguments":{"a778":1}}])" + end));
}

TEST(Vocabulary, NeedsEveryMarkerAndEveryByte) {
  const Tokenizer whole = SmallTokenizer();
  std::vector<Piece> pieces;
  for (size_t i = 0; i < whole.size(); ++i) pieces.push_back(whole.piece(static_cast<int32_t>(i)));
  for (const char* missing : {"<0x41>", "<0x0A>"}) {
    std::vector<Piece> rest = pieces;
    const auto id = static_cast<size_t>(whole.IdOf(missing));
    ASSERT_LT(id, rest.size());
    rest[id] = {"unlike anything", -100, PieceType::kNormal};
    Result<Tokenizer> tokenizer = Tokenizer::FromPieces(rest);
    if (!tokenizer.ok()) continue;  // refused even earlier
    EXPECT_FALSE(Vocabulary::Make(*tokenizer).ok()) << missing;
  }
}

TEST(TokenTrie, WalksExactlyTheTokensThatTheAutomatonReads) {
  std::vector<std::pair<std::string, int32_t>> tokens = {
      {"1", 0}, {"12", 1}, {"123", 2}, {"2", 3}, {"1", 4}, {"", 5}, {"a", 6}, {"12a", 7}, {"-", 8}};
  const TokenTrie trie(tokens);
  ByteAutomaton automaton(
      std::make_shared<const SchemaGraph>(*CompileSchema(Json(R"({"enum":[12,-1,"a"]})"))));
  TokenMask mask(9);
  trie.Walk(&automaton, automaton.Start(), &mask);
  std::set<int32_t> got;
  for (int32_t id = 0; id < 9; ++id)
    if (mask.Test(id)) got.insert(id);
  EXPECT_EQ((std::set<int32_t>{0, 1, 4, 8}), got);
  EXPECT_EQ(4u, mask.Count());
  EXPECT_EQ((std::vector<int32_t>{0, 4}), trie.Exactly("1"));
  EXPECT_EQ((std::vector<int32_t>{7}), trie.Exactly("12a"));
  EXPECT_TRUE(trie.Exactly("13").empty());
}

// ---- With the reference data and tokenizers ----

struct Row {
  json::Value tools;
  json::Value calls;
  RenderedExample text;
};

json::Value ParsedIfText(const json::Value* value) {
  if (value == nullptr) return json::Value::Array();
  return value->is_string() ? Json(value->as_string()) : *value;
}

std::vector<Row> DataRows() {
  std::vector<Row> rows;
  for (const char* name : {"train", "heldout"}) {
    std::ifstream in(std::string(NEEDLE_SOURCE_DIR) + "/examples/home/" + name + ".jsonl");
    for (std::string line; std::getline(in, line);) {
      const json::Value value = Json(line);
      const json::Value* answers = value.Find("answers");
      if (answers == nullptr) answers = value.Find("function_calls");
      rows.push_back(
          {ParsedIfText(value.Find("tools")), ParsedIfText(answers), *RenderExample(value)});
    }
  }
  return rows;
}

class CallGrammarData : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    Result<Tokenizer> loaded = Tokenizer::Load(test::Golden(GetParam()));
    ASSERT_TRUE(loaded.ok()) << loaded.error().message();
    tokenizer_.emplace(std::move(*loaded));
    vocabulary_ = VocabularyOf(*tokenizer_);
    rows_ = DataRows();
    ASSERT_EQ(1000u, rows_.size());
  }
  CallGrammar& For(const json::Value& tools) {
    auto& grammar = grammars_[json::Dump(tools)];
    if (grammar == nullptr) grammar = Grammar(vocabulary_, tools);
    return *grammar;
  }
  std::optional<Tokenizer> tokenizer_;
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::vector<Row> rows_;
  std::map<std::string, std::unique_ptr<CallGrammar>> grammars_;
};

TEST_P(CallGrammarData, EveryAnswerIsTakenTokenByTokenToTheEnd) {
  for (const Row& row : rows_)
    EXPECT_TRUE(Takes(For(row.tools), *tokenizer_, row.text.target)) << row.text.target;
}

std::vector<std::string> Mutations(const Row& row) {
  std::vector<std::string> out;
  const auto add = [&](const json::Value& calls) { out.push_back(json::Dump(calls)); };
  for (size_t c = 0; c < row.calls.items().size(); ++c) {
    const auto with = [&](const std::function<void(json::Value&)>& change) {
      json::Value calls = row.calls;
      change(calls.items()[c]);
      add(calls);
    };
    with([](json::Value& call) {
      call.Set("name", json::Value::String(call.Find("name")->as_string() + "x"));
    });
    with([](json::Value& call) {
      json::Value arguments = *call.Find("arguments");
      arguments.Set("extra_key", json::Value::Int(1));
      call.Set("arguments", arguments);
    });
    const json::Value arguments = *row.calls.items()[c].Find("arguments");
    for (size_t i = 0; i < arguments.members().size(); ++i) {
      const auto replace = [&](json::Value value) {
        with([&](json::Value& call) {
          json::Value changed = arguments;
          changed.members()[i].second = std::move(value);
          call.Set("arguments", changed);
        });
      };
      replace(json::Value::Null());
      if (!arguments.members()[i].second.is_string()) replace(json::Value::String("7"));
      replace(json::Value::Object());
      replace(json::Value::String("not in the list"));
      with([&](json::Value& call) {
        json::Value fewer = arguments;
        fewer.members().erase(fewer.members().begin() + static_cast<long>(i));
        call.Set("arguments", fewer);
      });
    }
  }
  return out;
}

TEST_P(CallGrammarData, ChangedAnswersAreTakenExactlyWhenTheyStillFitTheSchema) {
  size_t refused = 0, taken = 0;
  for (size_t r = 0; r < rows_.size(); r += 3) {
    for (const std::string& calls : Mutations(rows_[r])) {
      const bool valid = test::ValidCalls(Json(calls), rows_[r].tools);
      const std::string target = "<tool_call>" + calls + "</tool_call><|im_end|>";
      EXPECT_EQ(valid, Takes(For(rows_[r].tools), *tokenizer_, target)) << target;
      ++(valid ? taken : refused);
    }
  }
  EXPECT_GT(refused, 1000u);
  EXPECT_GT(taken, 100u);
}

TEST_P(CallGrammarData, RandomWalksUnderTheMaskParseAndFitTheSchema) {
  std::mt19937 random(11);
  size_t finished = 0, walks = 0;
  for (size_t r = 0; r < rows_.size(); r += 20) {
    CallGrammar& grammar = For(rows_[r].tools);
    CallState state = grammar.Start();
    std::string text;
    ++walks;
    for (int step = 0; step < 400 && !CallGrammar::Done(state); ++step) {
      const TokenMask& mask = grammar.Mask(state);
      ASSERT_TRUE(mask.Any()) << text;
      std::vector<int32_t> allowed, closing;
      for (int32_t id = 0; id < static_cast<int32_t>(mask.size()); ++id) {
        if (!mask.Test(id)) continue;
        allowed.push_back(id);
        const std::string& bytes = vocabulary_->Bytes(id);
        if (bytes.find_first_of("\"}]") != std::string::npos || id == vocabulary_->think_end())
          closing.push_back(id);
      }
      const auto& from = !closing.empty() && random() % 4 == 0 ? closing : allowed;
      const int32_t id = from[random() % from.size()];
      text += vocabulary_->Bytes(id);
      const auto next = grammar.Advance(state, id);
      ASSERT_TRUE(next.has_value());
      state = step % 7 == 0 ? grammar.Tidy(*next) : *next;
    }
    if (!CallGrammar::Done(state)) continue;
    ++finished;
    const size_t begin = text.rfind("<tool_call>") + 11;
    const std::string calls = text.substr(begin, text.rfind("</tool_call>") - begin);
    const Result<json::Value> value = json::Parse(calls);
    ASSERT_TRUE(value.ok()) << calls << ": " << value.error().message();
    EXPECT_TRUE(test::ValidCalls(*value, rows_[r].tools)) << calls;
  }
  EXPECT_GT(finished, walks / 2);
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, CallGrammarData,
                         ::testing::Values("text/tokenizer_1024.model", "text/tokenizer_8192.model",
                                           "nano/tokenizer.model"),
                         [](const auto& test_info) {
                           std::string name = test_info.param;
                           for (char& c : name)
                             if (c == '/' || c == '.') c = '_';
                           return name;
                         });

}  // namespace
}  // namespace needle::grammar
