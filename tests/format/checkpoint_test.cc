// Checkpoints and adapters: upstream's files read to the stored arrays, both formats round-trip,
// and what is no checkpoint is refused in words.
#include "format/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "format/adapter.h"
#include "format/pickle.h"
#include "format/safetensors.h"
#include "support/npz.h"

namespace needle {
namespace {

using test::Golden;

std::vector<uint8_t> Bytes(const std::string& path) {
  Result<std::vector<uint8_t>> bytes = ReadFile(path);
  EXPECT_TRUE(bytes.ok()) << bytes.error().message();
  return bytes.ok() ? *std::move(bytes) : std::vector<uint8_t>();
}

/// Loads, or fails the test with the reader's sentence.
Checkpoint Load(const std::string& path) {
  Result<Checkpoint> checkpoint = LoadCheckpoint(path);
  if (!checkpoint.ok()) {
    ADD_FAILURE() << checkpoint.error().message();
    return {};
  }
  return *std::move(checkpoint);
}

Adapter LoadA(const std::string& path) {
  Result<Adapter> adapter = LoadAdapter(path);
  if (!adapter.ok()) {
    ADD_FAILURE() << adapter.error().message();
    return {};
  }
  return *std::move(adapter);
}

void ExpectSame(const TensorMap& got, const TensorMap& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& entry : want) {
    ASSERT_TRUE(got.count(entry.first)) << entry.first;
    const Tensor& tensor = got.at(entry.first);
    EXPECT_EQ(tensor.dtype, entry.second.dtype) << entry.first;
    EXPECT_EQ(tensor.shape, entry.second.shape) << entry.first;
    EXPECT_EQ(tensor.bytes, entry.second.bytes) << entry.first;
  }
}

void ExpectSame(const Checkpoint& got, const Checkpoint& want) {
  EXPECT_EQ(got.config, want.config);
  EXPECT_EQ(got.step, want.step);
  EXPECT_EQ(got.run_stage, want.run_stage);
  ExpectSame(got.params, want.params);
}

void ExpectSame(const Adapter& got, const Adapter& want) {
  EXPECT_EQ(got.scale, want.scale);
  EXPECT_EQ(got.base, want.base);
  EXPECT_EQ(got.rank, want.rank);
  EXPECT_EQ(got.qat_bits, want.qat_bits);
  EXPECT_EQ(got.qat_bits_map, want.qat_bits_map);
  EXPECT_EQ(got.seed, want.seed);
  ASSERT_EQ(got.lora.size(), want.lora.size());
  for (const auto& entry : want.lora) {
    ASSERT_TRUE(got.lora.count(entry.first)) << entry.first;
    EXPECT_EQ(got.lora.at(entry.first).a.shape, entry.second.a.shape);
    EXPECT_EQ(got.lora.at(entry.first).a.bytes, entry.second.a.bytes);
    EXPECT_EQ(got.lora.at(entry.first).b.shape, entry.second.b.shape);
    EXPECT_EQ(got.lora.at(entry.first).b.bytes, entry.second.b.bytes);
  }
}

/// `npz` holds every leaf as float32 under its path.
void ExpectParamsEqual(const Checkpoint& checkpoint, const test::Npz& npz) {
  ASSERT_EQ(checkpoint.params.size(), npz.size());
  for (const auto& entry : npz) {
    ASSERT_TRUE(checkpoint.params.count(entry.first)) << entry.first;
    const Tensor& tensor = checkpoint.params.at(entry.first);
    EXPECT_EQ(tensor.shape, entry.second.shape) << entry.first;
    EXPECT_EQ(tensor.ToFloats(), entry.second.As<float>()) << entry.first;
  }
}

ModelConfig TinyConfig() {
  ModelConfig c;
  c.vocab_size = 1024;
  c.d_model = c.attn_dim = 64;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.num_layers = 5;
  c.max_seq_len = 512;
  c.contrastive_dim = 24;
  c.dtype = "float32";
  c.engram_layers = {1, 3};
  c.engram_heads = 2;
  c.engram_slots = 97;
  return c;
}

class TemporaryFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("needle_format_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  std::filesystem::path folder_;
};

TEST(Checkpoint, ReadsAConfigWrittenAsADict) {
  const Checkpoint c = Load(Golden("tiny/tiny.pkl"));
  EXPECT_EQ(c.config, TinyConfig());
  EXPECT_EQ(c.step, 1234);
  EXPECT_EQ(c.run_stage, "synthetic");
  EXPECT_EQ(c.params.at("embedding/embedding").dtype, DType::kF16);
  EXPECT_EQ(c.params.at("contrastive_head/log_temp").shape, Shape{});
}

TEST(Checkpoint, ReadsAConfigWrittenAsAnObjectWithFewAttributes) {
  const Checkpoint object = Load(Golden("tiny/tiny_cfgobj.pkl"));
  ExpectSame(object, Load(Golden("tiny/tiny.pkl")));
}

TEST(Checkpoint, ReadsEveryFieldOfAnUnusualConfig) {
  const ModelConfig c = Load(Golden("alt/alt.pkl")).config;
  EXPECT_EQ(c.d_model, 96);
  EXPECT_EQ(c.attn_dim, 128);
  EXPECT_EQ(c.num_kv_heads, 1);
  EXPECT_EQ(c.rope_theta, 10000.0);
  EXPECT_EQ(c.engram_orders, (std::vector<int>{2, 3, 4}));
  EXPECT_EQ(c.engram_layers, std::vector<int>{0});
  EXPECT_EQ(c.mhc_lanes, 3);
  EXPECT_EQ(c.kv_window, 192);
  EXPECT_EQ(c.kv_bits, 4);
  EXPECT_EQ(c.weight_bits, "default=4,embedding=2,attn.q_proj=3,engram0.tables=1.58,mhc_phi=3");
}

TEST(Checkpoint, ReadsAFileWithAnArrayThatCrossesFrames) {
  const Checkpoint c = Load(Golden("nano/nano.pkl"));
  EXPECT_EQ(c.step, 2069);
  EXPECT_EQ(c.config.dtype, "bfloat16");
  int64_t values = 0;
  for (const auto& entry : c.params) values += ElementCount(entry.second.shape);
  EXPECT_GT(values, 1'200'000);
}

TEST(Checkpoint, EqualsUpstreamsArraysOnTheWholeReferenceSet) {
  for (const std::string name : {"tiny/tiny.pkl", "alt/alt.pkl", "dec/dec.pkl"}) {
    SCOPED_TRACE(name);
    const std::string folder = name.substr(0, name.find('/'));
    ExpectParamsEqual(Load(Golden(name)), test::ReadNpz(Golden(folder + "/params.npz")));
  }
  // The float32 file holds the values before they were rounded to float16.
  Checkpoint f32 = Load(Golden("tiny/tiny_f32.pkl"));
  for (auto& entry : f32.params) {
    EXPECT_EQ(entry.second.dtype, DType::kF32);
    entry.second = entry.second.As(DType::kF16);
  }
  ExpectParamsEqual(f32, test::ReadNpz(Golden("tiny/params.npz")));
  for (const std::string name : {"plain/plain.pkl", "d128/d128.pkl", "nano/nano.pkl"}) {
    SCOPED_TRACE(name);
    EXPECT_FALSE(Load(Golden(name)).params.empty());
  }
}

TEST(Checkpoint, SurvivesBothFormatsByteForByte) {
  for (const char* name : {"tiny/tiny.pkl", "alt/alt.pkl"}) {
    const Checkpoint want = Load(Golden(name));
    const Result<Checkpoint> pickled = ParseCheckpoint(CheckpointToPickle(want), "pickled");
    ASSERT_TRUE(pickled.ok()) << pickled.error().message();
    ExpectSame(*pickled, want);
    const Result<Checkpoint> safe = ParseCheckpoint(CheckpointToSafeTensors(want), "safe");
    ASSERT_TRUE(safe.ok()) << safe.error().message();
    ExpectSame(*safe, want);
  }
}

TEST(Checkpoint, KeepsEveryFloatType) {
  const Checkpoint base = RandomCheckpoint(TinyConfig(), 7, DType::kF32);
  for (const DType type : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    Checkpoint c = base;
    for (auto& entry : c.params) entry.second = entry.second.As(type);
    for (const auto& bytes : {CheckpointToPickle(c), CheckpointToSafeTensors(c)}) {
      const Result<Checkpoint> read = ParseCheckpoint(bytes, "file");
      ASSERT_TRUE(read.ok()) << read.error().message();
      ExpectSame(*read, c);
    }
  }
}

TEST(Checkpoint, KeepsEveryConfigFieldInBothFormats) {
  Checkpoint c = Load(Golden("alt/alt.pkl"));
  c.config.max_seq_len = 777;
  c.config.pad_token_id = 3;
  c.config.rope_theta = 12345.678;
  c.config.flash = false;
  c.config.remat = false;
  c.config.scan_unroll = 3;
  c.config.act_bits = 7;
  c.config.attn_dim = 128;
  c.step = 5'000'000'000;
  c.run_stage = "";
  for (const auto& bytes : {CheckpointToPickle(c), CheckpointToSafeTensors(c)}) {
    const Result<Checkpoint> read = ParseCheckpoint(bytes, "file");
    ASSERT_TRUE(read.ok()) << read.error().message();
    EXPECT_EQ(read->config, c.config);
    EXPECT_EQ(read->step, c.step);
    EXPECT_EQ(read->run_stage, "");
  }
}

TEST_F(TemporaryFolder, FilesAreWrittenByExtensionAndReadByContent) {
  const Checkpoint want = Load(Golden("tiny/tiny.pkl"));
  ASSERT_TRUE(SaveCheckpoint(Path("a.pkl"), want).ok());
  ASSERT_TRUE(SaveCheckpoint(Path("a.safetensors"), want).ok());
  EXPECT_EQ(Bytes(Path("a.pkl"))[0], 0x80);
  EXPECT_EQ(Bytes(Path("a.safetensors"))[8], '{');
  std::filesystem::rename(Path("a.safetensors"), Path("b.pkl"));
  ExpectSame(Load(Path("b.pkl")), want);
  const Status other = SaveCheckpoint(Path("a.bin"), want);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code(), Code::kInvalidArgument);
  EXPECT_FALSE(FileExists(Path("a.bin")));
}

