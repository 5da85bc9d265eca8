// Test support: files, checkpoints and batches of the reference set.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "format/checkpoint.h"
#include "ops/forest.h"
#include "quant/numerics.h"
#include "support/npz.h"

namespace needle::test {

inline bool HasReference(const std::string& name) { return std::filesystem::exists(Golden(name)); }

inline Npz ReferenceNpz(const std::string& name) { return ReadNpz(Golden(name)); }

inline Checkpoint ReferenceModel(const std::string& name) {
  Result<Checkpoint> loaded = LoadCheckpoint(Golden(name + "/" + name + ".pkl"));
  if (!loaded.ok()) throw std::runtime_error(loaded.error().message());
  return *std::move(loaded);
}

/// The QAT numerics of a checkpoint: mode "none", "4", "2", or "map" (its own mixed map, else the
/// one that the reference set used).
inline Numerics QatNumerics(const ModelConfig& c, const std::string& mode) {
  Numerics n;
  if (mode == "none") return n;
  n.quantise_weights = true;
  n.act_bits = c.act_bits;
  if (c.kv_bits < 8) n.kv_bits = ParseBits(std::to_string(c.kv_bits)).value();
  const std::string fallback = "default=4,embedding=2,attn.v_proj=3,mhc_phi=1.58";
  n.bits = BitMap::Parse(mode != "map"           ? mode
                         : c.weight_bits.empty() ? fallback
                                                 : c.weight_bits)
               .value();
  return n;
}

/// A mode of upstream's quantised gradients, and how far a loss may be off (relative). Codes of
/// activations (and of key/value vectors) flip where a value lies within rounding of an edge; a
/// flip is a whole step. Upstream's float32 against its own float64: 4e-6 (4 bit), 2e-6 (2 bit,
/// and 3e-5 by another reading), 9e-5 (mixed with ternary).
struct QatMode {
  const char* name;
  double loss;
};
inline constexpr QatMode kQatModes[] = {{"4", 5e-5}, {"2", 1e-4}, {"map", 5e-4}};

/// Rows of an example batch [B, T] of padded ids with loss masks, without the padding.
struct Batch {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<float>> weights;
  float total = 0;  // sum of the weights
  std::vector<Sequence> Sequences() const {
    std::vector<Sequence> out;
    for (size_t i = 0; i < ids.size(); ++i) out.push_back({ids[i], weights[i]});
    return out;
  }
  Forest Build(Packing packing, size_t padded = 0) const {
    return BuildForest(Sequences(), packing, std::max(total, 1.0f), padded);
  }
};

inline Batch BatchOf(const NpyArray& ids, const NpyArray& mask, const std::vector<int>& rows = {}) {
  const std::vector<int32_t> all_ids = ids.As<int32_t>();
  const std::vector<float> all_masks = mask.As<float>();
  const auto T = static_cast<size_t>(ids.shape[1]);
  std::vector<int> which = rows;
  for (int r = 0; which.empty() || (rows.empty() && r < ids.shape[0]); ++r) which.push_back(r);
  Batch batch;
  for (const int r : which) {
    const size_t at = static_cast<size_t>(r) * T;
    size_t n = T;
    while (n > 0 && all_ids[at + n - 1] == 0) --n;
    const auto begin = static_cast<std::ptrdiff_t>(at), end = static_cast<std::ptrdiff_t>(at + n);
    batch.ids.emplace_back(all_ids.begin() + begin, all_ids.begin() + end);
    batch.weights.emplace_back(all_masks.begin() + begin, all_masks.begin() + end);
    for (size_t t = 1; t < n; ++t) batch.total += all_masks[at + t];
  }
  return batch;
}

}  // namespace needle::test
