#include "eval/verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/file.h"
#include "format/adapter.h"
#include "format/checkpoint.h"
#include "support/npz.h"

namespace needle {
namespace {

class VerifyTest : public ::testing::Test {
 protected:
  VerifyTest()
      : base_(*LoadCheckpoint(test::Golden("alt/alt.pkl"))),
        bytes_(*ReadFile(test::Golden("alt/w4.cact"))),
        archive_(*CactModel::FromBytes(bytes_, "w4.cact")),
        tokenizer_(*Tokenizer::FromBlob(archive_.tokenizer_blob(), "w4.cact")) {}

  VerifyReport Tensors(const Checkpoint& merged, const BitMap& bits, const CactModel& archive) {
    VerifyReport report;
    const Status status = CompareTensors(merged, bits, tokenizer_, archive, &report);
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message());
    return report;
  }

  Checkpoint base_;
  std::vector<uint8_t> bytes_;
  CactModel archive_;
  Tokenizer tokenizer_;
};

TEST_F(VerifyTest, AnArchiveOfItsCheckpointHoldsEveryCode) {
  const VerifyReport report = Tensors(base_, BitMap::Uniform(Bits::k4), archive_);
  EXPECT_TRUE(report.ok()) << report.problems[0];
  EXPECT_EQ(archive_.tensors.size(), report.tensors);
  EXPECT_EQ(0u, report.different_tensors);
  const CactModel mixed = *CactModel::Open(test::Golden("alt/mixed.cact"));
  const VerifyReport other = Tensors(base_, *BitMap::Parse(base_.config.weight_bits), mixed);
  EXPECT_TRUE(other.ok()) << other.problems[0];
}

TEST_F(VerifyTest, TheWidthsOfAnArchiveComeBackFromItsTensors) {
  const CactModel mixed = *CactModel::Open(test::Golden("alt/mixed.cact"));
  EXPECT_TRUE(Tensors(base_, BitsOf(mixed), mixed).ok());
  EXPECT_TRUE(Tensors(base_, BitsOf(archive_), archive_).ok());
}

TEST_F(VerifyTest, NamesTheFirstTensorThatDiffers) {
  for (const char* name : {"layer01.k_proj", "layer00.norm_in", "embedding", "mhc_phi_res"}) {
    const CactTensor* tensor = archive_.Find(name);
    ASSERT_NE(nullptr, tensor) << name;
    std::vector<uint8_t> changed = bytes_;
    changed[tensor->offset + 3] ^= 0x01;
    const CactModel archive = *CactModel::FromBytes(changed, "changed.cact");
    const VerifyReport report = Tensors(base_, BitMap::Uniform(Bits::k4), archive);
    ASSERT_EQ(1u, report.problems.size());
    EXPECT_EQ(1u, report.different_tensors);
    EXPECT_NE(std::string::npos, report.problems[0].find(name)) << report.problems[0];
    if (tensor->type == CactType::kCodes) {
      EXPECT_NE(std::string::npos, report.problems[0].find("1 of ")) << report.problems[0];
    }
  }
}

TEST_F(VerifyTest, SeesAnotherAdapterAnotherWidthAndAnotherModel) {
  const Checkpoint merged = *Merge(base_, *LoadAdapter(test::Golden("alt/adapter_none.pkl")));
  EXPECT_GT(Tensors(merged, BitMap::Uniform(Bits::k4), archive_).different_tensors, 1u);
  const VerifyReport width = Tensors(base_, BitMap::Uniform(Bits::k2), archive_);
  ASSERT_FALSE(width.ok());
  EXPECT_NE(std::string::npos, width.problems[0].find("has 4 bits, but wanted 2"))
      << width.problems[0];
  Checkpoint other = base_;
  other.config.rope_theta *= 2;
  EXPECT_FALSE(Tensors(other, BitMap::Uniform(Bits::k4), archive_).ok());
}

TEST_F(VerifyTest, SixteenPromptsFitTheModel) {
  for (const size_t room : {40, 4096}) {
    const auto prompts = *VerifyPrompts(tokenizer_, room);
    EXPECT_EQ(16u, prompts.size());
    for (const std::vector<int32_t>& ids : prompts) {
      EXPECT_LE(ids.size(), room);
      EXPECT_EQ(kBosId, ids[0]);
    }
  }
}

TEST_F(VerifyTest, EveryArchiveOfTheGoldensAnswersLikeItsCheckpoint) {
  VerifyOptions options;
  options.threads = 2;
  for (const std::string name : {"alt/alt w4", "alt/alt mixed", "tiny/tiny w2", "tiny/tiny w4"}) {
    const size_t space = name.find(' '), slash = name.find('/');
    const Checkpoint base = *LoadCheckpoint(test::Golden(name.substr(0, space) + ".pkl"));
    const CactModel archive = *CactModel::Open(
        test::Golden(name.substr(0, slash + 1) + name.substr(space + 1) + ".cact"));
    const VerifyReport report = *VerifyArchive(base, BitsOf(archive), tokenizer_, archive, options);
    EXPECT_TRUE(report.ok()) << name << ": " << report.problems[0];
    EXPECT_EQ(16u, report.prompts);
    EXPECT_LE(report.worst_logits, 1e-6) << name;  // the same values, however they were packed
  }
}

TEST_F(VerifyTest, AnotherAdapterAnswersOtherwise) {
  const Checkpoint merged = *Merge(base_, *LoadAdapter(test::Golden("alt/adapter_none.pkl")));
  const VerifyReport report =
      *VerifyArchive(merged, BitMap::Uniform(Bits::k4), tokenizer_, archive_, {.threads = 2});
  EXPECT_GT(report.worst_logits, 1e-3);
  EXPECT_GE(report.problems.size(), 2u);
}

/// Logits that depend on the whole prefix, and a disturbance of one of them.
class HashModel : public LanguageModel {
 public:
  explicit HashModel(float disturbance = 0, bool close = false)
      : disturbance_(disturbance), close_(close) {}
  size_t vocab_size() const override { return 32; }
  size_t max_length() const override { return 100; }
  size_t length() const override { return rows_.size(); }
  void Truncate(size_t length) override { rows_.resize(length); }
  void SetSinks(size_t) override {}
  Result<std::span<const float>> Append(std::span<const int32_t> ids) override {
    rows_.insert(rows_.end(), ids.begin(), ids.end());
    uint32_t h = 7;
    for (const int32_t id : rows_) h = (h ^ static_cast<uint32_t>(id)) * 0x01000193u;
    logits_.assign(32, 0);
    for (float& logit : logits_)
      logit = static_cast<float>((h = h * 1664525u + 1013904223u) >> 16) / 65536;
    logits_[9] = 10;
    logits_[8] = close_ ? 9.9999f : 5;
    logits_[8] += disturbance_;
    return std::span<const float>(logits_);
  }

