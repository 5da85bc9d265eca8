// Rendered text, token ids, decoded text and the archive's section, equal to upstream's output.
#include <gtest/gtest.h>

#include "text/render.h"
#include "text/support.h"
#include "text/tokenizer.h"

namespace needle {
namespace {

class TextParity : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { files_ = test::FilesOf(GetParam()); }
  test::VocabularyFiles files_;
};

TEST_P(TextParity, EveryEdgeLineRendersAndEncodesAndDecodesAsUpstream) {
  const Tokenizer tokenizer = test::LoadModel(files_.model);
  const auto lines = test::FileLines(files_.edge);
  const auto records = test::FileLines(files_.edge_tokens);
  ASSERT_EQ(lines.size(), records.size());
  size_t compared = 0;
  for (size_t i = 0; i < records.size(); ++i) {
    SCOPED_TRACE(i);
    const auto record = json::Parse(records[i]);
    ASSERT_TRUE(record.ok()) << record.error().message();
    const std::string status = record->Find("status")->as_string();
    if (status == "blank") {
      EXPECT_EQ(StripPython(lines[i]), "");
      continue;
    }
    const auto line = json::Parse(StripPython(lines[i]));
    ASSERT_TRUE(line.ok()) << line.error().message();
    const auto rendered = RenderExample(*line);
    ASSERT_EQ(rendered.ok(), status == "ok");
    if (!rendered.ok()) continue;
    for (const std::string part : {"prompt", "target"}) {
      const std::string& text = part == "prompt" ? rendered->prompt : rendered->target;
      EXPECT_EQ(text, record->Find(part)->as_string());
      const auto ids = tokenizer.Encode(text);
      ASSERT_TRUE(ids.ok()) << ids.error().message();
      EXPECT_EQ(*ids, test::Ints(*record->Find(part + "_ids")));
      EXPECT_EQ(tokenizer.Decode(*ids), record->Find("decoded_" + part)->as_string());
    }
    ++compared;
  }
  EXPECT_EQ(compared, 41u);
}

TEST_P(TextParity, RandomIdsDecodeAsUpstream) {
  const Tokenizer tokenizer = test::LoadModel(files_.model);
  const auto records = json::Parse(test::FileText(files_.decode_random));
  ASSERT_TRUE(records.ok()) << records.error().message();
  ASSERT_FALSE(records->items().empty());
  for (const json::Value& record : records->items())
    EXPECT_EQ(tokenizer.Decode(test::Ints(*record.Find("ids"))), record.Find("text")->as_string());
}

TEST_P(TextParity, TheArchiveSectionIsByteEqualAndReadsBack) {
  const Tokenizer tokenizer = test::LoadModel(files_.model);
  const std::vector<uint8_t> want = test::FileBytes(files_.blob);
  EXPECT_TRUE(tokenizer.ToBlob() == want);
  const auto again = Tokenizer::FromBlob(want, files_.blob);
  ASSERT_TRUE(again.ok()) << again.error().message();
  ASSERT_EQ(again->size(), tokenizer.size());
  for (int32_t id = 0; id < static_cast<int32_t>(tokenizer.size()); ++id) {
    EXPECT_EQ(again->piece(id).text, tokenizer.piece(id).text);
    EXPECT_EQ(again->piece(id).score, tokenizer.piece(id).score);
    EXPECT_EQ(again->piece(id).type, tokenizer.piece(id).type);
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabulary, TextParity, testing::Values(1024, 8192));

}  // namespace
}  // namespace needle
