#include "text/tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <random>
#include <thread>

#include "base/utf8.h"
#include "text/protobuf.h"
#include "text/support.h"

namespace needle {
namespace {

using test::PiecesWith;

Tokenizer Make(const std::vector<std::string>& extra) {
  auto tokenizer = Tokenizer::FromPieces(PiecesWith(extra));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  return std::move(tokenizer).value();
}

std::vector<std::string> Texts(const Tokenizer& t, std::string_view text) {
  const std::vector<int32_t> ids = *t.Encode(text);
  std::vector<std::string> out;
  for (const int32_t id : ids) out.push_back(t.piece(id).text);
  return out;
}

const Tokenizer& Golden1024() {
  static const Tokenizer tokenizer = test::LoadModel(test::FilesOf(1024).model);
  return tokenizer;
}

using Strings = std::vector<std::string>;

TEST(Tokenizer, MergesTheHighestScoreFirstAndTheLeftmostOnTies) {
  // "ab" and "bc" score alike; in "abc" both could be merged, and the left one is.
  std::vector<Piece> pieces = PiecesWith({"a", "b", "c", "\u2581", "ab", "bc"});
  pieces[pieces.size() - 1].score = pieces[pieces.size() - 2].score = -1;
  const auto tie = Tokenizer::FromPieces(pieces);
  EXPECT_EQ(Texts(*tie, "abc"), (Strings{"\u2581", "ab", "c"}));
  pieces.back().score = -0.5f;
  const auto right = Tokenizer::FromPieces(pieces);
  EXPECT_EQ(Texts(*right, "abc"), (Strings{"\u2581", "a", "bc"}));
}

TEST(Tokenizer, MergesThroughCodePointsThatAreNoPieces) {
  // Neither "x" nor "y" is a piece, yet "xy" is; a lone "x" falls back to its byte.
  const Tokenizer t = Make({"\u2581", "xy"});
  EXPECT_EQ(Texts(t, "xyx"), (Strings{"\u2581", "xy", "<0x78>"}));
}

TEST(Tokenizer, FallsBackToTheBytesOfACodePoint) {
  const Tokenizer t = Make({"\u2581"});
  EXPECT_EQ(Texts(t, "\u00e9"), (Strings{"\u2581", "<0xC3>", "<0xA9>"}));
}

TEST(Tokenizer, CutsMarkersOutFirstAndPutsTheDummyPrefixBeforeThem) {
  const Tokenizer t = Make({"\u2581", "<", "|", "x<", "x"});
  EXPECT_EQ(Texts(t, "<think>"), (Strings{"\u2581", "<think>"}));
  EXPECT_EQ(Texts(t, "x<|im_end|>x"), (Strings{"\u2581", "x", "<|im_end|>", "x"}));
}

TEST(Tokenizer, TakesTheLongestMarkerAtAPlace) {
  std::vector<Piece> pieces = PiecesWith({"\u2581", "a"});
  pieces.push_back({"<think>a", 0, PieceType::kUserDefined});
  const auto t = Tokenizer::FromPieces(pieces);
  EXPECT_EQ(Texts(*t, "<think>a<think>"), (Strings{"\u2581", "<think>a", "<think>"}));
}

TEST(Tokenizer, TreatsControlNamesInTheTextAsOrdinaryText) {
  const std::vector<int32_t> ids = *Golden1024().Encode("</s><pad><s><unk><0x41>");
  for (const int32_t id : ids) EXPECT_GE(id, 14);
}

TEST(Tokenizer, GivesNoIdsForEmptyText) { EXPECT_TRUE(Golden1024().Encode("")->empty()); }

TEST(Tokenizer, RefusesTextThatIsNotUtf8) {
  for (const std::string_view bad : {"a\xED\xA0\x80", "a\xFF", "a\xC3"}) {
    const auto ids = Golden1024().Encode(bad);
    ASSERT_FALSE(ids.ok());
    EXPECT_NE(ids.error().message().find("at byte 1"), std::string::npos) << ids.error().message();
  }
}

TEST(Tokenizer, DecodesEachByteOfAnInvalidSequenceAsItsOwnReplacement) {
  const Tokenizer t = Make({"\u2581", "\u2581a"});
  const auto id = [&](std::string_view text) { return t.IdOf(text); };
  EXPECT_EQ(t.Decode(std::vector<int32_t>{id("<0xE2>"), id("<0x82>")}), "\uFFFD\uFFFD");
  EXPECT_EQ(t.Decode(std::vector<int32_t>{id("<0xE2>"), id("<0x82>"), id("<0xAC>")}), "\u20ac");
}

TEST(Tokenizer, DropsOneLeadingSpaceMarkOfTheFirstVisiblePieceOnly) {
  const Tokenizer t = Make({"\u2581", "\u2581a"});
  const int32_t space = t.IdOf("\u2581"), a = t.IdOf("\u2581a"), byte = t.IdOf("<0x20>");
  EXPECT_EQ(t.Decode(std::vector<int32_t>{space, a}), " a");
  EXPECT_EQ(t.Decode(std::vector<int32_t>{kBosId, a, a}), "a a");
  EXPECT_EQ(t.Decode(std::vector<int32_t>{byte, a}), "  a");
  EXPECT_EQ(t.Decode(std::vector<int32_t>{kUnkId, a}), " \u2047  a");
  EXPECT_EQ(t.Decode(std::vector<int32_t>{-1, 1 << 20}), " \u2047  \u2047 ");
}

TEST(Tokenizer, StreamsTheBytesOfEachId) {
  const Tokenizer t = Make({"\u2581", "\u2581a\u2581"});
  EXPECT_EQ(t.Bytes(t.IdOf("\u2581a\u2581")), " a ");
  EXPECT_EQ(t.Bytes(t.IdOf("<0xFF>")), "\xFF");
  EXPECT_EQ(t.Bytes(kEosId), "");
  EXPECT_EQ(t.Bytes(4), "<|im_start|>");
}

TEST(Tokenizer, EncodesAMegabyteInAboutASecond) {
  // One stretch without a marker, so that the work cannot hide in short pieces. The bound is wide
  // enough for a sanitizer build; quadratic work would take hours.
  std::mt19937 random(1);
  std::string text;
  while (text.size() < (1u << 20)) text += static_cast<char>('a' + random() % 26);
  const std::string same(1u << 20, 'a');
  const auto start = std::chrono::steady_clock::now();
  EXPECT_GT(Golden1024().Encode(text)->size(), 1000u);
  EXPECT_GT(Golden1024().Encode(same)->size(), 1000u);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 20.0);
  RecordProperty("seconds_for_two_megabytes", std::to_string(took.count()));
}

TEST(Tokenizer, EncodesFromManyThreadsAlike) {
  const auto want = *Golden1024().Encode("weather in Oslo tomorrow, please");
  std::vector<std::thread> threads;
  std::vector<int> same(4, 0);
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < 50; ++k)
        same[i] += *Golden1024().Encode("weather in Oslo tomorrow, please") == want;
    });
  for (std::thread& thread : threads) thread.join();
  for (const int n : same) EXPECT_EQ(n, 50);
}