 private:
  float disturbance_;
  bool close_;
  std::vector<int32_t> rows_;
  std::vector<float> logits_;
};

VerifyReport Models(HashModel want, HashModel got) {
  VerifyReport report;
  EXPECT_TRUE(CompareModels(want, got, {{2, 5}, {2, 6, 7}}, {}, &report).ok());
  return report;
}

TEST(CompareModels, EqualModelsHaveNoProblems) {
  const VerifyReport report = Models(HashModel(), HashModel());
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(0, report.worst_logits);
  EXPECT_EQ(2u, report.prompts);
  EXPECT_EQ(50u, report.positions);  // the prompt's last row and 24 answer tokens, twice
}

TEST(CompareModels, SeesLogitsAndTokensThatDiffer) {
  const VerifyReport small = Models(HashModel(), HashModel(0.0005f));
  EXPECT_TRUE(small.ok());
  EXPECT_NEAR(5e-5, small.worst_logits, 1e-6);
  const VerifyReport large = Models(HashModel(), HashModel(0.01f));
  ASSERT_EQ(1u, large.problems.size());
  EXPECT_NE(std::string::npos, large.problems[0].find("prompt 1"));
  EXPECT_EQ(0u, large.different_tokens);
  const VerifyReport token = Models(HashModel(), HashModel(6));
  EXPECT_EQ(2u, token.problems.size());
  EXPECT_EQ(50u, token.different_tokens);
}

TEST(CompareModels, ATokenMayDifferWhereTheBestTwoAreClose) {
  const VerifyReport report = Models(HashModel(0, true), HashModel(0.0003f, true));
  EXPECT_TRUE(report.ok());
  EXPECT_EQ(50u, report.close_calls);
}

TEST(CompareModels, NotANumberIsADifference) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(Models(HashModel(), HashModel(nan)).ok());
  EXPECT_FALSE(Models(HashModel(nan), HashModel()).ok());
}

}  // namespace
}  // namespace needle
