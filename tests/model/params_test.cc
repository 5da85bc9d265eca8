#include "model/params.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/mismatch.h"
#include "support/npz.h"

namespace needle {
namespace {

ModelConfig AltConfig() {
  ModelConfig c = *PresetConfig("tiny");
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
  return c;
}

void ExpectLeavesOf(const std::string& name, const ModelConfig& config) {
  const test::Npz leaves = test::ReadNpz(test::Golden(name + "/params.npz"));
  const std::vector<ParamSpec> specs = ModelParams(config);
  ASSERT_EQ(specs.size(), leaves.size());
  size_t i = 0;
  for (const auto& leaf : leaves) {  // a std::map of paths: sorted as Python sorts them
    EXPECT_EQ(specs[i].path, leaf.first);
    EXPECT_EQ(specs[i].shape, leaf.second.shape) << leaf.first;
    ++i;
  }
}

TEST(ModelParams, AreTheLeavesOfAReferenceCheckpointInUpstreamsOrder) {
  ExpectLeavesOf("tiny", *PresetConfig("tiny"));
  ExpectLeavesOf("alt", AltConfig());
}

std::vector<std::string> Components(const std::string& path) {
  std::vector<std::string> out(1);
  for (const char ch : path) {
    if (ch == '/')
      out.emplace_back();
    else
      out.back() += ch;
  }
  return out;
}

TEST(ModelParams, AreSortedByComponentsAsNestedDictionariesAre) {
  for (const auto* name : {"base", "needle", "tiny"}) {
    const auto specs = ModelParams(*PresetConfig(name));
    for (size_t i = 1; i < specs.size(); ++i)
      EXPECT_LT(Components(specs[i - 1].path), Components(specs[i].path));
  }
}

TEST(ModelParams, CountThePublishedModel) {
  int64_t count = 0;
  for (const ParamSpec& p : ModelParams(*PresetConfig("base"))) count += ElementCount(p.shape);
  EXPECT_EQ(count, 45211383);
}

TEST(ModelParams, MarkWhatUpstreamQuantises) {
  for (const ParamSpec& p : ModelParams(*PresetConfig("tiny"))) {
    const std::string leaf = Components(p.path).back();
    const bool head = p.path.find("_head/") != std::string::npos;
    const bool coded = leaf == "kernel" || leaf == "embedding" || leaf.rfind("mhc_phi", 0) == 0;
    EXPECT_EQ(p.quantised, coded && !head) << p.path;
    EXPECT_EQ(p.grouped_on_rows, leaf == "embedding") << p.path;
    EXPECT_EQ(p.in_training, p.path.rfind("mtp", 0) != 0 && !head) << p.path;
  }
}

TEST(CheckParams, AcceptsARandomCheckpointWithAndWithoutItsOptionalGroups) {
  const Checkpoint c = RandomCheckpoint(*PresetConfig("tiny"), 0, DType::kF16);
  EXPECT_TRUE(CheckParams(c.config, c.params).ok());
  for (const std::string group : {"mtp_", "contrastive_head/", "confidence_head/"}) {
    TensorMap fewer;
    for (const auto& named : c.params)
      if (named.first.rfind(group, 0) != 0) fewer.insert(named);
    EXPECT_LT(fewer.size(), c.params.size());
    EXPECT_TRUE(CheckParams(c.config, fewer).ok()) << group;
  }
}

TEST(CheckParams, NamesALeafThatIsMissingUnknownOrOfAnotherShape) {
  const Checkpoint c = RandomCheckpoint(*PresetConfig("tiny"), 0, DType::kF16);
  const auto message = [&](const TensorMap& params) {
    const Status s = CheckParams(c.config, params);
    return s.ok() ? std::string() : s.error().message();
  };
  for (const std::string path :
       {"stack/mhc_a_pre", "mtp_combine/kernel", "contrastive_head/probes"}) {
    TensorMap fewer = c.params;
    fewer.erase(path);
    EXPECT_NE(message(fewer).find(path), std::string::npos) << path;
  }
  TensorMap more = c.params;
  more["engrams_7/taps"] = Tensor(DType::kF16, {4, 64});
  EXPECT_NE(message(more).find("engrams_7/taps"), std::string::npos);
  TensorMap other = c.params;
  other["stack/mhc_b_pre"] = Tensor(DType::kF16, {5, 3});
  EXPECT_NE(message(other).find("[5, 3]"), std::string::npos);
  TensorMap integers = c.params;
  integers["stack/mhc_b_pre"] = Tensor(DType::kI32, {5, 4});
  EXPECT_NE(message(integers).find("int32"), std::string::npos);
}

double Deviation(const std::vector<float>& v) {
  double sum = 0, squares = 0;
  for (const float x : v) sum += x, squares += double{x} * x;
  const double mean = sum / double(v.size());
  return std::sqrt(squares / double(v.size()) - mean * mean);
}

TEST(RandomCheckpoint, FollowsUpstreamsInitialisers) {
  const Checkpoint c = RandomCheckpoint(*PresetConfig("tiny"), 7, DType::kF32);
  const auto values = [&](const char* path) { return c.params.at(path).ToFloats(); };
  EXPECT_NEAR(Deviation(values("embedding/embedding")), 0.02, 0.0005);
  EXPECT_NEAR(Deviation(values("stack/layers/block/self_attn/out_proj/kernel")),
              0.02 / std::sqrt(10.0), 0.0003);
  EXPECT_NEAR(Deviation(values("engrams_0/value_proj/kernel")), 0.02 / std::sqrt(10.0), 0.0005);
  EXPECT_EQ(values("stack/layers/block/hadamard_mlp/d1"), std::vector<float>(5 * 64, 1.0f));
  EXPECT_EQ(values("stack/layers/block/hadamard_mlp/d3"), std::vector<float>(5 * 64, 0.02f));
  EXPECT_EQ(values("stack/layers/block/attn_gate"), std::vector<float>(5, 0.0f));
  EXPECT_EQ(values("stack/mhc_a_res"), std::vector<float>(5, 0.01f));
  EXPECT_FLOAT_EQ(values("contrastive_head/log_temp")[0], std::log(0.07f));
  const auto b_res = values("stack/mhc_b_res"), taps = values("engrams_1/taps");
  for (size_t i = 0; i < b_res.size(); ++i)
    EXPECT_EQ(b_res[i], i / 4 % 4 == i % 4 ? 4.0f : 0.0f) << i;
  for (size_t i = 0; i < taps.size(); ++i) EXPECT_EQ(taps[i], i < 64 ? 1.0f : 0.0f) << i;
}

TEST(RandomCheckpoint, DependsOnTheSeedAndOnThePathAlone) {
  ModelConfig config = *PresetConfig("tiny");
  const Checkpoint a = RandomCheckpoint(config, 1, DType::kF32);
  const Checkpoint b = RandomCheckpoint(config, 2, DType::kF32);
  config.engram_layers = {};
  const Checkpoint fewer = RandomCheckpoint(config, 1, DType::kF32);
  const std::string path = "mtp_combine/kernel";
  EXPECT_NE(a.params.at(path).bytes, b.params.at(path).bytes);
  EXPECT_EQ(a.params.at(path).bytes, fewer.params.at(path).bytes);
  EXPECT_NE(a.params.at("engrams_0/key_proj/kernel").bytes,
            a.params.at("engrams_1/key_proj/kernel").bytes);
}

Checkpoint FromNpz(const std::string& name, const ModelConfig& config, DType dtype) {
  Checkpoint c;
  c.config = config;
  for (const auto& leaf : test::ReadNpz(test::Golden(name + "/params.npz")))
    c.params[leaf.first] = Tensor::FromFloats(leaf.second.shape, leaf.second.As<float>()).As(dtype);
  return c;
}

std::vector<std::string> Paths(const std::vector<ParamSpec>& specs) {
  std::vector<std::string> out;
  for (const ParamSpec& p : specs) out.push_back(p.path);
  return out;
}

TEST(LoraTargets, AreSortedAndLeaveOutAWeightThatIsAllZero) {
  const std::string at = "stack/layers/block/self_attn/";
  const std::vector<std::string> without_gate = {at + "k_proj/kernel", at + "out_proj/kernel",
                                                 at + "q_proj/kernel", at + "v_proj/kernel"};
  EXPECT_EQ(Paths(LoraTargets(FromNpz("tiny", *PresetConfig("tiny"), DType::kF16))), without_gate);
  std::vector<std::string> all = without_gate;
  all.insert(all.begin(), at + "gate_proj/kernel");
  EXPECT_EQ(Paths(LoraTargets(FromNpz("alt", AltConfig(), DType::kF16))), all);
}

TEST(LoraTargets, KeepAWeightWithOneValueAboveTheThreshold) {
  Checkpoint c = FromNpz("tiny", *PresetConfig("tiny"), DType::kF32);
  Tensor& gate = c.params.at("stack/layers/block/self_attn/gate_proj/kernel");
  gate.Put(gate.size() - 1, 1e-6f);
  EXPECT_EQ(LoraTargets(c).size(), 4u);
  gate.Put(gate.size() - 1, -1.1e-6f);
  EXPECT_EQ(LoraTargets(c).size(), 5u);
}

const char kQ[] = "stack/layers/block/self_attn/q_proj/kernel";

Adapter RandomAdapter(const Checkpoint& base, int rank) {
  Adapter out;
  out.rank = rank;
  out.scale = 0.5;
  const Checkpoint noise = RandomCheckpoint(base.config, 99, DType::kF32);
  const std::vector<float> values = noise.params.at("embedding/embedding").ToFloats();
  for (const ParamSpec& p : LoraTargets(base)) {
    LoraPair pair = {Tensor(DType::kF32, {p.shape[0], p.shape[1], rank}),
                     Tensor(DType::kF32, {p.shape[0], rank, p.shape[2]})};
    for (size_t i = 0; i < pair.a.size(); ++i) pair.a.Put(i, values[i]);
    for (size_t i = 0; i < pair.b.size(); ++i) pair.b.Put(i, values[values.size() - 1 - i]);
    out.lora[p.path] = std::move(pair);
  }
  return out;
}

TEST(Merge, OfAHalfPrecisionBaseAddsTheRoundedProductInHalfPrecision) {
  const Checkpoint base = FromNpz("tiny", *PresetConfig("tiny"), DType::kF16);
  const Adapter adapter = RandomAdapter(base, 3);
  const Result<Checkpoint> merged = Merge(base, adapter);
  ASSERT_TRUE(merged.ok());
  const Tensor &w = base.params.at(kQ), &got = merged->params.at(kQ);
  const LoraPair& pair = adapter.lora.at(kQ);
  ASSERT_EQ(got.dtype, DType::kF16);
  size_t changed = 0;
  for (size_t l = 0, n = 0; l < 5; ++l)
    for (size_t i = 0; i < 64; ++i)
      for (size_t o = 0; o < 64; ++o, ++n) {
        double dot = 0;
        for (size_t r = 0; r < 3; ++r)
          dot += double{pair.a.At((l * 64 + i) * 3 + r)} * pair.b.At((l * 3 + r) * 64 + o);
        const uint16_t product = F32ToF16(0.5f * static_cast<float>(dot));
        const float want = F16ToF32(F32ToF16(w.At(n) + F16ToF32(product)));
        ASSERT_EQ(got.At(n), want) << n;
        changed += want != w.At(n);
      }
  EXPECT_GT(changed, 15000u);
  EXPECT_EQ(merged->params.at("embedding/embedding").bytes,
            base.params.at("embedding/embedding").bytes);
}

TEST(Merge, OfAFloatBaseKeepsWhatHalfPrecisionWouldLose) {
  const Checkpoint base = FromNpz("tiny", *PresetConfig("tiny"), DType::kF32);
  Adapter adapter = RandomAdapter(base, 1);
  adapter.scale = 1e-3;
  const Result<Checkpoint> merged = Merge(base, adapter);
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->params.at(kQ).dtype, DType::kF32);
  EXPECT_NE(merged->params.at(kQ).bytes, base.params.at(kQ).bytes);
  EXPECT_LT(test::RelativeMax(merged->params.at(kQ).ToFloats(), base.params.at(kQ).ToFloats()),
            1e-4);
}

TEST(Merge, RefusesAnAdapterOfAnotherBase) {
  const Checkpoint base = FromNpz("tiny", *PresetConfig("tiny"), DType::kF16);
  const Adapter good = RandomAdapter(base, 2);
  const auto message = [&](const Adapter& a) {
    const auto merged = Merge(base, a);
    return merged.ok() ? std::string() : merged.error().message();
  };
  Adapter unknown = good;
  unknown.lora["mtp_block/self_attn/q_proj/kernel"] = good.lora.at(kQ);
  EXPECT_NE(message(unknown).find("mtp_block"), std::string::npos);
  Adapter narrow = good;
  narrow.lora[kQ].a = Tensor(DType::kF32, {5, 60, 2});
  EXPECT_NE(message(narrow).find("[5, 60, 2]"), std::string::npos);
  Adapter rank = good;
  rank.lora[kQ].b = Tensor(DType::kF32, {5, 3, 64});
  EXPECT_NE(message(rank).find("[5, 3, 64]"), std::string::npos);
  Adapter broken = good;
  broken.lora[kQ].b.Put(4, NAN);
  EXPECT_NE(message(broken).find("not finite"), std::string::npos);
}

}  // namespace
}  // namespace needle