/// Any Unicode text, made mostly of what the vocabulary and the markers are made of.
rc::Gen<std::string> AnyText() {
  const auto code_point = rc::gen::oneOf(
      rc::gen::inRange<uint32_t>(0, 0x80), rc::gen::inRange<uint32_t>(0x20, 0x7F),
      rc::gen::inRange<uint32_t>(0x80, 0xD800), rc::gen::inRange<uint32_t>(0xE000, 0x110000),
      rc::gen::element<uint32_t>(0x20, 0x2581, 0xFFFD));
  const auto piece = rc::gen::oneOf(
      rc::gen::map(code_point,
                   [](uint32_t c) {
                     std::string s;
                     AppendUtf8(s, c);
                     return s;
                   }),
      rc::gen::map(rc::gen::inRange(0, 10), [](int i) { return std::string(kChatMarkers[i]); }));
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(piece),
                      [](const Strings& parts) {
                        std::string all;
                        for (const std::string& part : parts) all += part;
                        return all;
                      });
}

/// Textbook merging: look at all pairs, merge the best, again.
Strings MergeSlowly(const Tokenizer& t, const std::string& text) {
  Strings parts;
  for (size_t at = 0; at < text.size();) {
    const size_t length = DecodeUtf8(text, at).length;
    parts.push_back(text.substr(at, length));
    at += length;
  }
  for (;;) {
    int best = -1;
    float score = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const int32_t id = t.IdOf(parts[i] + parts[i + 1]);
      if (id < 0 || t.piece(id).type != PieceType::kNormal) continue;
      if (best >= 0 && t.piece(id).score <= score) continue;
      best = static_cast<int>(i);
      score = t.piece(id).score;
    }
    if (best < 0) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + best + 1);
  }
}

