// The shape of a Needle 2 model: every field of upstream's config with its default.
// Source: docs/numerics.md (MODEL.md section 1). Thread-safety: a value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace needle {

struct ModelConfig {
  int vocab_size = 8192;  // V
  int d_model = 512;      // D
  int attn_dim = 0;       // width of the query heads; 0 means d_model
  int num_heads = 8;      // H
  int num_kv_heads = 4;   // K; query head h uses kv head h / (H / K)
  int num_layers = 12;    // L
  int max_seq_len = 2048;
  int pad_token_id = 0;
  int contrastive_dim = 128;
  double rope_theta = 100000.0;
  std::string dtype = "bfloat16";  // upstream's type for plain inference; training is float32
  bool flash = true;
  std::vector<int> engram_orders = {2, 3};  // n-gram orders, at most 4
  int engram_heads = 0;                     // 0 means max(1, D / (orders * 128))
  int engram_slots = 8192;
  std::vector<int> engram_layers = {2, 15};  // sites, at most 4; empty: no engrams
  int mhc_lanes = 4;                         // S
  int kv_window = 0;                         // wanted window; 0: as large as the budget allows
  int kv_bits = 8;                           // < 8: QAT quantises keys and values
  int act_bits = 8;
  std::string weight_bits;  // mixed bit map for QAT auto and build; empty: none
  bool remat = true;
  int scan_unroll = 1;

  int AttnDim() const { return attn_dim ? attn_dim : d_model; }
  int HeadDim() const { return AttnDim() / num_heads; }  // E
  int KvDim() const { return num_kv_heads * HeadDim(); }
  int EngramHeads() const;  // resolved
  int EngramTables() const { return static_cast<int>(engram_orders.size()) * EngramHeads(); }
  int EngramSub() const { return d_model / EngramTables(); }
  int EngramDim() const { return EngramTables() * EngramSub(); }  // width of the gathered vector
  int ConvDilation() const;                                       // max(orders)
  int HadamardSize() const;                                       // smallest power of two >= D
  /// Site number of a layer, or -1.
  int SiteOf(int layer) const;
  /// Keys that the engine keeps (MODEL.md section 9 "effective window").
  int EffectiveWindow() const;

  /// Errors: a field out of range or two that do not fit; the sentence names them.
  Status Validate() const;
  friend bool operator==(const ModelConfig&, const ModelConfig&) = default;
};

inline constexpr int kConvTaps = 4;
inline constexpr int kContrastiveProbes = 4, kConfidenceProbes = 8;

/// "base" (45 M, the published model), "needle" (d 768), "tiny" (for tests and tries).
Result<ModelConfig> PresetConfig(std::string_view name);

}  // namespace needle
