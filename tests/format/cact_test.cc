#include "format/cact.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <tuple>

#include "base/file.h"
#include "format/checkpoint.h"
#include "quant/midpoint.h"
#include "support/mismatch.h"
#include "support/npz.h"
#include "support/scratch.h"

namespace needle {
namespace {

constexpr char kMixedMap[] = "default=4,embedding=2,attn.q_proj=3,engram0.tables=1.58,mhc_phi=3";

ModelConfig TinyConfig() { return *PresetConfig("tiny"); }

ModelConfig AltConfig() {
  ModelConfig c = TinyConfig();
  c.d_model = 96;
  c.attn_dim = 128;
  c.num_kv_heads = 1;
  c.num_layers = 4;
  c.rope_theta = 10000;
  c.engram_orders = {2, 3, 4};
  c.engram_heads = 1;
  c.engram_slots = 61;
  c.engram_layers = {0};
  c.mhc_lanes = 3;
  c.kv_window = 192;
  c.kv_bits = 4;
  c.weight_bits = kMixedMap;
  return c;
}

Checkpoint FromNpz(const std::string& name, const ModelConfig& config) {
  Checkpoint c;
  c.config = config;
  for (const auto& leaf : test::ReadNpz(test::Golden(name + "/params.npz")))
    c.params[leaf.first] =
        Tensor::FromFloats(leaf.second.shape, leaf.second.As<float>()).As(DType::kF16);
  return c;
}

std::vector<uint8_t> GoldenFile(const std::string& name) {
  const auto bytes = ReadFile(test::Golden(name));
  EXPECT_TRUE(bytes.ok()) << name;
  return bytes.ok() ? *bytes : std::vector<uint8_t>();
}

CactModel Opened(const std::vector<uint8_t>& bytes) {
  auto model = CactModel::FromBytes(bytes, "test.cact");
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message());
  return model.ok() ? *std::move(model) : CactModel();
}

// What the quantiser saw: the entry's values before quantising, in the archive's layout.
std::vector<float> Source(const CactEntry& e, const Checkpoint& c) {
  const Tensor& leaf = c.params.at(e.path);
  const size_t n = size_t(ElementCount(e.shape)), first = e.layer < 0 ? 0 : size_t(e.layer) * n;
  const size_t in = size_t(e.shape[1]), out = size_t(leaf.shape.back());
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) {
    const size_t row = i / in, column = i % in;
    const size_t at = e.transposed ? row / out * in * out + column * out + row % out : i;
    values[i] = leaf.At(first + at);
  }
  return values;
}

// Two archives of the same checkpoint: equal but for codes and norms on rounding midpoints; how
// many differ.
size_t ExpectSameOutsideMidpoints(const std::vector<uint8_t>& got, const std::vector<uint8_t>& want,
                                  const Checkpoint& c) {
  EXPECT_EQ(got.size(), want.size());
  if (got.size() != want.size()) return got.size();
  const CactModel a = Opened(got), b = Opened(want);
  const std::vector<CactEntry> layout = CactLayout(a.config, a.heads);
  EXPECT_EQ(a.tensors.size(), b.tensors.size());
  std::vector<uint8_t> patched = got;  // becomes `want` once the excused codes are taken over
  size_t differing = 0;
  for (size_t i = 0; i < layout.size(); ++i) {
    const CactTensor &x = a.tensors[i], &y = b.tensors[i];
    if (x.type != CactType::kCodes || std::equal(x.bytes.begin(), x.bytes.end(), y.bytes.begin()))
      continue;
    const std::vector<float> values = Source(layout[i], c);
    const QuantizedMatrix q = ToQuantized(x), r = ToQuantized(y);
    const size_t groups = q.padded_cols() / kGroup;
    for (size_t g = 0; g < q.norms.size(); ++g) {
      const size_t column = g % groups * kGroup, n = std::min(kGroup, q.cols - column);
      const auto exact = test::RotateExactly({&values[g / groups * q.cols + column], n}, kGroup);
      differing += q.norms[g] != r.norms[g];
      EXPECT_EQ("", test::WhyNormDiffers(exact.norm, q.norms[g], r.norms[g])) << x.name;
      for (size_t k = 0; k < kGroup; ++k) {
        const uint8_t code = q.codes[g * kGroup + k], other = r.codes[g * kGroup + k];
        differing += code != other;
        EXPECT_EQ("", test::WhyNotOnMidpoint(exact.u[k], code, other, Codebook(x.bits, kGroup)))
            << x.name << " group " << g;
      }
    }
    std::copy(y.bytes.begin(), y.bytes.end(), patched.begin() + long(x.offset));
  }
  EXPECT_EQ(patched, want) << "bytes outside codes and norms differ";
  return differing;
}

