// Test support: LoRA factors of the reference set, ready for the executor.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exec/executor.h"
#include "exec/weights.h"
#include "support/reference_set.h"

namespace needle::test {

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
      for (size_t p = 0; p < kProjections; ++p)
        v.a[l][p] = view_.a[l][p], v.b[l][p] = view_.b[l][p];
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

}  // namespace needle::test