RC_GTEST_PROP(TokenizerProperties, MergesLikeTheTextbook, ()) {
  const auto letters = *rc::gen::container<std::string>(rc::gen::element('a', 'e', 't', 'r', 'n'));
  if (letters.empty()) return;
  Strings want = MergeSlowly(Golden1024(), "\u2581" + letters);
  RC_ASSERT(Texts(Golden1024(), letters) == want);
}

RC_GTEST_PROP(TokenizerProperties, DecodingGivesTheTextBackWithSpaceMarksAsSpaces, ()) {
  const std::string text = *AnyText();
  std::string want;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = DecodeUtf8(text, at);
    if (c.value == 0x2581)
      want += ' ';
    else
      want += text.substr(at, c.length);
    at += c.length;
  }
  RC_ASSERT(Golden1024().Decode(*Golden1024().Encode(text)) == want);
}

TEST(Tokenizer, RefusesPiecesThatANeedleTokenizerCannotHave) {
  const auto expect = [](const std::vector<Piece>& pieces, const char* part) {
    const auto t = Tokenizer::FromPieces(pieces);
    ASSERT_FALSE(t.ok()) << part;
    EXPECT_NE(t.error().message().find(part), std::string::npos) << t.error().message();
  };
  expect({}, "has 0 pieces");
  expect(PiecesWith({"a", "a"}), "is there twice");
  expect(PiecesWith({""}), "is empty");
  expect(PiecesWith({"\xFF"}), "is not UTF-8");
  expect(PiecesWith({std::string(1025, 'a')}), "1025 bytes");
  auto pieces = PiecesWith({"a"});
  pieces.back().score = NAN;
  expect(pieces, "not finite");
  pieces = PiecesWith({});
  pieces[7].text = "<other>";
  expect(pieces, "\"</think>\" there");
  pieces = PiecesWith({});
  pieces.pop_back();
  expect(pieces, "no piece for byte 255");
  pieces = PiecesWith({});
  pieces[0].type = PieceType::kNormal;
  expect(pieces, "no control piece");
}

TEST(TokenizerBlob, WritesOtherUserDefinedPiecesAsNormalOnes) {
  auto pieces = PiecesWith({"a"});
  pieces.push_back({"<mine>", 0, PieceType::kUserDefined});
  const auto t = Tokenizer::FromPieces(pieces);
  const auto again = Tokenizer::FromBlob(t->ToBlob(), "blob");
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(again->piece(again->IdOf("<mine>")).type, PieceType::kNormal);
  EXPECT_EQ(again->piece(4).type, PieceType::kUserDefined);
}

TEST(TokenizerBlob, RefusesOtherUserDefinedPiecesByTheirNumber) {
  const Tokenizer tokenizer = Make({"ab"});
  std::vector<uint8_t> blob = tokenizer.ToBlob();
  blob[blob.size() - 2 - 3] = static_cast<uint8_t>(PieceType::kUserDefined);  // "ab", its length
  const auto t = Tokenizer::FromBlob(blob, "blob");
  ASSERT_FALSE(t.ok());
  const std::string piece = "piece " + std::to_string(tokenizer.size() - 1) + " is user-defined";
  EXPECT_NE(t.error().message().find(piece), std::string::npos) << t.error().message();
}

TEST(TokenizerBlob, RefusesEveryTruncationAndTrailingBytes) {
  std::vector<uint8_t> blob = Make({"a", "bc"}).ToBlob();
  for (size_t n = 0; n < blob.size(); ++n)
    EXPECT_FALSE(Tokenizer::FromBlob({blob.data(), n}, "blob").ok()) << n;
  blob.push_back(0);
  const auto t = Tokenizer::FromBlob(blob, "blob");
  ASSERT_FALSE(t.ok());
  EXPECT_NE(t.error().message().find("1 bytes too many"), std::string::npos);
}

TEST(TokenizerBlob, NamesTheByteOfAWrongHeader) {
  std::vector<uint8_t> blob = Make({}).ToBlob();
  blob[8] = 5;
  const auto t = Tokenizer::FromBlob(blob, "m.cact");
  ASSERT_FALSE(t.ok());
  EXPECT_NE(t.error().message().find("m.cact: tokenizer section, byte 12: a special id is 5"),
            std::string::npos)
      << t.error().message();
}

TEST(TokenizerModel, ReadsBackWhatItWrote) {
  const Tokenizer& t = Golden1024();
  const auto again = Tokenizer::FromModelProto(t.ToModelProto(), "written");
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_TRUE(again->ToBlob() == t.ToBlob());
}