/// The reader's sentence about a checkpoint that was changed before writing.
std::string ErrorOf(const std::vector<uint8_t>& bytes) {
  const Result<Checkpoint> read = ParseCheckpoint(bytes, "base.pkl");
  if (read.ok()) return "was read";
  EXPECT_EQ(read.error().code(), Code::kCorruptFile);
  return read.error().message();
}

TEST(Checkpoint, SaysWhatAFileIsThatIsNone) {
  EXPECT_NE(ErrorOf({}).find("is empty"), std::string::npos);
  EXPECT_NE(ErrorOf({'h', 'e', 'l', 'l', 'o'}).find("neither a pickle nor"), std::string::npos);
  EXPECT_NE(ErrorOf({0x83, 0x2A, 0xE1, 0x05, 0, 0}).find(".cact archive"), std::string::npos);
  EXPECT_NE(ErrorOf({'P', 'K', 3, 4, 0, 0}).find("zip"), std::string::npos);
  EXPECT_NE(ErrorOf(Bytes(Golden("tiny/adapter_4.pkl"))).find("is an adapter"), std::string::npos);
  const Result<Adapter> adapter = LoadAdapter(Golden("tiny/tiny.pkl"));
  ASSERT_FALSE(adapter.ok());
  EXPECT_NE(adapter.error().message().find("is a checkpoint"), std::string::npos);
  const Result<Checkpoint> absent = LoadCheckpoint("no/such/file.pkl");
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().code(), Code::kNotFound);
}

