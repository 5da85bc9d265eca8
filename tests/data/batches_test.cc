// Token ids, masks, length buckets, split and batch order, equal to upstream's run.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "base/file.h"
#include "data/examples.h"
#include "data/split.h"
#include "support/npz.h"

namespace needle {
namespace {

using test::Golden;
using test::ReadNpz;

Tokenizer Golden1024() {
  auto t = Tokenizer::Load(Golden("text/tokenizer_1024.model"));
  EXPECT_TRUE(t.ok()) << t.error().message();
  return std::move(t).value();
}

/// The edge lines as upstream takes them: rendered whatever their tools and answers are, lines
/// without "query" left out.
std::vector<DataExample> EdgeExamples() {
  std::ifstream in(Golden("text/edge.jsonl"), std::ios::binary);
  std::vector<DataExample> out;
  size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    const auto value = json::Parse(StripPython(line));
    const auto text = value.ok() ? RenderExample(*value) : Result<RenderedExample>(value.error());
    if (!text.ok()) continue;
    DataExample e;
    e.line = number;
    e.text = *text;
    out.push_back(e);
  }
  EXPECT_EQ(out.size(), 41u);
  return out;
}

std::vector<DataExample> TrajectoryExamples() {
  auto report = LoadData(Golden("data/traj.jsonl"), BadLines::kStop);
  EXPECT_TRUE(report.ok()) << report.error().message();
  return std::move(report).value().examples;
}

/// Ids and weights of all examples, padded with 0 to `length`.
struct Padded {
  std::vector<int32_t> ids;
  std::vector<float> weights;
};
Padded Pad(const EncodedData& data, size_t length) {
  Padded out;
  for (EncodedExample e : data.examples) {
    EXPECT_LE(e.ids.size(), length);
    EXPECT_EQ(e.ids.size(), e.weights.size());
    e.ids.resize(length, 0);
    e.weights.resize(length, 0);
    out.ids.insert(out.ids.end(), e.ids.begin(), e.ids.end());
    out.weights.insert(out.weights.end(), e.weights.begin(), e.weights.end());
  }
  return out;
}

EncodeOptions Cut(size_t max_len) {
  return {.max_len = max_len, .long_lines = LongLines::kCut, .prompt_weight = 0};
}

TEST(BatchParity, EdgeLinesAreCutAndMaskedAsUpstream) {
  const auto golden = ReadNpz(Golden("data/edge_batch_1024.npz"));
  const auto data = EncodeExamples(EdgeExamples(), Golden1024(), Cut(128), "edge");
  ASSERT_TRUE(data.ok()) << data.error().message();
  const Padded got = Pad(*data, 128);
  EXPECT_TRUE(got.ids == golden.at("ids_128").As<int32_t>());
  EXPECT_TRUE(got.weights == golden.at("mask_128").As<float>());
  size_t without_target = 0;
  for (const EncodedExample& e : data->examples)
    without_target += std::count(e.weights.begin(), e.weights.end(), 1.0f) == 0;
  EXPECT_EQ(data->lost_target, without_target);
  EXPECT_GT(without_target, 0u);
}

TEST(BatchParity, LengthBucketsAreUpstreams) {
  const auto golden = ReadNpz(Golden("data/edge_batch_1024.npz"));
  const auto examples = EdgeExamples();
  const Tokenizer tokenizer = Golden1024();
  size_t seen = 0;
  for (const auto& [name, array] : golden) {
    if (name.rfind("fit_", 0) != 0) continue;
    const size_t cap = std::stoul(name.substr(4));
    const auto data = EncodeExamples(examples, tokenizer, Cut(cap), "edge");
    ASSERT_TRUE(data.ok()) << data.error().message();
    EXPECT_EQ(LengthBucket(data->longest, cap), array.As<size_t>()[0]) << name;
    ++seen;
  }
  EXPECT_EQ(seen, 6u);
}

TEST(LengthBucket, DoublesFrom128UpToTheCap) {
  EXPECT_EQ(LengthBucket(5, 1024), 128u);
  EXPECT_EQ(LengthBucket(128, 1024), 128u);
  EXPECT_EQ(LengthBucket(129, 1024), 256u);
  EXPECT_EQ(LengthBucket(1025, 1024), 1024u);
  EXPECT_EQ(LengthBucket(150, 200), 200u);
  EXPECT_EQ(LengthBucket(5, 96), 96u);
}

TEST(BatchParity, TheTrajectorysBatchesAreUpstreams) {
  const auto golden = ReadNpz(Golden("data/traj_batches.npz"));
  const auto text = ReadTextFile(Golden("data/traj_rows.json"));
  ASSERT_TRUE(text.ok()) << text.error().message();
  const json::Value run = *json::Parse(*text);
  const json::Value& hyper = *run.Find("hyper");
  const auto number = [](const json::Value& v) {
    return static_cast<size_t>(v.as_int64().value());
  };
  const size_t max_len = number(*hyper.Find("max_len")), batch = number(*hyper.Find("batch_size"));

  const auto data = EncodeExamples(TrajectoryExamples(), Golden1024(), Cut(max_len), "traj");
  ASSERT_TRUE(data.ok()) << data.error().message();
  EXPECT_EQ(LengthBucket(data->longest, max_len), number(*run.Find("seq_len")));
  const Padded padded = Pad(*data, number(*run.Find("seq_len")));
  EXPECT_TRUE(padded.ids == golden.at("seqs").As<int32_t>());
  EXPECT_TRUE(padded.weights == golden.at("masks").As<float>());

  NumpyGenerator generator(number(*hyper.Find("seed")));
  const DataSplit split =
      Split(data->examples.size(), hyper.Find("val_split")->as_double(), generator);
  std::vector<int32_t> validation;
  for (const json::Value& row : run.Find("val_rows")->items())
    validation.push_back(static_cast<int32_t>(row.as_int64().value()));
  EXPECT_EQ(split.validation, validation);
  std::vector<int32_t> order = split.validation;
  order.insert(order.end(), split.train.begin(), split.train.end());
  EXPECT_EQ(order, golden.at("val_order").As<int32_t>());

  size_t step = 0;
  for (size_t epoch = 0; epoch < number(*hyper.Find("epochs")); ++epoch) {
    const std::vector<int32_t> positions = EpochOrder(split.train.size(), generator);
    for (const auto& slice : Batches(positions, batch)) {
      const json::Value& want = run.Find("step")->items().at(step++);
      std::vector<int32_t> rows, want_rows;
      std::vector<Sequence> sequences;
      for (const int32_t position : slice) {
        const EncodedExample& e = data->examples[split.train[position]];
        rows.push_back(e.row);
        sequences.push_back(e.sequence());
      }
      for (const json::Value& row : want.Find("rows")->items())
        want_rows.push_back(static_cast<int32_t>(row.as_int64().value()));
      EXPECT_EQ(rows, want_rows) << "step " << step;
      EXPECT_EQ(CountedWeight(sequences), want.Find("target_tokens")->as_double());
    }
  }
  EXPECT_EQ(step, run.Find("step")->items().size());
}

TEST(Encode, WeighsThePromptForALanguageModel) {
  EncodeOptions options;
  options.prompt_weight = 0.125f;
  const auto examples = TrajectoryExamples();
  const auto plain = EncodeExamples(examples, Golden1024(), {}, "traj");
  const auto weighted = EncodeExamples(examples, Golden1024(), options, "traj");
  ASSERT_TRUE(plain.ok() && weighted.ok());
  for (size_t i = 0; i < examples.size(); ++i) {
    const auto& a = plain->examples[i];
    const auto& b = weighted->examples[i];
    ASSERT_EQ(a.ids, b.ids);
    EXPECT_EQ(b.weights[0], 0.0f);
    for (size_t t = 1; t < a.ids.size(); ++t)
      ASSERT_EQ(b.weights[t], a.weights[t] == 1.0f ? 1.0f : 0.125f);
  }
}

TEST(Encode, StopsAtLongLinesAndListsThem) {
  const auto data = EncodeExamples(EdgeExamples(), Golden1024(), {.max_len = 64}, "edge.jsonl");
  ASSERT_FALSE(data.ok());
  EXPECT_EQ(data.error().code(), Code::kInvalidArgument);
  const std::string& m = data.error().message();
  EXPECT_NE(m.find("examples are longer than --max-len 64"), std::string::npos) << m;
  EXPECT_NE(m.find("\n  edge.jsonl:1: "), std::string::npos) << m;
  EXPECT_NE(m.find("(its whole target would be cut off)"), std::string::npos) << m;
  EXPECT_NE(m.find("--long cut or --long drop"), std::string::npos) << m;
}

TEST(Encode, DropsLongLinesWhenAsked) {
  const EncodeOptions options{.max_len = 128, .long_lines = LongLines::kDrop, .prompt_weight = 0};
  const auto data = EncodeExamples(EdgeExamples(), Golden1024(), options, "edge");
  ASSERT_TRUE(data.ok()) << data.error().message();
  EXPECT_EQ(data->examples.size() + data->long_lines.size(), 41u);
  EXPECT_GT(data->long_lines.size(), 0u);
  EXPECT_LE(data->longest, 128u);
  EXPECT_EQ(data->lost_target, 0u);
  const EncodeOptions none{.max_len = 3, .long_lines = LongLines::kDrop, .prompt_weight = 0};
  EXPECT_FALSE(EncodeExamples(EdgeExamples(), Golden1024(), none, "edge").ok());
  EXPECT_FALSE(EncodeExamples(EdgeExamples(), Golden1024(), Cut(0), "edge").ok());
}

TEST(Encode, SaysWhichCutExamplesLostTheirTarget) {
  DataExample e;
  e.text = {"<|im_start|>", "<|im_end|>"};  // BOS, U+2581, marker; U+2581, marker, EOS
  for (size_t max_len = 1; max_len <= 6; ++max_len) {
    const auto data = EncodeExamples(std::vector<DataExample>{e}, Golden1024(), Cut(max_len), "d");
    ASSERT_TRUE(data.ok());
    EXPECT_EQ(data->examples[0].ids.size(), max_len);
    EXPECT_EQ(data->lost_target, max_len <= 3 ? 1u : 0u) << max_len;
    EXPECT_EQ(data->long_lines.size(), max_len < 6 ? 1u : 0u) << max_len;
    EXPECT_EQ(data->longest, 6u);
  }
}

TEST(Split, KeepsAtLeastOneExampleForTrainingAndDrawsNothingWithoutValidation) {
  NumpyGenerator a(5), b(5);
  EXPECT_EQ(Split(4, 1.0, a).train.size(), 1u);
  const DataSplit none = Split(5, 0.1, b);
  EXPECT_TRUE(none.validation.empty());
  EXPECT_EQ(none.train, (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(b.Next64(), NumpyGenerator(5).Next64());
  EXPECT_TRUE(Split(0, 0.5, b).train.empty());
}

RC_GTEST_PROP(SplitProperties, EveryExampleIsInOneBatchOrValidates, ()) {
  const auto n = *rc::gen::inRange<size_t>(0, 200), batch = *rc::gen::inRange<size_t>(1, 40);
  NumpyGenerator generator(*rc::gen::inRange<uint64_t>(0, 1000));
  const DataSplit split = Split(n, *rc::gen::element(0.0, 0.1, 0.5, 1.0), generator);
  std::vector<int32_t> seen = split.validation;
  const auto order = EpochOrder(split.train.size(), generator);
  const auto batches = Batches(order, batch);
  RC_ASSERT(batches.size() == (split.train.size() + batch - 1) / batch);
  for (const auto& slice : batches)
    for (const int32_t position : slice) seen.push_back(split.train[position]);
  std::sort(seen.begin(), seen.end());
  RC_ASSERT(seen.size() == n);
  for (size_t i = 0; i < n; ++i) RC_ASSERT(seen[i] == static_cast<int32_t>(i));
}

}  // namespace
}  // namespace needle
