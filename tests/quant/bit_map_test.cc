#include <gtest/gtest.h>

#include "quant/cq.h"

namespace needle {
namespace {

TEST(CanonicalName, MapsTreePathsAndArchiveNamesToOneName) {
  const std::pair<const char*, const char*> names[] = {
      {"embedding/embedding", "embedding"},
      {"embedding", "embedding"},
      {"stack/layers/block/self_attn/q_proj/kernel", "attn.q_proj"},
      {"layers/block/self_attn/out_proj/kernel", "attn.out_proj"},
      {"layer00.q_proj", "attn.q_proj"},
      {"layer26.v_proj", "attn.v_proj"},
      {"attn.gate_proj", "attn.gate_proj"},
      {"stack/mhc_phi_res", "mhc_phi_res"},
      {"mhc_phi_pre", "mhc_phi_pre"},
      {"engrams_0/embedding", "engram0.tables"},
      {"engram1.tables", "engram1.tables"},
      {"engram1.embedding", "engram1.tables"},
      {"engrams_1/key_proj/kernel", "engram1.key_proj"},
      {"mtp_block/self_attn/k_proj/kernel", "mtp.k_proj"},
      {"mtp_combine/kernel", "mtp_combine"},
      {"contrastive_head/proj/kernel", "contrastive_head.proj"},
      {"confidence_head/proj/kernel", "confidence_head.proj"},
      {"layers", "layers"},
      {"layer.q", "layer.q"},
      {"engrams_/x", "engrams_.x"},
  };
  for (const auto& name : names) EXPECT_EQ(CanonicalName(name.first), name.second) << name.first;
}

TEST(BitMap, TakesTheLongestPrefix) {
  const auto map = BitMap::Parse("default=4,embedding=2,attn=3,attn.v_proj=2,engram0.tables=1.58");
  ASSERT_TRUE(map.ok());
  EXPECT_EQ(map->For("embedding/embedding"), Bits::k2);
  EXPECT_EQ(map->For("stack/layers/block/self_attn/q_proj/kernel"), Bits::k3);
  EXPECT_EQ(map->For("layer03.v_proj"), Bits::k2);
  EXPECT_EQ(map->For("engrams_0/embedding"), Bits::kTernary);
  EXPECT_EQ(map->For("engrams_1/embedding"), Bits::k4);
  EXPECT_EQ(map->For("stack/mhc_phi_pre"), Bits::k4);
  EXPECT_FALSE(map->uniform());
}

TEST(BitMap, AcceptsPrefixesOfNamesAndTreePathsAsKeys) {
  const auto map =
      BitMap::Parse(" mhc_phi = 3 , stack/layers/block/self_attn/k_proj/kernel=2, default=4 ");
  ASSERT_TRUE(map.ok());
  for (const char* name : {"mhc_phi_pre", "stack/mhc_phi_post", "stack/mhc_phi_res"})
    EXPECT_EQ(map->For(name), Bits::k3) << name;
  EXPECT_EQ(map->For("layer01.k_proj"), Bits::k2);
  EXPECT_EQ(map->For("layer01.q_proj"), Bits::k4);
}

TEST(BitMap, AcceptsOneWidthForAll) {
  for (const Bits bits : {Bits::k2, Bits::k3, Bits::k4, Bits::kTernary}) {
    const auto map = BitMap::Parse(Name(bits));
    ASSERT_TRUE(map.ok());
    EXPECT_TRUE(map->uniform());
    EXPECT_EQ(map->For("embedding"), bits);
    EXPECT_EQ(map->text(), Name(bits));
  }
}

TEST(BitMap, NamesTheEntryThatIsWrong) {
  const std::pair<const char*, const char*> wrongs[] = {
      {"embedding=2", "no default"},
      {"default=5", "default=5"},
      {"embedding=8,default=4", "embedding=8"},
      {"=2,default=4", "\"=2\""},
      {"embedding,default=4", "\"embedding\""},
      {"default=4,", "\"\""},
      {"default=4,default=2", "default=2"},
      {"default=4,embedding=2,embedding/embedding=3", "embedding/embedding=3"},
      {"", "\"\""},
      {"5", "\"5\""},
  };
  for (const auto& wrong : wrongs) {
    const auto map = BitMap::Parse(wrong.first);
    ASSERT_FALSE(map.ok()) << wrong.first;
    EXPECT_NE(map.error().message().find(wrong.second), std::string::npos) << map.error().message();
  }
}

}  // namespace
}  // namespace needle
