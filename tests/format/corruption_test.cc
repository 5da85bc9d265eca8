// Damaged files: cut at many lengths and with bits flipped, every reader either refuses with a
// sentence that names the file and a place in it, or reads something; it never crashes (the
// sanitizer presets run this too).
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/file.h"
#include "format/adapter.h"
#include "format/checkpoint.h"
#include "format/pickle.h"
#include "format/safetensors.h"
#include "support/npz.h"

namespace needle {
namespace {

using Bytes = std::vector<uint8_t>;
/// Parses; "" when the bytes were read, else the sentence.
using Parse = std::function<std::string(const Bytes&)>;

template <class T>
std::string Sentence(const Result<T>& result) {
  if (result.ok()) return "";
  EXPECT_EQ(result.error().code(), Code::kCorruptFile) << result.error().message();
  return result.error().message();
}

Bytes Read(const std::string& name) {
  Result<Bytes> bytes = ReadFile(test::Golden(name));
  EXPECT_TRUE(bytes.ok()) << name;
  return bytes.ok() ? *std::move(bytes) : Bytes();
}

/// The sentence says which file, and where: a byte, or a thing by its quoted or path-like name.
void ExpectPlaceNamed(const std::string& sentence) {
  EXPECT_EQ(sentence.rfind("damaged: ", 0), 0u) << sentence;
  bool place = false;
  for (const char* part : {"byte", "\"", "/", "model config", "format_version", "neither a pickle"})
    place = place || sentence.find(part) != sentence.npos;
  EXPECT_TRUE(place) << sentence;
}

/// Cut at every length (of a sample of 500 when there are more): always refused.
void CheckTruncation(const Bytes& whole, const Parse& parse) {
  ASSERT_EQ(parse(whole), "");
  const size_t step = std::max<size_t>(1, whole.size() / 500);
  for (size_t length = 0; length < whole.size(); length += length < 600 ? 1 : step) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<long>(length));
    const std::string sentence = parse(cut);
    ASSERT_NE(sentence, "") << "read although cut at " << length;
    if (length > 0) ExpectPlaceNamed(sentence);
  }
  ASSERT_NE(parse(Bytes(whole.begin(), whole.end() - 1)), "");
}

/// One to three bits flipped, half of the time among the first bytes, where the structure is.
void CheckBitFlips(const Bytes& whole, const Parse& parse, int rounds) {
  std::mt19937 random(20240531);
  int refused = 0;
  for (int round = 0; round < rounds; ++round) {
    Bytes damaged = whole;
    for (auto flips = 1 + random() % 3; flips > 0; --flips) {
      const size_t range = random() % 2 ? std::min<size_t>(damaged.size(), 2000) : damaged.size();
      damaged[random() % range] ^= static_cast<uint8_t>(1u << (random() % 8));
    }
    const std::string sentence = parse(damaged);
    if (sentence.empty()) continue;  // a flipped weight is still a weight
    ++refused;
    ExpectPlaceNamed(sentence);
  }
  EXPECT_GT(refused, rounds / 20);
}

const Parse kCheckpoint = [](const Bytes& b) { return Sentence(ParseCheckpoint(b, "damaged")); };
const Parse kAdapter = [](const Bytes& b) { return Sentence(ParseAdapter(b, "damaged")); };
const Parse kPickle = [](const Bytes& b) {
  return Sentence(pickle::Document::Parse(b, "damaged"));
};

Bytes AdapterAsSafeTensors() {
  const Result<Adapter> adapter = LoadAdapter(test::Golden("tiny/adapter_4.pkl"));
  EXPECT_TRUE(adapter.ok());
  return AdapterToSafeTensors(*adapter);
}

Bytes CheckpointAsSafeTensors() {
  const Result<Checkpoint> checkpoint = LoadCheckpoint(test::Golden("tiny/tiny.pkl"));
  EXPECT_TRUE(checkpoint.ok());
  return CheckpointToSafeTensors(*checkpoint);
}

TEST(Damage, ATruncatedPickleIsRefusedAtEveryLength) {
  CheckTruncation(Read("pickle/numpy2_p5.pkl"), kPickle);
  CheckTruncation(Read("pickle/numpy1_p2.pkl"), kPickle);
  CheckTruncation(Read("pickle/config_newobj.pkl"), kPickle);
}
TEST(Damage, ATruncatedCheckpointIsRefused) {
  CheckTruncation(Read("tiny/tiny.pkl"), kCheckpoint);
  CheckTruncation(Read("tiny/tiny_cfgobj.pkl"), kCheckpoint);
  CheckTruncation(CheckpointAsSafeTensors(), kCheckpoint);
}
TEST(Damage, ATruncatedAdapterIsRefused) {
  CheckTruncation(Read("tiny/adapter_4.pkl"), kAdapter);
  CheckTruncation(AdapterAsSafeTensors(), kAdapter);
}
TEST(Damage, FlippedBitsInAPickleNeverCrash) {
  for (const char* name : {"pickle/numpy1_p2.pkl", "pickle/numpy2_p4.pkl", "pickle/numpy2_p5.pkl",
                           "pickle/config_reconstructor.pkl"})
    CheckBitFlips(Read(name), kPickle, 2000);
}
TEST(Damage, FlippedBitsInACheckpointNeverCrash) {
  CheckBitFlips(Read("tiny/tiny_cfgobj.pkl"), kCheckpoint, 300);
  CheckBitFlips(CheckpointAsSafeTensors(), kCheckpoint, 300);
}
TEST(Damage, FlippedBitsInAnAdapterNeverCrash) {
  CheckBitFlips(Read("tiny/adapter_none.pkl"), kAdapter, 2000);
  CheckBitFlips(AdapterAsSafeTensors(), kAdapter, 2000);
}

}  // namespace
}  // namespace needle
