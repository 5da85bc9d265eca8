#include "model/config.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/str_cat.h"

namespace needle {
namespace {

// Bounds far beyond any model, near enough that no product of sizes overflows an int64.
constexpr int64_t kMaxVocab = 1 << 24, kMaxWidth = 1 << 16, kMaxLayers = 1 << 12, kMaxLanes = 16;
constexpr int64_t kMaxLength = 1 << 24, kMaxSlots = 1 << 24, kMaxOrder = 64;
// The archive header has room for this many n-gram orders and sites.
constexpr size_t kMaxOrders = 4, kMaxSites = 4;
// Bytes that the engine grants its caches of keys, values and engram vectors.
constexpr int64_t kCacheBudget = 12058624;
constexpr int64_t kSmallestWindow = 160;

Error Invalid(const std::string& sentence) {
  return Error(Code::kInvalidArgument, StrCat("model config: ", sentence));
}

Status InRange(std::string_view field, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return Invalid(
      StrCat(field, " is ", value, "; it must be between ", low, " and ", high, " (inclusive)"));
}

Status ValidateSizes(const ModelConfig& c) {
  NEEDLE_TRY(InRange("vocab_size", c.vocab_size, 1, kMaxVocab));
  NEEDLE_TRY(InRange("d_model", c.d_model, 1, kMaxWidth));
  NEEDLE_TRY(InRange("attn_dim", c.attn_dim, 0, kMaxWidth));
  NEEDLE_TRY(InRange("num_heads", c.num_heads, 1, kMaxWidth));
  NEEDLE_TRY(InRange("num_kv_heads", c.num_kv_heads, 1, kMaxWidth));
  NEEDLE_TRY(InRange("num_layers", c.num_layers, 1, kMaxLayers));
  NEEDLE_TRY(InRange("max_seq_len", c.max_seq_len, 1, kMaxLength));
  NEEDLE_TRY(InRange("pad_token_id", c.pad_token_id, 0, int64_t{c.vocab_size} - 1));
  NEEDLE_TRY(InRange("contrastive_dim", c.contrastive_dim, 1, kMaxWidth));
  NEEDLE_TRY(InRange("mhc_lanes", c.mhc_lanes, 1, kMaxLanes));
  NEEDLE_TRY(InRange("kv_window", c.kv_window, 0, kMaxLength));
  return InRange("act_bits", c.act_bits, 2, 16);
}

Status ValidateAttention(const ModelConfig& c) {
  if (c.AttnDim() % c.num_heads != 0)
    return Invalid(StrCat("the attention width ", c.AttnDim(), " is not a multiple of num_heads ",
                          c.num_heads, "; every query head needs the same size"));
  if (c.HeadDim() % 2 != 0)
    return Invalid(
        StrCat("the head size ", c.HeadDim(),
               " (attention width / num_heads) is odd; rotary positions need an even one"));
  if (c.num_heads % c.num_kv_heads != 0)
    return Invalid(StrCat("num_heads ", c.num_heads, " is not a multiple of num_kv_heads ",
                          c.num_kv_heads, "; each key/value head serves equally many query heads"));
  if (!std::isfinite(c.rope_theta) || c.rope_theta <= 0 || !std::isfinite(float(c.rope_theta)))
    return Invalid(StrCat("rope_theta is ", c.rope_theta, "; it must be a positive finite number"));
  const bool has_codebook = c.kv_bits >= 2 && c.kv_bits <= 4;
  if (!has_codebook && (c.kv_bits < 8 || c.kv_bits > 32))
    return Invalid(StrCat("kv_bits is ", c.kv_bits,
                          "; it must be 2, 3 or 4, or at least 8 for unquantised keys and values"));
  return {};
}

Status ValidateEngrams(const ModelConfig& c) {
  if (c.engram_orders.empty() || c.engram_orders.size() > kMaxOrders)
    return Invalid(StrCat("engram_orders has ", c.engram_orders.size(),
                          " entries; the archive format holds 1 to ", kMaxOrders));
  for (const int order : c.engram_orders)
    NEEDLE_TRY(InRange("an entry of engram_orders", order, 1, kMaxOrder));
  NEEDLE_TRY(InRange("engram_heads", c.engram_heads, 0, c.d_model));
  NEEDLE_TRY(InRange("engram_slots", c.engram_slots, 1, kMaxSlots));
  if (c.EngramTables() > c.d_model)
    return Invalid(StrCat("engram_orders times engram_heads gives ", c.EngramTables(),
                          " tables, more than d_model ", c.d_model, " can be divided into"));
  if (c.engram_layers.size() > kMaxSites)
    return Invalid(StrCat("engram_layers has ", c.engram_layers.size(),
                          " entries; the archive format holds at most ", kMaxSites));
  for (size_t i = 0; i < c.engram_layers.size(); ++i) {
    const int layer = c.engram_layers[i];
    if (layer < 0 || layer >= c.num_layers)
      return Invalid(StrCat("engram_layers names layer ", layer, "; the model has layers 0 to ",
                            c.num_layers - 1, " (num_layers is ", c.num_layers, ")"));
    if (c.SiteOf(layer) != static_cast<int>(i))
      return Invalid(StrCat("engram_layers names layer ", layer, " twice"));
  }
  return {};
}

}  // namespace

int ModelConfig::EngramHeads() const {
  if (engram_heads > 0) return engram_heads;
  return std::max(1, d_model / (std::max(1, static_cast<int>(engram_orders.size())) * 128));
}

int ModelConfig::ConvDilation() const {
  return engram_orders.empty() ? 0 : *std::max_element(engram_orders.begin(), engram_orders.end());
}

int ModelConfig::HadamardSize() const {
  return static_cast<int>(std::bit_ceil(static_cast<uint32_t>(d_model)));
}

int ModelConfig::SiteOf(int layer) const {
  const auto at = std::find(engram_layers.begin(), engram_layers.end(), layer);
  return at == engram_layers.end() ? -1 : static_cast<int>(at - engram_layers.begin());
}

int ModelConfig::EffectiveWindow() const {
  // int8 values with one float scale for 32 of them: per token and layer keys and values, per token
  // and site the engram vector.
  const int64_t kv = KvDim(), sites = static_cast<int64_t>(engram_layers.size());
  const int64_t bytes_per_token =
      num_layers * (2 * kv + 8 * (kv / 32)) + sites * (d_model + 4 * (d_model / 32));
  const int64_t fitting = kCacheBudget / std::max<int64_t>(1, bytes_per_token) / 32 * 32;
  const int64_t budget = std::max(kSmallestWindow, std::min<int64_t>(fitting, max_seq_len));
  return static_cast<int>(kv_window > 0 ? std::min<int64_t>(budget, kv_window) : budget);
}

Status ModelConfig::Validate() const {
  NEEDLE_TRY(ValidateSizes(*this));
  NEEDLE_TRY(ValidateAttention(*this));
  return ValidateEngrams(*this);
}

Result<ModelConfig> PresetConfig(std::string_view name) {
  ModelConfig c;
  if (name == "base") {
    c.num_layers = 27;
  } else if (name == "needle") {
    c.d_model = 768;
    c.num_heads = 12;
    c.num_kv_heads = 6;
    c.num_layers = 27;
  } else if (name == "tiny") {
    c.vocab_size = 1024;
    c.d_model = 64;
    c.num_heads = 4;
    c.num_kv_heads = 2;
    c.num_layers = 5;
    c.max_seq_len = 512;
    c.contrastive_dim = 24;
    c.dtype = "float32";
    c.engram_heads = 2;
    c.engram_slots = 97;
    c.engram_layers = {1, 3};
  } else {
    return Error(Code::kInvalidArgument, StrCat("there is no preset \"", name,
                                                "\"; the presets are base, needle and tiny"));
  }
  c.attn_dim = c.d_model;  // upstream stores the resolved width
  return c;
}

}  // namespace needle
