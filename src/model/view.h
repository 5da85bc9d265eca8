// The parameters of a model as typed views, for any number type: where the operations read them and
// where gradients go. Kernels are [in, out], used as x @ kernel; stacked leaves are cut by layer.
// Thread-safety: as the arrays behind the views.
#pragma once

#include <cassert>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "model/params.h"
#include "ops/lanes.h"
#include "tensor/view.h"

namespace needle {

/// One block: attention and Hadamard MLP. A = attn_dim, M = HadamardSize().
template <class N>
struct BlockView {
  std::span<N> norm_in;         // [D]
  MatView<N> q, k, v, gate;     // [D, A], [D, K*E], [D, K*E], [D, A]
  MatView<N> out;               // [A, D]
  std::span<N> q_norm, k_norm;  // [E]
  std::span<N> post_norm;       // [D]
  N* attn_gate = nullptr;       // scalar
  std::span<N> pre_hada;        // [D]
  std::span<N> d1, d2, d3;      // [M]
};

/// The lane mixing of one layer.
template <class N>
struct LaneView {
  MatView<N> phi_pre, phi_post, phi_res;  // [S*D, S], [S*D, S], [S*D, S*S]
  std::span<N> b_pre, b_post, b_res;      // [S], [S], [S*S]
  N *a_pre = nullptr, *a_post = nullptr, *a_res = nullptr;

  LaneScalars<std::remove_const_t<N>> Scalars(size_t own) const {
    return {*a_pre, *a_post, *a_res, b_pre, b_post, b_res, own};
  }
};

/// One engram site.
template <class N>
struct SiteView {
  MatView<N> table;       // [tables*slots, sub]
  MatView<N> key, value;  // [tables*sub, D]
  MatView<N> taps;        // [4, D]
};

template <class N>
struct ModelView {
  MatView<N> embedding;              // [V, D]
  std::vector<BlockView<N>> blocks;  // [L]
  std::vector<LaneView<N>> lanes;    // [L]
  std::vector<SiteView<N>> sites;
  std::span<N> final_norm;  // [D]
  bool has_mtp = false;
  MatView<N> mtp_combine;  // [2D, D]
  std::span<N> mtp_emb_norm, mtp_final_norm;
  BlockView<N> mtp_block;
  bool has_contrastive = false, has_confidence = false;
  MatView<N> contrastive_probes, contrastive_proj;  // [4, D], [4D, contrastive_dim]
  MatView<N> confidence_probes, confidence_proj;    // [8, D], [8D, 1]
  N* confidence_bias = nullptr;
};

/// Arrays of one number type by path, and the views into them. Views live as long as the object
/// and follow it when it is moved.
template <class N>
class ParamArrays {
 public:
  ParamArrays() = default;
  /// The values of `params`, converted; leaves that are absent stay absent.
  explicit ParamArrays(const TensorMap& params) {
    for (const auto& [path, tensor] : params) {
      std::vector<N>& to = arrays_[path];
      to.resize(tensor.size());
      for (size_t i = 0; i < to.size(); ++i) to[i] = N(tensor.At(i));
    }
  }
  /// Zeros of the same paths and sizes: a place for gradients.
  template <class M>
  static ParamArrays ZerosLike(const ParamArrays<M>& other) {
    ParamArrays out;
    for (const auto& [path, values] : other.arrays()) out.arrays_[path].assign(values.size(), N{});
    return out;
  }

  std::map<std::string, std::vector<N>>& arrays() { return arrays_; }
  const std::map<std::string, std::vector<N>>& arrays() const { return arrays_; }
  bool Has(const std::string& path) const { return arrays_.count(path) != 0; }
  std::vector<N>& At(const std::string& path) {
    assert(Has(path));
    return arrays_.find(path)->second;
  }
  const std::vector<N>& At(const std::string& path) const {
    assert(Has(path));
    return arrays_.find(path)->second;
  }

  ModelView<N> View(const ModelConfig& c) { return Bind<N>(*this, c); }
  ModelView<const N> View(const ModelConfig& c) const { return Bind<const N>(*this, c); }

 private:
  template <class M, class Self>
  static ModelView<M> Bind(Self& self, const ModelConfig& c);

