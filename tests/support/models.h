// Test support: checkpoints and LoRA factors of the reference set, ready for the executor.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exec/executor.h"
#include "exec/weights.h"
#include "format/checkpoint.h"
#include "support/npz.h"

namespace needle::test {

/// The path of a reference file: the copy in tests/golden, else in the large reference set.
inline std::string ReferenceFile(const std::string& name) {
  const std::string golden = Golden(name);
  if (std::filesystem::exists(golden)) return golden;
  return ReferenceDir() + "/" + name;
}

inline bool HasReference(const std::string& name) {
  return std::filesystem::exists(ReferenceFile(name));
}

inline Npz ReferenceNpz(const std::string& name) { return ReadNpz(ReferenceFile(name)); }

inline Checkpoint ReferenceModel(const std::string& name) {
  Result<Checkpoint> loaded = LoadCheckpoint(ReferenceFile(name + "/" + name + ".pkl"));
  if (!loaded.ok()) throw std::runtime_error(loaded.error().message());
  return *std::move(loaded);
}

/// LoRA factors (or their gradients) of every layer, from arrays "<prefix><path>/A" and ".../B".
class LoraArrays {
 public:
  LoraArrays(const Checkpoint& base, int rank, float scale)
      : L_(static_cast<size_t>(base.config.num_layers)), targets_(LoraTargets(base)) {
    view_.rank = static_cast<size_t>(rank);
    view_.scale = scale;
    view_.a.resize(L_);
    view_.b.resize(L_);
    for (const ParamSpec& t : targets_) {
      arrays_[t.path + "/A"].resize(static_cast<size_t>(t.shape[0] * t.shape[1] * rank));
      arrays_[t.path + "/B"].resize(static_cast<size_t>(t.shape[0] * rank * t.shape[2]));
      for (size_t p = 0; p < kProjections; ++p) {
        if (ProjectionPath(static_cast<Projection>(p)) != t.path) continue;
        const auto in = static_cast<size_t>(t.shape[1]), out = static_cast<size_t>(t.shape[2]);
        for (size_t l = 0; l < L_; ++l) {
          view_.a[l][p] = {arrays_[t.path + "/A"].data() + l * in * view_.rank, in, view_.rank};
          view_.b[l][p] = {arrays_[t.path + "/B"].data() + l * view_.rank * out, view_.rank, out};
        }
      }
    }
  }
  void Load(const Npz& from, const std::string& prefix) {
    for (auto& [name, values] : arrays_) {
      const std::vector<float> v = from.at(prefix + name).As<float>();
      ASSERT_EQ(v.size(), values.size()) << name;
      std::copy(v.begin(), v.end(), values.begin());
    }
  }
  const LoraView<float>& view() const { return view_; }
  LoraView<const float> const_view() const {
    LoraView<const float> v;
    v.rank = view_.rank;
    v.scale = view_.scale;
    v.a.resize(L_);
    v.b.resize(L_);
    for (size_t l = 0; l < L_; ++l)
      for (size_t p = 0; p < kProjections; ++p) v.a[l][p] = view_.a[l][p], v.b[l][p] = view_.b[l][p];
    return v;
  }
  const std::map<std::string, std::vector<float>>& arrays() const { return arrays_; }
  std::map<std::string, std::vector<float>>& arrays() { return arrays_; }

 private:
  size_t L_;
  std::vector<ParamSpec> targets_;
  std::map<std::string, std::vector<float>> arrays_;
  LoraView<float> view_;
};

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
