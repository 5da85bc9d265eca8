// SentencePiece itself as the oracle: the models that we write load there and encode alike.
#ifdef NEEDLE_TEST_SENTENCEPIECE
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <random>

#include "base/utf8.h"
#include "text/render.h"
#include "text/support.h"

namespace needle {
namespace {

class SentencePieceOracle : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    files_ = test::FilesOf(GetParam());
    ours_ = std::make_unique<Tokenizer>(test::LoadModel(files_.model));
    const std::vector<uint8_t> written = ours_->ToModelProto();
    const auto status = theirs_.LoadFromSerializedProto(
        {reinterpret_cast<const char*>(written.data()), written.size()});
    ASSERT_TRUE(status.ok()) << status.ToString();
  }

  void ExpectSame(const std::string& text) {
    std::vector<int> want;
    ASSERT_TRUE(theirs_.Encode(text, &want).ok());
    const auto got = ours_->Encode(text);
    ASSERT_TRUE(got.ok()) << got.error().message();
    EXPECT_EQ(*got, want) << text;
    std::string decoded;
    ASSERT_TRUE(theirs_.Decode(want, &decoded).ok());
    EXPECT_EQ(ours_->Decode(*got), decoded) << text;
  }

  test::VocabularyFiles files_;
  std::unique_ptr<Tokenizer> ours_;
  sentencepiece::SentencePieceProcessor theirs_;
};

TEST_P(SentencePieceOracle, LoadsWhatWeWroteWithTheSameIds) {
  ASSERT_EQ(static_cast<size_t>(theirs_.GetPieceSize()), ours_->size());
  for (int id = 0; id < theirs_.GetPieceSize(); ++id) {
    EXPECT_EQ(theirs_.IdToPiece(id), ours_->piece(id).text);
    EXPECT_EQ(theirs_.GetScore(id), ours_->piece(id).score);
    EXPECT_EQ(theirs_.IsControl(id), ours_->piece(id).type == PieceType::kControl);
    EXPECT_EQ(theirs_.IsByte(id), ours_->piece(id).type == PieceType::kByte);
  }
}

TEST_P(SentencePieceOracle, EncodesEveryEdgeTextAlike) {
  for (const std::string& text : test::FileLines(files_.edge)) {
    ExpectSame(text);
    const auto line = json::Parse(StripPython(text));
    const auto rendered = line.ok() ? RenderExample(*line) : Result<RenderedExample>(line.error());
    if (!rendered.ok()) continue;
    ExpectSame(rendered->prompt);
    ExpectSame(rendered->target);
  }
}

TEST_P(SentencePieceOracle, EncodesRandomTextsAlike) {
  std::mt19937 random(7);
  const std::string letters = "aaeeiioottnnrrss  dlu{}\":,[]0123_.\n";
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t n = random() % 40; n > 0; --n) {
      const auto kind = random() % 20;
      char32_t c = static_cast<char32_t>(letters[random() % letters.size()]);
      if (kind == 0) c = static_cast<char32_t>(random() % 0x110000);
      if (kind == 1) c = 0x2581;
      if (kind == 2) c = static_cast<char32_t>(random() % 0x800);
      if (c >= 0xD800 && c < 0xE000) c = 0xFFFD;
      AppendUtf8(text, c);
      if (kind == 3) text += kChatMarkers[random() % kChatMarkers.size()];
      if (kind == 4) text += ours_->piece(static_cast<int32_t>(random() % ours_->size())).text;
    }
    ExpectSame(text);
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabulary, SentencePieceOracle, testing::Values(1024, 8192));

}  // namespace
}  // namespace needle
#endif
