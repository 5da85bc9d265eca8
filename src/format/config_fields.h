// The fields of a model config by their names in files, in upstream's order: one list that every
// reader and writer of a config walks (pickle, JSON). Thread-safe.
#pragma once

#include "json/json.h"
#include "model/config.h"

namespace needle {

/// Calls visit("vocab_size", config.vocab_size), ... for each field, whose type is int, double,
/// bool, std::string or std::vector<int>. `Config` is ModelConfig or const ModelConfig.
template <class Config, class Visit>
void VisitConfigFields(Config& config, Visit&& visit) {
  visit("vocab_size", config.vocab_size);
  visit("d_model", config.d_model);
  visit("attn_dim", config.attn_dim);
  visit("num_heads", config.num_heads);
  visit("num_kv_heads", config.num_kv_heads);
  visit("num_layers", config.num_layers);
  visit("max_seq_len", config.max_seq_len);
  visit("pad_token_id", config.pad_token_id);
  visit("contrastive_dim", config.contrastive_dim);
  visit("rope_theta", config.rope_theta);
  visit("dtype", config.dtype);
  visit("flash", config.flash);
  visit("engram_orders", config.engram_orders);
  visit("engram_heads", config.engram_heads);
  visit("engram_slots", config.engram_slots);
  visit("engram_layers", config.engram_layers);
  visit("mhc_lanes", config.mhc_lanes);
  visit("kv_window", config.kv_window);
  visit("kv_bits", config.kv_bits);
  visit("act_bits", config.act_bits);
  visit("weight_bits", config.weight_bits);
  visit("remat", config.remat);
  visit("scan_unroll", config.scan_unroll);
}

/// Why a whole number is no int, for an error sentence: "is too large; at most 2147483647 is read".
std::string BeyondInt(bool negative);

/// The config as a JSON object with every field.
json::Value ConfigToJson(const ModelConfig& config);
/// Unknown members are dropped, missing ones keep their default. Errors name `origin` and the field
/// (a wrong type); the config as a whole is checked by CheckParams.
Result<ModelConfig> ConfigFromJson(const json::Value& value, const std::string& origin);

}  // namespace needle