TEST(Checkpoint, RefusesAnotherFormatVersion) {
  pickle::Writer w;
  w.BeginDict();
  w.String("format_version");
  w.Int(3);
  w.String("params");
  w.BeginDict();
  w.EndDict();
  w.EndDict();
  EXPECT_NE(ErrorOf(w.Finish()).find("format_version is 3"), std::string::npos);
}

/// A checkpoint without parameters whose config holds one field; `write` writes its value.
template <class Write>
std::vector<uint8_t> WithField(const char* name, const Write& write) {
  pickle::Writer w;
  w.BeginDict();
  w.String("format_version");
  w.Int(2);
  w.String("params");
  w.BeginDict();
  w.EndDict();
  w.String("config");
  w.BeginDict();
  w.String(name);
  write(w);
  w.EndDict();
  w.EndDict();
  return w.Finish();
}

TEST(Checkpoint, NamesTheConfigFieldOfAWrongType) {
  const std::string error =
      ErrorOf(WithField("num_heads", [](pickle::Writer& w) { w.String("many"); }));
  EXPECT_NE(error.find("\"num_heads\""), std::string::npos) << error;
  EXPECT_NE(error.find("byte"), std::string::npos) << error;
}

TEST(Checkpoint, SaysThatANumberOfTheConfigIsTooLarge) {
  for (const int64_t layers : {int64_t{1} << 31, -(int64_t{1} << 40)}) {
    EXPECT_NE(ErrorOf(WithField("num_layers", [&](pickle::Writer& w) { w.Int(layers); }))
                  .find(layers > 0 ? "\"num_layers\" is too large; at most 2147483647"
                                   : "\"num_layers\" is too small; at least -2147483648"),
              std::string::npos);
  }
  SafeTensors file =
      *ParseSafeTensors(CheckpointToSafeTensors(Load(Golden("tiny/tiny.pkl"))), "file");
  file.metadata["config"] = R"({"num_layers":2147483648})";
  EXPECT_NE(ErrorOf(WriteSafeTensors(file)).find("\"num_layers\" is too large"), std::string::npos);
}