void ExpectReproduces(const Checkpoint& c, const std::string& archive, std::string_view bits) {
  SCOPED_TRACE(archive);
  const std::vector<uint8_t> want = GoldenFile(archive);
  const CactModel model = Opened(want);
  const auto got = EncodeCact(c, *BitMap::Parse(bits), model.tokenizer_blob());
  ASSERT_TRUE(got.ok()) << got.error().message();
  // The arithmetic is fixed to the bit, and happens to meet upstream on every midpoint here.
  EXPECT_EQ(ExpectSameOutsideMidpoints(*got, want, c), 0u);
}

TEST(CactWriter, ReproducesUpstreamsArchivesOutsideMidpoints) {
  const Checkpoint tiny = FromNpz("tiny", TinyConfig()), alt = FromNpz("alt", AltConfig());
  ExpectReproduces(tiny, "tiny/w4.cact", "4");
  ExpectReproduces(tiny, "tiny/w2.cact", "2");
  ExpectReproduces(tiny, "tiny/mixed.cact", kMixedMap);
  ExpectReproduces(alt, "alt/w4.cact", "4");
  ExpectReproduces(alt, "alt/mixed.cact", kMixedMap);
}

TEST(CactWriter, TheComparisonSeesACodeThatIsNotOnAMidpoint) {
  const Checkpoint tiny = FromNpz("tiny", TinyConfig());
  const std::vector<uint8_t> want = GoldenFile("tiny/w4.cact");
  const CactModel model = Opened(want);
  const CactTensor& q = *model.Find("layer01.q_proj");
  const std::vector<float> values = Source(CactLayout(model.config, model.heads)[16], tiny);
  const auto exact = test::RotateExactly({values.data(), 64}, kGroup);
  const uint8_t code = q.packed()[0] & 15;
  const int other = code == 0 ? 1 : code - 1;
  EXPECT_NE("", test::WhyNotOnMidpoint(exact.u[0], other, code, Codebook(Bits::k4, kGroup)));
  EXPECT_NE("",
            test::WhyNotOnMidpoint(exact.u[0], (code + 2) % 16, code, Codebook(Bits::k4, kGroup)));
}

TEST(CactReader, GivesTheConfigOfTheHeader) {
  const CactModel model = Opened(GoldenFile("alt/mixed.cact"));
  ModelConfig want = AltConfig();
  want.weight_bits = "";  // the archive's records say it tensor by tensor
  EXPECT_EQ(model.config, want);
  EXPECT_EQ(model.kv_window, 192);
  EXPECT_TRUE(model.heads.contrastive);
  EXPECT_TRUE(model.heads.confidence);
  EXPECT_EQ(model.Find("embedding")->bits, Bits::k2);
  EXPECT_EQ(model.Find("layer03.q_proj")->bits, Bits::k3);
  EXPECT_EQ(model.Find("engram0.tables")->bits, Bits::kTernary);
  EXPECT_EQ(model.Find("layer04.q_proj"), nullptr);
}

TEST(CactReader, CountsTheTensorsOfThePublishedModel) {
  EXPECT_EQ(CactLayout(*PresetConfig("base"), {true, true}).size(), 405u);
}

TEST(CactModel, GoesBackToUpstreamsTree) {
  const Checkpoint tiny = FromNpz("tiny", TinyConfig());
  const TensorMap back = Opened(GoldenFile("tiny/w4.cact")).ToParams();
  for (const ParamSpec& p : ModelParams(tiny.config)) {
    const bool kept = p.path.rfind("mtp", 0) != 0 && p.path != "contrastive_head/log_temp";
    ASSERT_EQ(back.count(p.path), kept ? 1u : 0u) << p.path;
    if (!kept) continue;
    const Tensor &got = back.at(p.path), &want = tiny.params.at(p.path);
    ASSERT_EQ(got.shape, want.shape) << p.path;
    if (p.quantised) {  // 16 levels of a Gaussian leave about a tenth of the norm
      EXPECT_LT(test::RelativeL2(got.ToFloats(), want.ToFloats()), 0.12) << p.path;
    } else {
      EXPECT_EQ(got.ToFloats(), want.ToFloats()) << p.path;
    }
  }
}

