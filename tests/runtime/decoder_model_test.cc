// The engine on real weights: upstream's own greedy decoding, the archive's numerics, kept rows.
#include "runtime/decoder_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>

#include "format/checkpoint.h"
#include "json/json.h"
#include "runtime/engine.h"
#include "support/npz.h"

namespace needle {
namespace {

double LargestDifference(std::span<const float> a, std::span<const float> b) {
  double difference = 0, scale = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::abs(double{a[i]} - double{b[i]}));
    scale = std::max(scale, std::abs(double{b[i]}));
  }
  return difference / scale;
}

std::vector<int32_t> Ids(const json::Value& list) {
  std::vector<int32_t> ids;
  for (const json::Value& id : list.items()) ids.push_back(static_cast<int32_t>(*id.as_int64()));
  return ids;
}

std::vector<int32_t> SomeIds(size_t n, int vocabulary) {
  std::vector<int32_t> ids = {kBosId};
  for (uint32_t h = 12345; ids.size() < n;) {
    h = h * 1664525u + 1013904223u;
    ids.push_back(static_cast<int32_t>(4 + (h >> 16) % static_cast<uint32_t>(vocabulary - 4)));
  }
  return ids;
}

TEST(DecoderModel, DecodesGreedilyAsUpstreamDoes) {
  const Tokenizer tokenizer = *Tokenizer::Load(test::Golden("text/tokenizer_1024.model"));
  for (const std::string name : {"tiny", "dec"}) {
    std::ifstream in(test::Golden(name + "/decode.json"));
    const std::string text((std::istreambuf_iterator<char>(in)), {});
    const json::Value cases = *json::Parse(text);
    ASSERT_GT(cases.items().size(), 0u);
    const auto engine = *Engine::FromCheckpoint(
        *LoadCheckpoint(test::Golden(name + "/" + name + ".pkl")), tokenizer, {.threads = 2});
    Session session(engine);
    for (const json::Value& c : cases.items()) {
      const json::Value& want = *c.Find("batch_generate");
      const std::vector<int32_t> tokens = Ids(*want.Find("tokens"));
      CompleteOptions options;
      options.max_new_tokens = static_cast<int>(tokens.size());
      const Result<Completion> got =
          session.CompleteIds(Ids(*c.Find("prompt_ids")), nullptr, options);
      ASSERT_TRUE(got.ok()) << got.error().message();
      // The smallest stored margin is 6e-3 of a logit, far above rounding, so every token is equal.
      EXPECT_EQ(tokens, got->tokens) << name;
      EXPECT_EQ(want.Find("text")->as_string(), got->text);
    }
  }
}

/// The most likely token again and again, until the text is as long as `length` or ends.
std::string Greedy(DecoderModel& model, const Tokenizer& tokenizer, std::vector<int32_t> ids,
                   size_t length) {
  std::vector<int32_t> out;
  std::string text;
  while (text.size() < length) {
    const Result<std::span<const float>> logits = model.Append(ids);
    if (!logits.ok()) break;
    ids = {
        static_cast<int32_t>(std::max_element(logits->begin(), logits->end()) - logits->begin())};
    if (ids[0] == kEosId) break;
    out.push_back(ids[0]);
    text = tokenizer.Decode(out);
  }
  return text;
}

TEST(DecoderModel, DecodesAsUpstreamsCachedDecoderDoesWithAndWithoutAWindow) {
  const Tokenizer tokenizer = *Tokenizer::Load(test::Golden("text/tokenizer_1024.model"));
  std::ifstream in(test::Golden("dec/decode.json"));
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const json::Value cases = *json::Parse(text);
  const Checkpoint base = *LoadCheckpoint(test::Golden("dec/dec.pkl"));
  ThreadPool pool(2);
  int compared = 0;
  for (const auto& [window, key] :
       {std::pair{0, "generate_cached_text"}, std::pair{48, "generate_cached_window48_text"}}) {
    RunNumerics numerics;
    numerics.window = window;
    const auto model = std::make_shared<const RunModel>(
        base.config, ParamArrays<float>(base.params), numerics, pool);
    for (const json::Value& c : cases.items()) {
      const json::Value* want = c.Find(key);
      if (want == nullptr) continue;
      DecoderModel decoder(model, 2);
      const std::string& whole = want->as_string();
      EXPECT_EQ(Greedy(decoder, tokenizer, Ids(*c.Find("prompt_ids")), whole.size()), whole) << key;
      ++compared;
    }
  }
  EXPECT_GE(compared, 3);
}

