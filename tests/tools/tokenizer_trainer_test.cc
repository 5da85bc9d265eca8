// The trained vocabulary: a word has the same pieces wherever it stands.
#include "corpus/tokenizer_trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "corpus/rng.h"
#include "corpus/rows.h"
#include "corpus/values.h"

namespace needle::corpus {
namespace {

Tokenizer Trained() {
  RunCounts counts;
  for (uint64_t group = 0; group < 150; ++group)
    for (const std::string& line : MakeGroup(CorpusOptions(), group))
      EXPECT_TRUE(CountLine(line, counts).ok());
  auto tokenizer = Tokenizer::FromPieces(TrainPieces(counts, 900));
  EXPECT_TRUE(tokenizer.ok());
  return *std::move(tokenizer);
}

std::vector<int32_t> Encoded(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.Encode(text);
  EXPECT_TRUE(ids.ok());
  return *ids;
}

bool Contains(const std::vector<int32_t>& whole, const std::vector<int32_t>& part) {
  return std::search(whole.begin(), whole.end(), part.begin(), part.end()) != whole.end();
}

TEST(TokenizerTrainer, WordsHaveTheSamePiecesInEveryContext) {
  const Tokenizer tokenizer = Trained();
  Rng rng(7);
  for (int i = 0; i < 300; ++i) {
    const std::string word =
        i % 2 == 0 ? AnyWord({rng, Part::kValid}) : Capitalised(MadeUpWord({rng, Part::kValid}));
    std::vector<int32_t> pieces = Encoded(tokenizer, word);
    pieces.erase(pieces.begin());  // the dummy space
    for (const char* before : {"", "\"", "_", "(", "9", "{\"", "'", "“", "x "})
      for (const char* after : {"", " ", "\"", "\",\"", "\"}}]", ".", "!", ":", "7", "?\""})
        EXPECT_TRUE(Contains(Encoded(tokenizer, before + word + after), pieces))
            << before << word << after;
  }
}

TEST(TokenizerTrainer, KeepsTheReservedIdsAndTheAskedSize) {
  const Tokenizer tokenizer = Trained();
  EXPECT_EQ(tokenizer.size(), 900u);
  EXPECT_EQ(tokenizer.IdOf("<pad>"), kPadId);
  EXPECT_EQ(tokenizer.IdOf("</s>"), kEosId);
  EXPECT_EQ(tokenizer.IdOf("<s>"), kBosId);
  EXPECT_EQ(tokenizer.IdOf("<unk>"), kUnkId);
  for (size_t i = 0; i < kChatMarkers.size(); ++i)
    EXPECT_EQ(tokenizer.IdOf(kChatMarkers[i]), static_cast<int32_t>(4 + i));
  EXPECT_EQ(tokenizer.IdOf("<0x00>"), 14);
  EXPECT_EQ(tokenizer.IdOf("<0xFF>"), 269);
}

TEST(TokenizerTrainer, MakesSinglePiecesOfTheWordsOfSchemas) {
  const Tokenizer tokenizer = Trained();
  for (const char* word : {"name", "description", "parameters", "type", "object", "properties",
                           "string", "integer", "number", "required", "arguments"})
    EXPECT_GE(tokenizer.IdOf(word), 0) << word;
}

TEST(TokenizerTrainer, KeepsSpacesDigitsAndSentenceSignsApart) {
  const Tokenizer tokenizer = Trained();
  for (size_t id = 270; id < tokenizer.size(); ++id) {
    const std::string& text = tokenizer.piece(static_cast<int32_t>(id)).text;
    if (text.find_first_of("0123456789.!?'_-") != std::string::npos) {
      EXPECT_EQ(text.size(), 1u) << text;
    }
    if (text.find("\u2581") != std::string::npos) {
      EXPECT_EQ(text, "\u2581");
    }
    if (text.find_first_of("{}[]:,\"") != std::string::npos) {
      EXPECT_EQ(text.find_first_not_of("{}[]:,\""), std::string::npos) << text;
    }
  }
}

TEST(TokenizerTrainer, RefusesALineThatIsNoExample) {
  RunCounts counts;
  EXPECT_FALSE(CountLine("{", counts).ok());
  EXPECT_FALSE(CountLine("{}", counts).ok());
}

}  // namespace
}  // namespace needle::corpus