TEST(CactModel, DequantisesToUpstreamsValues) {
  for (const std::string bits : {"2", "4"}) {
    const TensorMap back = Opened(GoldenFile("tiny/w" + bits + ".cact")).ToParams();
    const auto want = test::ReadNpz(test::Golden("tiny/cq_params_" + bits + ".npz"));
    size_t compared = 0;
    for (const auto& leaf : want) {
      if (back.count(leaf.first) == 0) continue;
      const Tensor& got = back.at(leaf.first);
      ASSERT_EQ(got.shape, leaf.second.shape) << leaf.first;
      // A code on a midpoint may differ between upstream's own trainer and exporter.
      EXPECT_LT(test::RelativeL2(got.ToFloats(), leaf.second.As<float>()), 1e-3) << leaf.first;
      ++compared;
    }
    EXPECT_GT(compared, 3u);
  }
}

TEST(CactWriter, ReproducesEveryReferenceArchiveFromItsCheckpoint) {
  const std::tuple<const char*, const char*, std::string> archives[] = {
      {"tiny", "w4", "4"},  {"tiny", "w2", "2"}, {"tiny", "mixed", kMixedMap},
      {"alt", "w4", "4"},   {"alt", "w2", "2"},  {"alt", "mixed", kMixedMap},
      {"plain", "w4", "4"}, {"d128", "w4", "4"}};
  for (const auto& archive : archives) {
    const std::string name = std::get<0>(archive), folder = test::Golden(name + "/");
    SCOPED_TRACE(name + std::get<1>(archive));
    const auto checkpoint = LoadCheckpoint(folder + name + ".pkl");
    const auto want = ReadFile(folder + std::get<1>(archive) + ".cact");
    ASSERT_TRUE(checkpoint.ok() && want.ok());
    const auto got = EncodeCact(*checkpoint, *BitMap::Parse(std::get<2>(archive)),
                                Opened(*want).tokenizer_blob());
    ASSERT_TRUE(got.ok()) << got.error().message();
    const size_t differing = ExpectSameOutsideMidpoints(*got, *want, *checkpoint);
    EXPECT_LE(differing, 1u);  // plain/w4: one code
    RecordProperty(name + "_" + std::get<1>(archive), static_cast<int>(differing));
  }
}

TEST(CactWriter, LeavesOutHeadsThatTheCheckpointDoesNotHave) {
  const std::vector<uint8_t> golden = GoldenFile("tiny/w4.cact");
  const CactModel with = Opened(golden);
  for (const std::string absent : {"contrastive_head/", "confidence_head/", "c"}) {
    Checkpoint c = FromNpz("tiny", TinyConfig());
    for (auto at = c.params.begin(); at != c.params.end();)
      at = at->first.rfind(absent, 0) == 0 ? c.params.erase(at) : std::next(at);
    const auto bytes = EncodeCact(c, BitMap::Uniform(Bits::k4), with.tokenizer_blob());
    ASSERT_TRUE(bytes.ok()) << bytes.error().message();
    const CactModel model = Opened(*bytes);
    EXPECT_EQ(model.heads.contrastive, absent == "confidence_head/");
    EXPECT_EQ(model.heads.confidence, absent == "contrastive_head/");
    EXPECT_EQ(model.Find("head_manifest") != nullptr, absent != "c");
    EXPECT_EQ(model.ToParams().count("confidence_head/proj/bias"), absent == "contrastive_head/");
  }
}

TEST(CactWriter, TakesTheWindowThatIsAskedFor) {
  const Checkpoint c = FromNpz("tiny", TinyConfig());
  const std::vector<uint8_t> golden = GoldenFile("tiny/w4.cact");
  const auto bytes = EncodeCact(c, BitMap::Uniform(Bits::k4), Opened(golden).tokenizer_blob(), 64);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(Opened(*bytes).kv_window, 64);
  EXPECT_EQ(Opened(golden).kv_window, 512);
}

TEST(CactWriter, WritesAFileThatOpens) {
  const Checkpoint c = FromNpz("tiny", TinyConfig());
  const std::vector<uint8_t> golden = GoldenFile("tiny/w2.cact");
  const test::ScratchFolder folder;
  const std::string path = folder.File("made/out.cact");
  ASSERT_TRUE(WriteCact(path, c, BitMap::Uniform(Bits::k2), Opened(golden).tokenizer_blob()).ok());
  const auto model = CactModel::Open(path);
  ASSERT_TRUE(model.ok()) << model.error().message();
  EXPECT_EQ(model->file_size(), golden.size());
  EXPECT_EQ(model->config.num_layers, 5);
  const CactModel copy = *model;  // shares the mapping
  EXPECT_EQ(ToFloats(*copy.Find("final_norm")).size(), 64u);
}

