#include <string>

#include "base/str_cat.h"
#include "format/cact.h"

namespace needle {
namespace {

CactEntry Vector(std::string name, Shape shape, std::string path, int layer = -1) {
  return {std::move(name), CactType::kFp16, std::move(shape), std::move(path), layer, false};
}

// Codes of a kernel that upstream keeps as [.., in, out].
CactEntry Kernel(std::string name, Shape shape, std::string path, int layer = -1) {
  return {std::move(name), CactType::kCodes, std::move(shape), std::move(path), layer, true};
}

// Codes of a table, whose rows are grouped as they are.
CactEntry Table(std::string name, Shape shape, std::string path) {
  return {std::move(name), CactType::kCodes, std::move(shape), std::move(path), -1, false};
}

void Append(std::vector<CactEntry> more, std::vector<CactEntry>& all) {
  for (CactEntry& e : more) all.push_back(std::move(e));
}

std::vector<CactEntry> LayerEntries(const ModelConfig& c, int l) {
  const int64_t D = c.d_model, A = c.AttnDim(), KE = c.KvDim(), E = c.HeadDim();
  const int64_t hada = c.HadamardSize();
  const std::string n = StrCat("layer", l < 10 ? "0" : "", l, ".");
  const std::string block = "stack/layers/block/", attn = block + "self_attn/";
  const std::string mlp = block + "hadamard_mlp/";
  return {
      Vector(n + "norm_in", {D}, block + "ZCRMSNorm_0/scale", l),
      Kernel(n + "q_proj", {A, D}, attn + "q_proj/kernel", l),
      Kernel(n + "k_proj", {KE, D}, attn + "k_proj/kernel", l),
      Kernel(n + "v_proj", {KE, D}, attn + "v_proj/kernel", l),
      Vector(n + "q_norm", {E}, attn + "q_norm/scale", l),
      Vector(n + "k_norm", {E}, attn + "k_norm/scale", l),
      Kernel(n + "gate_proj", {A, D}, attn + "gate_proj/kernel", l),
      Kernel(n + "out_proj", {D, A}, attn + "out_proj/kernel", l),
      Vector(n + "post_norm", {D}, block + "post_attn_norm/scale", l),
      Vector(n + "attn_gate", {1}, block + "attn_gate", l),
      Vector(n + "pre_hada", {D}, block + "pre_hada_norm/scale", l),
      Vector(n + "d1", {hada}, mlp + "d1", l),
      Vector(n + "d2", {hada}, mlp + "d2", l),
      Vector(n + "d3", {hada}, mlp + "d3", l),
  };
}

std::vector<CactEntry> LaneEntries(const ModelConfig& c) {
  const int64_t L = c.num_layers, S = c.mhc_lanes, D = c.d_model;
  return {
      Vector("mhc_a_pre", {L}, "stack/mhc_a_pre"),
      Vector("mhc_a_post", {L}, "stack/mhc_a_post"),
      Vector("mhc_a_res", {L}, "stack/mhc_a_res"),
      Vector("mhc_b_pre", {L, S}, "stack/mhc_b_pre"),
      Vector("mhc_b_post", {L, S}, "stack/mhc_b_post"),
      Vector("mhc_b_res", {L, S, S}, "stack/mhc_b_res"),
      Kernel("mhc_phi_pre", {L * S, S * D}, "stack/mhc_phi_pre"),
      Kernel("mhc_phi_post", {L * S, S * D}, "stack/mhc_phi_post"),
      Kernel("mhc_phi_res", {L * S * S, S * D}, "stack/mhc_phi_res"),
  };
}

std::vector<CactEntry> SiteEntries(const ModelConfig& c, size_t site) {
  const std::string n = StrCat("engram", site, "."), at = StrCat("engrams_", site, "/");
  const int64_t D = c.d_model, G = c.EngramDim();
  return {
      Table(n + "tables", {int64_t{c.EngramTables()} * c.engram_slots, c.EngramSub()},
            at + "embedding"),
      Kernel(n + "key_proj", {D, G}, at + "key_proj/kernel"),
      Kernel(n + "value_proj", {D, G}, at + "value_proj/kernel"),
      Vector(n + "taps", {kConvTaps, D}, at + "taps"),
  };
}

// The contrastive head has no bias of its own; the archive stores zeros.
std::vector<CactEntry> HeadEntries(const std::string& head, int64_t probes, int64_t D, int64_t out,
                                   bool has_bias) {
  CactEntry proj = Kernel(head + ".proj", {out, probes * D}, head + "/proj/kernel");
  proj.type = CactType::kFp16;
  return {Vector(head + ".probes", {probes, D}, head + "/probes"), proj,
          Vector(head + ".bias", {out}, has_bias ? head + "/proj/bias" : "")};
}

}  // namespace

std::vector<CactEntry> CactLayout(const ModelConfig& c, CactHeads heads) {
  const int64_t D = c.d_model;
  std::vector<CactEntry> all = {Table("embedding", {c.vocab_size, D}, "embedding/embedding")};
  for (int l = 0; l < c.num_layers; ++l) Append(LayerEntries(c, l), all);
  Append(LaneEntries(c), all);
  for (size_t s = 0; s < c.engram_layers.size(); ++s) Append(SiteEntries(c, s), all);
  all.push_back(Vector("final_norm", {D}, "stack/final_norm/scale"));
  if (heads.count() > 0) all.push_back(Vector("head_manifest", {heads.count()}, ""));
  if (heads.contrastive)
    Append(HeadEntries("contrastive_head", kContrastiveProbes, D, c.contrastive_dim, false), all);
  if (heads.confidence) Append(HeadEntries("confidence_head", kConfidenceProbes, D, 1, true), all);
  all.push_back({"tokenizer", CactType::kRaw, {}, "", -1, false});
  return all;
}

}  // namespace needle
