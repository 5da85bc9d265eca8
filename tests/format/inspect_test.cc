// What `needle inspect` shows of each kind of file.
#include "format/inspect.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "base/file.h"
#include "format/adapter.h"
#include "format/cact.h"
#include "format/checkpoint.h"
#include "format/safetensors.h"
#include "support/npz.h"
#include "text/tokenizer.h"

namespace needle {
namespace {

using test::Golden;

FileDescription Describe(const std::string& path) {
  Result<FileDescription> d = DescribeFile(path);
  if (!d.ok()) {
    ADD_FAILURE() << d.error().message();
    return {};
  }
  return *std::move(d);
}

const TensorDescription& Find(const FileDescription& d, const std::string& name) {
  for (const TensorDescription& t : d.tensors)
    if (t.name == name) return t;
  ADD_FAILURE() << "no tensor " << name;
  static const TensorDescription kNone;
  return kNone;
}

class Inspect : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("needle_inspect_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& name, std::span<const uint8_t> bytes) const {
    const std::string path = (folder_ / name).string();
    EXPECT_TRUE(WriteFileAtomically(path, bytes).ok());
    return path;
  }
  std::filesystem::path folder_;
};

TEST_F(Inspect, ShowsACheckpointOfEitherFormatAlike) {
  const Result<Checkpoint> checkpoint = LoadCheckpoint(Golden("tiny/tiny.pkl"));
  ASSERT_TRUE(checkpoint.ok());
  const FileDescription pickled = Describe(Golden("tiny/tiny.pkl"));
  EXPECT_EQ(pickled.kind, "checkpoint");
  EXPECT_EQ(pickled.format, "pickle");
  EXPECT_EQ(pickled.bytes, std::filesystem::file_size(Golden("tiny/tiny.pkl")));
  EXPECT_EQ(pickled.config.Find("d_model")->as_int64(), 64);
  EXPECT_EQ(pickled.metadata.Find("step")->as_int64(), 1234);
  EXPECT_EQ(pickled.tensors.size(), checkpoint->params.size());
  const FileDescription safe = Describe(Write("safe", CheckpointToSafeTensors(*checkpoint)));
  EXPECT_EQ(safe.kind, "checkpoint");
  EXPECT_EQ(safe.format, "safetensors");
  EXPECT_EQ(safe.values, pickled.values);
  EXPECT_TRUE(json::Equal(*ToJson(safe).Find("tensors"), *ToJson(pickled).Find("tensors")));
}

TEST_F(Inspect, GivesTheStatisticsOfEachTensor) {
  SafeTensors file;
  file.tensors["w"] = Tensor::FromFloats({5}, {-3, 1, NAN, 2, INFINITY});
  file.tensors["n"] = Tensor(DType::kI64, {2});
  file.metadata["made"] = "by hand";
  const FileDescription d = Describe(Write("arrays", WriteSafeTensors(file)));
  EXPECT_EQ(d.kind, "arrays");
  EXPECT_EQ(d.metadata.Find("made")->as_string(), "by hand");
  const TensorDescription& w = Find(d, "w");
  ASSERT_TRUE(w.stats);
  EXPECT_EQ(w.stats->min, -3);
  EXPECT_EQ(w.stats->max, 2);
  EXPECT_EQ(w.stats->mean_abs, 2);
  EXPECT_EQ(w.stats->not_finite, 2u);
  EXPECT_FALSE(Find(d, "n").stats);
  EXPECT_EQ(d.values, 7u);
  const std::string text = ToText(d);
  EXPECT_NE(text.find("(2 not finite)"), std::string::npos) << text;
  EXPECT_NE(text.find("by hand"), std::string::npos) << text;
}

TEST_F(Inspect, ShowsAnAdapter) {
  const FileDescription d = Describe(Golden("alt/adapter_auto.pkl"));
  EXPECT_EQ(d.kind, "adapter");
  EXPECT_EQ(d.metadata.Find("rank")->as_int64(), 4);
  EXPECT_EQ(d.metadata.Find("scale")->as_double(), 2.0);
  EXPECT_NE(d.metadata.Find("qat_bits_map")->as_string().find("default=4"), std::string::npos);
  EXPECT_EQ(d.tensors.size(), 10u);
  EXPECT_TRUE(d.config.is_null());
  const Result<Adapter> adapter = LoadAdapter(Golden("alt/adapter_auto.pkl"));
  ASSERT_TRUE(adapter.ok());
  const FileDescription safe = Describe(Write("safe", AdapterToSafeTensors(*adapter)));
  EXPECT_EQ(safe.kind, "adapter");
  EXPECT_TRUE(json::Equal(safe.metadata, d.metadata));
}

TEST_F(Inspect, ShowsATokenizerOfEitherFormat) {
  const FileDescription model = Describe(Golden("nano/tokenizer.model"));
  EXPECT_EQ(model.kind, "tokenizer");
  EXPECT_EQ(model.format, "SentencePiece model");
  EXPECT_EQ(model.metadata.Find("pieces")->as_int64(), 2000);
  EXPECT_EQ(model.metadata.Find("byte")->as_int64(), 256);
  EXPECT_EQ(model.metadata.Find("user_defined")->as_int64(), 10);
  const Result<Tokenizer> tokenizer = Tokenizer::Load(Golden("nano/tokenizer.model"));
  ASSERT_TRUE(tokenizer.ok());
  const FileDescription blob = Describe(Write("blob", tokenizer->ToBlob()));
  EXPECT_EQ(blob.format, "tokenizer blob");
  EXPECT_TRUE(json::Equal(blob.metadata, model.metadata));
}

TEST_F(Inspect, ShowsAnArchive) {
  const Result<Checkpoint> nano = LoadCheckpoint(Golden("nano/nano.pkl"));
  const Result<Tokenizer> tokenizer = Tokenizer::Load(Golden("nano/tokenizer.model"));
  ASSERT_TRUE(nano.ok() && tokenizer.ok());
  const Result<std::vector<uint8_t>> bytes =
      EncodeCact(*nano, BitMap::Uniform(Bits::k4), tokenizer->ToBlob());
  ASSERT_TRUE(bytes.ok()) << bytes.error().message();
  const FileDescription d = Describe(Write("nano.cact", *bytes));
  EXPECT_EQ(d.kind, "archive");
  EXPECT_EQ(d.format, "cact");
  EXPECT_EQ(d.bytes, bytes->size());
  EXPECT_EQ(d.config.Find("num_layers")->as_int64(), 6);
  EXPECT_EQ(d.metadata.Find("tokenizer")->Find("pieces")->as_int64(), 2000);
  EXPECT_EQ(Find(d, "embedding").type, "codes 4 bit");
  EXPECT_EQ(Find(d, "embedding").shape, (Shape{2000, 128}));
  const FileDescription source = Describe(Golden("nano/nano.pkl"));
  const double want = Find(source, "embedding/embedding").stats->mean_abs;
  EXPECT_NEAR(Find(d, "embedding").stats->mean_abs, want, 0.05 * want);  // 4-bit codes
  EXPECT_EQ(d.tensors.back().type, "raw");
  EXPECT_FALSE(d.tensors.back().stats);
}

TEST_F(Inspect, TheJsonDocumentParsesAndTheTextNamesEveryTensor) {
  const FileDescription d = Describe(Golden("tiny/tiny.pkl"));
  const Result<json::Value> parsed = json::Parse(json::Dump(ToJson(d)));
  ASSERT_TRUE(parsed.ok()) << parsed.error().message();
  EXPECT_EQ(parsed->Find("tensors")->items().size(), d.tensors.size());
  EXPECT_EQ(parsed->Find("kind")->as_string(), "checkpoint");
  const std::string text = ToText(d);
  for (const TensorDescription& t : d.tensors) EXPECT_NE(text.find(t.name), std::string::npos);
  EXPECT_EQ(text.back(), '\n');
  EXPECT_EQ(text.find(" \n"), std::string::npos);  // no blanks at line ends
}

TEST_F(Inspect, SaysWhenAFileIsOfNoKnownKind) {
  const auto error_of = [](const std::string& path) {
    const Result<FileDescription> d = DescribeFile(path);
    return d.ok() ? "was read as " + d->kind : d.error().message();
  };
  const std::string text = "hello, I am a text";
  const std::string sentence = error_of(
      Write("text", std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size())));
  EXPECT_NE(sentence.find("is no checkpoint, adapter"), std::string::npos) << sentence;
  EXPECT_NE(error_of(Write("empty", {})).find("the file is empty"), std::string::npos);
  EXPECT_EQ(DescribeFile("no/such").error().code(), Code::kNotFound);
  std::vector<uint8_t> cut = *ReadFile(Golden("tiny/adapter_4.pkl"));
  cut.resize(cut.size() / 2);
  EXPECT_NE(error_of(Write("cut.pkl", cut)).find("the file ends at byte"), std::string::npos);
}

}  // namespace
}  // namespace needle