TEST(CactWriter, RefusesWhatTheReaderWouldRefuse) {
  const std::vector<uint8_t> golden = GoldenFile("tiny/w4.cact");
  const CactModel model = Opened(golden);
  const auto message = [&](const Checkpoint& c, std::span<const uint8_t> blob) {
    const auto bytes = EncodeCact(c, BitMap::Uniform(Bits::k4), blob);
    return bytes.ok() ? std::string() : bytes.error().message();
  };
  const Checkpoint good = FromNpz("tiny", TinyConfig());
  EXPECT_EQ(message(good, model.tokenizer_blob()), "");
  EXPECT_NE(message(good, model.tokenizer_blob().subspan(4)).find("pieces"), std::string::npos);
  Checkpoint large = good;
  Tensor& k = large.params.at("stack/layers/block/self_attn/k_proj/kernel");
  k = k.As(DType::kF32);
  for (size_t i = 0; i < k.size(); ++i) k.Put(i, 5e4f);
  EXPECT_NE(message(large, model.tokenizer_blob()).find("layer00.k_proj"), std::string::npos);
  Checkpoint broken = good;
  broken.params.at("stack/final_norm/scale").Put(3, NAN);
  EXPECT_NE(message(broken, model.tokenizer_blob()).find("final_norm"), std::string::npos);
  Checkpoint incomplete = good;
  incomplete.params.erase("stack/mhc_b_pre");
  EXPECT_NE(message(incomplete, model.tokenizer_blob()).find("mhc_b_pre"), std::string::npos);
}

constexpr size_t kDirectory = 232, kRecord = 44;

struct Damage {
  const char* says;  // what the error must mention
  std::function<void(std::vector<uint8_t>&)> make;
};

template <class N>
void Poke(std::vector<uint8_t>& bytes, size_t at, N value) {
  std::memcpy(&bytes.at(at), &value, sizeof(N));
}
template <class N>
N Peek(const std::vector<uint8_t>& bytes, size_t at) {
  N value;
  std::memcpy(&value, &bytes.at(at), sizeof(N));
  return value;
}

// Word w of the header; byte b of the record of tensor t.
std::function<void(std::vector<uint8_t>&)> Word(size_t w, uint32_t value) {
  return [=](std::vector<uint8_t>& f) { Poke(f, 4 * w, value); };
}
template <class N>
std::function<void(std::vector<uint8_t>&)> Field(size_t t, size_t b, N value) {
  return [=](std::vector<uint8_t>& f) { Poke(f, kDirectory + t * kRecord + b, value); };
}