TEST(TokenizerModel, RefusesEveryTruncationWithoutReadingPastTheEnd) {
  const std::vector<uint8_t> model = Make({"a"}).ToModelProto();
  for (size_t n = 0; n < model.size(); ++n) {
    const std::vector<uint8_t> cut(model.begin(), model.begin() + static_cast<long>(n));
    EXPECT_FALSE(Tokenizer::FromModelProto(cut, "cut").ok()) << n;
  }
}

TEST(TokenizerModel, SurvivesFlippedBits) {
  const std::vector<uint8_t> model = Make({"a"}).ToModelProto();
  for (size_t bit = 0; bit < 8 * model.size(); bit += 37) {  // odd, so that every bit has its turn
    std::vector<uint8_t> flipped = model;
    flipped[bit / 8] = static_cast<uint8_t>(flipped[bit / 8] ^ (1u << (bit % 8)));
    const auto t = Tokenizer::FromModelProto(flipped, "flipped");
    if (t.ok()) {
      EXPECT_TRUE(t->Encode("a <think>").ok());
    } else {
      EXPECT_NE(t.error().message().find("flipped: "), std::string::npos);
    }
  }
}

/// A model that is ours but for the given trainer and normaliser fields.
std::string RefusalOf(const std::function<void(ProtoWriter& trainer, ProtoWriter& norm)>& change,
                      uint64_t piece_type = 1) {
  ProtoWriter model, trainer, norm;
  for (const Piece& p : PiecesWith({"a"})) {
    ProtoWriter piece;
    piece.Bytes(1, p.text);
    piece.Varint(3,
                 p.text == "a" ? piece_type : std::array{1, 2, 3, 4, 6}[static_cast<int>(p.type)]);
    model.Message(1, piece);
  }
  trainer.Varint(3, 2);
  trainer.Varint(35, 1);
  norm.Varint(4, 0);
  change(trainer, norm);
  model.Message(2, trainer);
  model.Message(3, norm);
  const auto t = Tokenizer::FromModelProto(model.bytes(), "m.model");
  return t.ok() ? "" : t.error().message();
}

TEST(TokenizerModel, RefusesNormalisationThatItDoesNotDo) {
  const auto has = [](const std::string& message, const char* part) {
    return message.find(part) != std::string::npos;
  };
  using W = ProtoWriter;
  EXPECT_EQ(RefusalOf([](W&, W&) {}), "");
  EXPECT_TRUE(has(RefusalOf([](W& t, W&) { t.Varint(3, 1); }), "unigram"));
  EXPECT_TRUE(has(RefusalOf([](W& t, W&) { t.Varint(35, 0); }), "no byte fallback"));
  EXPECT_TRUE(has(RefusalOf([](W& t, W&) { t.Varint(24, 1); }), "as a suffix"));
  EXPECT_TRUE(has(RefusalOf([](W&, W& n) { n.Bytes(2, "map"); }), "character map"));
  EXPECT_TRUE(has(RefusalOf([](W&, W& n) { n.Varint(3, 0); }), "no dummy prefix"));
  EXPECT_TRUE(has(RefusalOf([](W&, W& n) { n.Varint(4, 1); }), "extra white space"));
  EXPECT_TRUE(has(RefusalOf([](W&, W& n) { n.Varint(5, 0); }), "escape spaces"));
  EXPECT_TRUE(has(RefusalOf([](W&, W&) {}, /*piece_type=*/5), "unused"));
  EXPECT_TRUE(has(RefusalOf([](W&, W& n) { n.Bytes(3, "x"); }), "wire type 2"));
}

TEST(TokenizerFile, IsRecognisedByItsContent) {
  const auto model = Tokenizer::Load(test::FilesOf(1024).model);
  const auto blob = Tokenizer::Load(test::FilesOf(1024).blob);
  ASSERT_TRUE(model.ok()) << model.error().message();
  ASSERT_TRUE(blob.ok()) << blob.error().message();
  EXPECT_TRUE(model->ToBlob() == blob->ToBlob());
}

TEST(TokenizerFile, ThatIsSomethingElseIsRefusedByName) {
  const std::string path = test::FilesOf(1024).edge;
  const auto t = Tokenizer::Load(path);
  ASSERT_FALSE(t.ok());
  EXPECT_EQ(t.error().code(), Code::kCorruptFile);
  EXPECT_NE(t.error().message().find("edge.jsonl"), std::string::npos);
}

}  // namespace
}  // namespace needle