  std::map<std::string, std::vector<N>> arrays_;
};

namespace view_internal {

/// Slice `index` of a leaf [count, n] (count = 1 for leaves that are not stacked).
template <class M, class Self>
std::span<M> Slice(Self& self, const std::string& path, size_t index, size_t count) {
  auto& values = self.At(path);
  const size_t n = values.size() / count;
  return {values.data() + index * n, n};
}

template <class M, class Self>
MatView<M> Matrix(Self& self, const std::string& path, size_t index, size_t count, size_t rows) {
  const std::span<M> s = Slice<M>(self, path, index, count);
  return {s.data(), rows, s.size() / rows};
}

template <class M, class Self>
BlockView<M> Block(Self& self, const std::string& at, size_t l, size_t L, const ModelConfig& c) {
  const auto D = static_cast<size_t>(c.d_model), A = static_cast<size_t>(c.AttnDim());
  const std::string attn = at + "/self_attn/", mlp = at + "/hadamard_mlp/";
  BlockView<M> b;
  b.norm_in = Slice<M>(self, at + "/ZCRMSNorm_0/scale", l, L);
  b.q = Matrix<M>(self, attn + "q_proj/kernel", l, L, D);
  b.k = Matrix<M>(self, attn + "k_proj/kernel", l, L, D);
  b.v = Matrix<M>(self, attn + "v_proj/kernel", l, L, D);
  b.gate = Matrix<M>(self, attn + "gate_proj/kernel", l, L, D);
  b.out = Matrix<M>(self, attn + "out_proj/kernel", l, L, A);
  b.q_norm = Slice<M>(self, attn + "q_norm/scale", l, L);
  b.k_norm = Slice<M>(self, attn + "k_norm/scale", l, L);
  b.post_norm = Slice<M>(self, at + "/post_attn_norm/scale", l, L);
  b.attn_gate = Slice<M>(self, at + "/attn_gate", l, L).data();
  b.pre_hada = Slice<M>(self, at + "/pre_hada_norm/scale", l, L);
  b.d1 = Slice<M>(self, mlp + "d1", l, L);
  b.d2 = Slice<M>(self, mlp + "d2", l, L);
  b.d3 = Slice<M>(self, mlp + "d3", l, L);
  return b;
}

}  // namespace view_internal

template <class N>
template <class M, class Self>
ModelView<M> ParamArrays<N>::Bind(Self& self, const ModelConfig& c) {
  using view_internal::Matrix;
  using view_internal::Slice;
  const auto D = static_cast<size_t>(c.d_model), L = static_cast<size_t>(c.num_layers);
  const auto S = static_cast<size_t>(c.mhc_lanes), V = static_cast<size_t>(c.vocab_size);
  ModelView<M> m;
  m.embedding = Matrix<M>(self, "embedding/embedding", 0, 1, V);
  for (size_t l = 0; l < L; ++l) {
    m.blocks.push_back(view_internal::Block<M>(self, "stack/layers/block", l, L, c));
    LaneView<M> lanes;
    lanes.phi_pre = Matrix<M>(self, "stack/mhc_phi_pre", l, L, S * D);
    lanes.phi_post = Matrix<M>(self, "stack/mhc_phi_post", l, L, S * D);
    lanes.phi_res = Matrix<M>(self, "stack/mhc_phi_res", l, L, S * D);
    lanes.b_pre = Slice<M>(self, "stack/mhc_b_pre", l, L);
    lanes.b_post = Slice<M>(self, "stack/mhc_b_post", l, L);
    lanes.b_res = Slice<M>(self, "stack/mhc_b_res", l, L);
    lanes.a_pre = Slice<M>(self, "stack/mhc_a_pre", l, L).data();
    lanes.a_post = Slice<M>(self, "stack/mhc_a_post", l, L).data();
    lanes.a_res = Slice<M>(self, "stack/mhc_a_res", l, L).data();
    m.lanes.push_back(lanes);
  }
  for (size_t s = 0; s < c.engram_layers.size(); ++s) {
    const std::string at = StrCat("engrams_", s, "/");
    const auto tables = static_cast<size_t>(c.EngramTables());
    SiteView<M> site;
    site.table =
        Matrix<M>(self, at + "embedding", 0, 1, tables * static_cast<size_t>(c.engram_slots));
    site.key = Matrix<M>(self, at + "key_proj/kernel", 0, 1, static_cast<size_t>(c.EngramDim()));
    site.value =
        Matrix<M>(self, at + "value_proj/kernel", 0, 1, static_cast<size_t>(c.EngramDim()));
    site.taps = Matrix<M>(self, at + "taps", 0, 1, kConvTaps);
    m.sites.push_back(site);
  }
  m.final_norm = Slice<M>(self, "stack/final_norm/scale", 0, 1);
  m.has_mtp = self.Has("mtp_combine/kernel");
  if (m.has_mtp) {
    m.mtp_combine = Matrix<M>(self, "mtp_combine/kernel", 0, 1, 2 * D);
    m.mtp_emb_norm = Slice<M>(self, "mtp_emb_norm/scale", 0, 1);
    m.mtp_final_norm = Slice<M>(self, "mtp_final_norm/scale", 0, 1);
    m.mtp_block = view_internal::Block<M>(self, "mtp_block", 0, 1, c);
  }
  m.has_contrastive = self.Has("contrastive_head/probes");
  if (m.has_contrastive) {
    m.contrastive_probes = Matrix<M>(self, "contrastive_head/probes", 0, 1, kContrastiveProbes);
    m.contrastive_proj =
        Matrix<M>(self, "contrastive_head/proj/kernel", 0, 1, kContrastiveProbes * D);
  }
  m.has_confidence = self.Has("confidence_head/probes");
  if (m.has_confidence) {
    m.confidence_probes = Matrix<M>(self, "confidence_head/probes", 0, 1, kConfidenceProbes);
    m.confidence_proj = Matrix<M>(self, "confidence_head/proj/kernel", 0, 1, kConfidenceProbes * D);
    m.confidence_bias = Slice<M>(self, "confidence_head/proj/bias", 0, 1).data();
  }
  return m;
}

}  // namespace needle