TEST(CactReader, SaysWhatIsWrongWithADamagedFile) {
  const std::vector<uint8_t> golden = GoldenFile("tiny/mixed.cact");  // 97 tensors
  const auto blob_at = [&](size_t t) {
    return size_t(Peek<uint64_t>(golden, kDirectory + t * kRecord + 20));
  };
  const uint32_t huge = 0xFFFFFFFFu;
  const Damage damages[] = {
      {"not a .cact", Word(0, 0x46464952)},
      {"Needle 3", Word(0, kCactNeedle3Tag)},
      {"tensors", Word(1, huge)},
      {"nothing may follow", Word(1, 96)},
      {"tensors", Word(1, 4)},
      {"codebooks", Word(2, 27)},
      {"codebooks", Word(30, 0x3f800000)},
      {"kv_window", Word(3, huge)},
      {"kv_bits", Word(4, 7)},
      {"embedding", Word(5, 1000)},
      {"vocab_size", Word(5, huge)},
      {"d_model", Word(6, 0)},
      {"num_heads", Word(7, 0)},
      {"num_kv_heads", Word(8, 3)},
      {"layers", Word(9, huge)},
      {"tensors", Word(9, 4)},
      {"head size", Word(10, 0)},
      {"attn_dim", Word(10, huge)},
      {"max_seq_len", Word(11, 0)},
      {"Hadamard", Word(12, 128)},
      {"mhc_lanes", Word(13, huge)},
      {"mhc_b_pre", Word(13, 3)},
      {"engram0.tables", Word(14, 96)},
      {"width", Word(15, 17)},
      {"tables", Word(16, 3)},
      {"tables", Word(16, 0)},
      {"taps", Word(17, 3)},
      {"dilation", Word(18, 2)},
      {"orders", Word(19, 5)},
      {"orders", Word(19, 0)},
      {"orders", Word(22, 4)},
      {"sites", Word(24, huge)},
      {"sites", Word(24, 1)},
      {"layer 5", Word(25, 5)},
      {"rope_theta", Word(29, 0x7fc00000)},
      {"type 1", Field<uint8_t>(0, 0, 1)},
      {"type 9", Field<uint8_t>(1, 0, 9)},
      {"dimensions", Field<uint8_t>(1, 1, 200)},
      {"norm_in", Field<uint16_t>(1, 2, 1)},
      {"[63]", Field<uint32_t>(1, 4, 63)},
      {"norm_in", Field<uint32_t>(1, 8, 1)},
      {"multiple of 64", Field<uint64_t>(1, 20, blob_at(1) + 1)},
      {"multiple of 64", Field<uint64_t>(1, 20, blob_at(0))},
      {"multiple of 64", Field<uint64_t>(0, 20, 0)},
      {"begins at byte", Field<uint64_t>(5, 20, blob_at(3))},
      {"cut short", Field<uint64_t>(96, 20, uint64_t{1} << 40)},
      {"cut short", Field<uint64_t>(96, 20, ~uint64_t{63})},
      {"cut short", Field<uint64_t>(96, 28, ~uint64_t{0})},
      {"nothing may follow", Field<uint64_t>(96, 28, 5000)},
      {"takes 126 bytes", Field<uint64_t>(1, 28, 126)},
      {"groups", Field<uint32_t>(0, 36, 64)},
      {"width", Field<uint32_t>(0, 40, 6)},
      {"width", Field<uint32_t>(0, 40, 0)},
      {"bytes", Field<uint32_t>(0, 40, 3)},
      {"group", Field<uint32_t>(1, 36, 128)},
      {"as a value", [&](auto& f) { Poke<uint16_t>(f, blob_at(1) + 6, 0x7c00); }},
      {"as a value", [&](auto& f) { Poke<uint16_t>(f, blob_at(95), 0xfe00); }},
      {"as a norm", [&](auto& f) { Poke<uint16_t>(f, blob_at(0) + 32768, 0x7e00); }},
      {"as a norm", [&](auto& f) { Poke<uint16_t>(f, blob_at(0) + 32770, 0x9e00); }},
      {"ternary", [&](auto& f) { Poke<uint8_t>(f, blob_at(80) + 7, 0x02); }},
      {"ternary", [&](auto& f) { Poke<uint8_t>(f, blob_at(80) + 7, 0x80); }},
      {"manifest", [&](auto& f) { Poke<uint16_t>(f, blob_at(89), 0x4000); }},
      {"manifest", [&](auto& f) { Poke<uint16_t>(f, blob_at(89) + 2, 0x4200); }},
      {"manifest", Field<uint64_t>(89, 28, 2)},
      {"contrastive_dim", Field<uint32_t>(91, 4, 0)},
      {"contrastive_head.proj", Field<uint32_t>(91, 4, 25)},
      {"pieces", [&](auto& f) { Poke<uint32_t>(f, blob_at(96), 1023); }},
      {"padding id", [&](auto& f) { Poke<uint32_t>(f, blob_at(96) + 4, 1024); }},
      {"header", [](auto& f) { f.resize(231); }},
      {"header", [](auto& f) { f.resize(3); }},
      {"header", [](auto& f) { f.clear(); }},
      {"cannot hold", [](auto& f) { f.resize(300); }},
      {"cut short", [](auto& f) { f.pop_back(); }},
      {"nothing may follow", [](auto& f) { f.push_back(0); }},
  };
  for (const Damage& damage : damages) {
    std::vector<uint8_t> bytes = golden;
    damage.make(bytes);
    const auto model = CactModel::FromBytes(bytes, "broken.cact");
    ASSERT_FALSE(model.ok()) << damage.says;
    const std::string& message = model.error().message();
    EXPECT_EQ(model.error().code(), Code::kCorruptFile);
    EXPECT_EQ(message.rfind("broken.cact: ", 0), 0u) << message;
    EXPECT_NE(message.find(damage.says), std::string::npos) << damage.says << " | " << message;
  }
}

TEST(CactReader, RefusesEveryTruncation) {
  const std::vector<uint8_t> golden = GoldenFile("tiny/w2.cact");
  for (size_t n = 0; n < golden.size(); n += n < 6000 ? 1 : 4999)
    ASSERT_FALSE(CactModel::FromBytes(std::span(golden).first(n), "cut").ok()) << n;
}

TEST(CactReader, NamesAFileThatIsNotThere) {
  const auto model = CactModel::Open("/nonexistent/m.cact");
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message().find("/nonexistent/m.cact"), std::string::npos);
}

}  // namespace
}  // namespace needle