TEST(Checkpoint, NamesAParameterThatIsMissingOrOfAnotherShape) {
  const Checkpoint whole = Load(Golden("tiny/tiny.pkl"));
  Checkpoint c = whole;
  c.params.erase("stack/final_norm/scale");
  EXPECT_NE(ErrorOf(CheckpointToPickle(c)).find("stack/final_norm/scale"), std::string::npos);
  EXPECT_NE(ErrorOf(CheckpointToSafeTensors(c)).find("stack/final_norm/scale"), std::string::npos);
  c = whole;
  c.params["stack/final_norm/scale"] = Tensor(DType::kF32, {63});
  EXPECT_NE(ErrorOf(CheckpointToPickle(c)).find("[63]"), std::string::npos);
}

TEST(Adapter, ReadsWhatUpstreamWrote) {
  const Adapter plain = LoadA(Golden("tiny/adapter_none.pkl"));
  EXPECT_EQ(plain.scale, 2.0);
  EXPECT_EQ(plain.base, "tiny.pkl");
  EXPECT_EQ(plain.rank, 4);
  EXPECT_EQ(plain.qat_bits, 0);
  EXPECT_EQ(plain.seed, 3);
  EXPECT_EQ(plain.lora.size(), 4u);  // gate_proj is all zero there and was dropped
  const LoraPair& q = plain.lora.at("stack/layers/block/self_attn/q_proj/kernel");
  EXPECT_EQ(q.a.shape, (Shape{5, 64, 4}));
  EXPECT_EQ(q.b.shape, (Shape{5, 4, 64}));
  EXPECT_EQ(LoadA(Golden("tiny/adapter_4.pkl")).qat_bits, 4);
  EXPECT_EQ(LoadA(Golden("alt/adapter_auto.pkl")).qat_bits_map,
            "default=4,embedding=2,attn.q_proj=3,engram0.tables=1.58,mhc_phi=3");
  EXPECT_EQ(LoadA(Golden("alt/adapter_none.pkl")).lora.size(), 5u);
}

TEST(Adapter, KeepsEverySeed) {
  Adapter adapter = LoadA(Golden("tiny/adapter_4.pkl"));
  for (const uint64_t seed :
       {uint64_t{0}, uint64_t{1} << 40, (uint64_t{1} << 63) - 1, uint64_t{1} << 63, ~uint64_t{0}}) {
    adapter.seed = seed;
    for (const auto& bytes : {AdapterToPickle(adapter), AdapterToSafeTensors(adapter)}) {
      const Result<Adapter> read = ParseAdapter(bytes, "a");
      ASSERT_TRUE(read.ok()) << read.error().message();
      EXPECT_EQ(read->seed, seed);
    }
  }
}

/// The pickle with another number in place of the one byte that follows `key`.
std::vector<uint8_t> WithNumber(const std::vector<uint8_t>& pickle, const std::string& key,
                                const std::vector<uint8_t>& number) {
  const auto at = std::search(pickle.begin(), pickle.end(), key.begin(), key.end()) +
                  static_cast<std::ptrdiff_t>(key.size());
  EXPECT_EQ(*at, 'K');
  std::vector<uint8_t> out(pickle.begin(), at);
  out.insert(out.end(), number.begin(), number.end());
  out.insert(out.end(), at + 2, pickle.end());
  return out;
}

