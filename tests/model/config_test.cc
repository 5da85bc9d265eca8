#include "model/config.h"

#include <gtest/gtest.h>

#include "support/npz.h"

namespace needle {
namespace {

ModelConfig Preset(std::string_view name) { return *PresetConfig(name); }

TEST(ModelConfig, DerivesTheSizesOfThePublishedModel) {
  const ModelConfig c = Preset("base");
  EXPECT_EQ(c.AttnDim(), 512);
  EXPECT_EQ(c.HeadDim(), 64);
  EXPECT_EQ(c.KvDim(), 256);
  EXPECT_EQ(c.EngramHeads(), 2);
  EXPECT_EQ(c.EngramTables(), 4);
  EXPECT_EQ(c.EngramSub(), 128);
  EXPECT_EQ(c.EngramDim(), 512);
  EXPECT_EQ(c.ConvDilation(), 3);
  EXPECT_EQ(c.HadamardSize(), 512);
}

TEST(ModelConfig, PadsTheHadamardSizeToTheNextPowerOfTwo) {
  EXPECT_EQ(Preset("needle").HadamardSize(), 1024);
  ModelConfig c;
  for (const auto& [d, want] : {std::pair{96, 128}, {128, 128}, {129, 256}, {1, 1}}) {
    c.d_model = d;
    EXPECT_EQ(c.HadamardSize(), want) << d;
  }
}

TEST(ModelConfig, KeepsOneEngramHeadWhenTheWidthIsSmall) {
  ModelConfig c = Preset("base");
  c.d_model = 128;
  EXPECT_EQ(c.EngramHeads(), 1);
  EXPECT_EQ(c.EngramSub(), 64);
}

TEST(ModelConfig, FindsTheSiteOfALayer) {
  const ModelConfig c = Preset("base");
  EXPECT_EQ(c.SiteOf(2), 0);
  EXPECT_EQ(c.SiteOf(15), 1);
  EXPECT_EQ(c.SiteOf(3), -1);
}

TEST(ModelConfig, EffectiveWindowsEqualUpstreams) {
  // [budget, effective] of units/pieces.npz: kvwin_base, kvwin_needle; 256 asked for: kvwin256_*.
  for (const auto& [name, want] : {std::pair{"base", 704}, {"needle", 480}}) {
    ModelConfig c = Preset(name);
    EXPECT_EQ(c.EffectiveWindow(), want) << name;
    c.kv_window = 256;
    EXPECT_EQ(c.EffectiveWindow(), 256) << name;
    c.kv_window = 4096;
    EXPECT_EQ(c.EffectiveWindow(), want) << name;
  }
  EXPECT_EQ(Preset("tiny").EffectiveWindow(), 512);  // bounded by max_seq_len
}

TEST(ModelConfig, EffectiveWindowsEqualTheReferenceFile) {
  const test::Npz pieces = test::ReadNpz(test::Golden("ops/pieces.npz"));
  for (const std::string name : {"base", "needle"}) {
    ModelConfig c = Preset(name);
    EXPECT_EQ(c.EffectiveWindow(), pieces.at("kvwin_" + name).As<int>()[1]);
    c.kv_window = 256;
    EXPECT_EQ(c.EffectiveWindow(), pieces.at("kvwin256_" + name).As<int>()[0]);
  }
}

TEST(ModelConfig, AWindowIsNeverBelow160ExceptOnRequest) {
  ModelConfig c = Preset("tiny");
  c.max_seq_len = 100;
  EXPECT_EQ(c.EffectiveWindow(), 160);
  c.kv_window = 48;
  EXPECT_EQ(c.EffectiveWindow(), 48);
}

TEST(ModelConfig, PresetsAreValidAndUnknownOnesAreNamed) {
  for (const auto* name : {"base", "needle", "tiny"})
    EXPECT_TRUE(Preset(name).Validate().ok()) << name;
  const auto unknown = PresetConfig("huge");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message().find("\"huge\""), std::string::npos);
}

struct Fault {
  const char* names;  // what the sentence must mention
  void (*make)(ModelConfig&);
};

TEST(ModelConfig, ValidateNamesTheFieldThatIsWrong) {
  const Fault faults[] = {
      {"vocab_size", [](ModelConfig& c) { c.vocab_size = 0; }},
      {"d_model", [](ModelConfig& c) { c.d_model = -64; }},
      {"attn_dim", [](ModelConfig& c) { c.attn_dim = -1; }},
      {"num_heads", [](ModelConfig& c) { c.num_heads = 0; }},
      {"num_heads", [](ModelConfig& c) { c.num_heads = 3; }},
      {"num_kv_heads", [](ModelConfig& c) { c.num_kv_heads = 3; }},
      {"num_kv_heads", [](ModelConfig& c) { c.num_kv_heads = 0; }},
      {"head size", [](ModelConfig& c) { c.num_heads = 64, c.num_kv_heads = 64; }},
      {"num_layers", [](ModelConfig& c) { c.num_layers = 0; }},
      {"max_seq_len", [](ModelConfig& c) { c.max_seq_len = 0; }},
      {"pad_token_id", [](ModelConfig& c) { c.pad_token_id = c.vocab_size; }},
      {"contrastive_dim", [](ModelConfig& c) { c.contrastive_dim = 0; }},
      {"rope_theta", [](ModelConfig& c) { c.rope_theta = 0; }},
      {"rope_theta", [](ModelConfig& c) { c.rope_theta = 1e300; }},
      {"engram_orders", [](ModelConfig& c) { c.engram_orders = {}; }},
      {"engram_orders",
       [](ModelConfig& c) {
         c.engram_orders = {1, 2, 3, 4, 5};
       }},
      {"engram_orders", [](ModelConfig& c) { c.engram_orders = {0}; }},
      {"tables", [](ModelConfig& c) { c.engram_heads = 33; }},
      {"engram_slots", [](ModelConfig& c) { c.engram_slots = 0; }},
      {"layer 5", [](ModelConfig& c) { c.engram_layers = {5}; }},
      {"twice",
       [](ModelConfig& c) {
         c.engram_layers = {1, 1};
       }},
      {"engram_layers",
       [](ModelConfig& c) {
         c.engram_layers = {0, 1, 2, 3, 4};
       }},
      {"mhc_lanes", [](ModelConfig& c) { c.mhc_lanes = 0; }},
      {"kv_window", [](ModelConfig& c) { c.kv_window = -1; }},
      {"kv_bits", [](ModelConfig& c) { c.kv_bits = 5; }},
      {"act_bits", [](ModelConfig& c) { c.act_bits = 1; }},
  };
  for (const Fault& fault : faults) {
    ModelConfig c = Preset("tiny");
    fault.make(c);
    const Status status = c.Validate();
    ASSERT_FALSE(status.ok()) << fault.names;
    EXPECT_EQ(status.error().code(), Code::kInvalidArgument);
    EXPECT_NE(status.error().message().find(fault.names), std::string::npos)
        << status.error().message();
  }
}

TEST(ModelConfig, ValidateAcceptsAModelWithoutEngramsAndWithOneLane) {
  ModelConfig c = Preset("tiny");
  c.engram_layers = {};
  c.mhc_lanes = 1;
  c.num_kv_heads = c.num_heads;
  EXPECT_TRUE(c.Validate().ok());
}

}  // namespace
}  // namespace needle
