#include "base/sha256.h"

#include <gtest/gtest.h>

namespace needle {
namespace {

std::string HexOf(std::string_view text) {
  Sha256 hash;
  hash.Update(text);
  return hash.HexDigest();
}

// The examples of FIPS 180-4.
TEST(Sha256, GivesThePublishedDigests) {
  EXPECT_EQ(HexOf(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(HexOf("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(HexOf("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(HexOf(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveTheDigestOfTheWholeAtEveryLength) {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    for (const size_t piece : {1, 3, 63, 64, 65}) {
      Sha256 hash;
      for (size_t at = 0; at < text.size(); at += piece)
        hash.Update(std::string_view(text).substr(at, piece));
      ASSERT_EQ(hash.HexDigest(), HexOf(text)) << text.size() << " in pieces of " << piece;
    }
    text += static_cast<char>(i * 7);
  }
}

// hashlib.sha256(bytes(range(n))).hexdigest() around a block's end, where the padding changes.
TEST(Sha256, PadsRightAroundABlocksEnd) {
  const std::pair<size_t, const char*> cases[] = {
      {55, "463eb28e72f82e0a96c0a4cc53690c571281131f672aa229e0d45ae59b598b59"},
      {56, "da2ae4d6b36748f2a318f23e7ab1dfdf45acdc9d049bd80e59de82a60895f562"},
      {63, "29af2686fd53374a36b0846694cc342177e428d1647515f078784d69cdb9e488"},
      {64, "fdeab9acf3710362bd2658cdc9a29e8f9c757fcf9811603a8c447cd1d9151108"},
      {119, "da18797ed7c3a777f0847f429724a2d8cd5138e6ed2895c3fa1a6d39d18f7ec6"}};
  for (const auto& [n, want] : cases) {
    std::string text;
    for (size_t i = 0; i < n; ++i) text += static_cast<char>(i);
    EXPECT_EQ(HexOf(text), want) << n;
  }
}

TEST(Sha256, GoesOnAfterADigest) {
  Sha256 hash;
  hash.Update("ab");
  EXPECT_EQ(hash.HexDigest(), HexOf("ab"));
  hash.Update("c");
  EXPECT_EQ(hash.HexDigest(), HexOf("abc"));
}

}  // namespace
}  // namespace needle