TEST(Adapter, SaysThatANumberIsTooLarge) {
  const Adapter adapter = LoadA(Golden("tiny/adapter_4.pkl"));
  const auto error_of = [](const std::vector<uint8_t>& bytes) {
    const Result<Adapter> read = ParseAdapter(bytes, "a");
    return read.ok() ? std::string("was read") : read.error().message();
  };
  const std::vector<uint8_t> huge = {0x8A, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0};  // 2^64
  for (const auto& [key, most] :
       {std::pair{"rank", "2147483647"}, std::pair{"seed", "18446744073709551615"}}) {
    const std::string said = std::string("\"") + key + "\" is too large; at most " + most;
    EXPECT_NE(error_of(WithNumber(AdapterToPickle(adapter), key, huge)).find(said),
              std::string::npos);
    SafeTensors file = *ParseSafeTensors(AdapterToSafeTensors(adapter), "a");
    file.metadata[key] = "1000000000000000000000000000000";
    EXPECT_NE(error_of(WriteSafeTensors(file)).find(said), std::string::npos);
  }
}

TEST(Adapter, EqualsTheEndOfUpstreamsTrajectory) {
  for (const std::string name : {"tiny/none", "tiny/4", "alt/none", "alt/auto"}) {
    const std::string folder = name.substr(0, name.find('/')),
                      mode = name.substr(folder.size() + 1);
    const Adapter adapter = LoadA(Golden(folder + "/adapter_" + mode + ".pkl"));
    const test::Npz npz = test::ReadNpz(Golden(folder + "/traj_" + mode + ".npz"));
    size_t compared = 0;
    for (const auto& entry : adapter.lora)
      for (const char* side : {"A", "B"}) {
        const auto at = npz.find("final/" + entry.first + "/" + side);
        ASSERT_NE(at, npz.end()) << entry.first;
        const Tensor& got = *side == 'A' ? entry.second.a : entry.second.b;
        EXPECT_EQ(got.ToFloats(), at->second.As<float>()) << name << " " << entry.first;
        ++compared;
      }
    EXPECT_GE(compared, 8u);
  }
}

TEST(Adapter, SurvivesBothFormatsByteForByte) {
  for (const char* name : {"tiny/adapter_none.pkl", "tiny/adapter_4.pkl", "alt/adapter_auto.pkl"}) {
    const Adapter want = LoadA(Golden(name));
    for (const auto& bytes : {AdapterToPickle(want), AdapterToSafeTensors(want)}) {
      const Result<Adapter> read = ParseAdapter(bytes, "adapter");
      ASSERT_TRUE(read.ok()) << read.error().message();
      ExpectSame(*read, want);
    }
  }
}

TEST_F(TemporaryFolder, AdaptersAreWrittenByExtension) {
  const Adapter want = LoadA(Golden("alt/adapter_auto.pkl"));
  for (const char* name : {"x.pkl", "x.safetensors"}) {
    ASSERT_TRUE(SaveAdapter(Path(name), want).ok());
    ExpectSame(LoadA(Path(name)), want);
  }
}

TEST(Adapter, RefusesPairsThatDoNotFitAndFieldsOfAWrongKind) {
  const Adapter whole = LoadA(Golden("tiny/adapter_none.pkl"));
  const auto error_of = [](const Adapter& a) {
    const Result<Adapter> read = ParseAdapter(AdapterToPickle(a), "a.pkl");
    return read.ok() ? std::string("was read") : read.error().message();
  };
  Adapter a = whole;
  a.lora.begin()->second.b = Tensor(DType::kF32, {5, 3, 32});
  EXPECT_NE(error_of(a).find("must be equal"), std::string::npos) << error_of(a);
  a = whole;
  a.lora.begin()->second.a = Tensor(DType::kF32, {4, 64, 4});
  EXPECT_NE(error_of(a).find("same number of layers"), std::string::npos);
  a = whole;
  a.rank = 8;
  EXPECT_NE(error_of(a).find("has rank 4"), std::string::npos);
  a = whole;
  a.qat_bits = 5;
  EXPECT_NE(error_of(a).find("\"qat_bits\" is 5"), std::string::npos);
  a = whole;
  a.scale = NAN;
  EXPECT_NE(error_of(a).find("\"scale\""), std::string::npos);
  a = whole;
  a.lora.clear();
  EXPECT_NE(error_of(a).find("no weights"), std::string::npos);
}

}  // namespace
}  // namespace needle