TEST(DecoderModel, RowsOneByOneOrAtOnceGiveTheSameLogits) {
  const Checkpoint base = *LoadCheckpoint(test::Golden("tiny/tiny.pkl"));
  const auto model = RunInFloat(base, 2);
  DecoderModel whole(model, 2), steps(model, 1);
  const std::vector<int32_t> ids = SomeIds(90, base.config.vocab_size);
  const std::span<const float> want = *whole.Append(ids);
  std::span<const float> got = *steps.Append(std::span(ids).first(7));
  for (size_t t = 7; t < ids.size(); ++t) got = *steps.Append(std::span(ids).subspan(t, 1));
  EXPECT_LE(LargestDifference(got, want), 5e-6);
}

TEST(DecoderModel, GoingBackLeavesNoTrace) {
  const CactModel archive = *CactModel::Open(test::Golden("alt/w4.cact"));
  const auto model = RunArchive(archive, 2);
  DecoderModel fresh(model, 2), used(model, 2);
  const std::vector<int32_t> ids = SomeIds(60, archive.config.vocab_size);
  const std::vector<int32_t> other = SomeIds(120, archive.config.vocab_size);
  fresh.SetSinks(20);
  used.SetSinks(20);
  ASSERT_TRUE(used.Append(std::span(ids).first(40)).ok());
  ASSERT_TRUE(used.Append(std::span(other).subspan(50)).ok());
  used.Truncate(40);
  const std::span<const float> got = *used.Append(std::span(ids).subspan(40));
  const std::span<const float> want = *fresh.Append(ids);
  // 8-bit activations turn a last-bit difference into a step now and then.
  EXPECT_LE(LargestDifference(got, want), 2e-2);
}

TEST(DecoderModel, TheWindowForgetsAllButTheSinks) {
  const Checkpoint base = *LoadCheckpoint(test::Golden("tiny/tiny.pkl"));
  ThreadPool pool(2);
  RunNumerics narrow;
  narrow.window = 16;
  const auto windowed =
      std::make_shared<const RunModel>(base.config, ParamArrays<float>(base.params), narrow, pool);
  const auto plain = RunInFloat(base, 2);
  const std::vector<int32_t> ids = SomeIds(64, base.config.vocab_size);
  DecoderModel all(RunInFloat(base, 2), 2), none(windowed, 2), every(windowed, 2);
  every.SetSinks(64);
  const std::span<const float> want = *all.Append(ids);
  EXPECT_LE(LargestDifference(*every.Append(ids), want), 5e-6);
  EXPECT_GT(LargestDifference(*none.Append(ids), want), 1e-3);
}

TEST(Engine, OpensAnArchiveAndAnswersInsideTheGrammar) {
  const auto engine = Engine::Open(test::Golden("tiny/w4.cact"), {.threads = 2});
  ASSERT_TRUE(engine.ok()) << engine.error().message();
  Session session(*engine);
  const json::Value tools = *json::Parse(
      R"([{"name":"stop","parameters":{}},{"name":"go","parameters":{"type":"object","properties":)"
      R"({"fast":{"type":"boolean"}},"required":["fast"]}}])");
  ASSERT_TRUE(session.SetContext("", tools).ok());
  CompleteOptions options;
  options.max_reasoning_tokens = 4;
  for (const char* query : {"stop", "go fast"}) {  // random weights: any allowed answer will do
    const Result<Completion> got = session.Complete(query, options);
    ASSERT_TRUE(got.ok()) << got.error().message();
    EXPECT_TRUE(got->ok() || got->truncated()) << got->text;
    for (const json::Value& call : got->calls.items()) {
      const std::string& name = call.Find("name")->as_string();
      EXPECT_EQ(name == "go", call.Find("arguments")->Find("fast") != nullptr);
    }
    const Result<Completion> again = session.Complete(query, options);
    EXPECT_EQ(got->tokens, again->tokens);
    EXPECT_EQ(got->prompt_tokens, again->reused_tokens);
  }
}

TEST(Engine, SaysWhatIsWrongWithFiles) {
  EXPECT_FALSE(Engine::Open(test::Golden("tiny/tiny.pkl")).ok());
  EXPECT_FALSE(Engine::Open("/nowhere/m.cact").ok());
  const Tokenizer nano = *Tokenizer::Load(test::Golden("nano/tokenizer.model"));
  const auto engine = Engine::FromCheckpoint(*LoadCheckpoint(test::Golden("tiny/tiny.pkl")), nano);
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(std::string::npos, engine.error().message().find("2000 pieces"));
}

}  // namespace
}  // namespace needle
