#include "exec/weights.h"

#include <algorithm>
#include <cstring>

#include "base/profile.h"
#include "kernels/profiled.h"

namespace needle {
namespace {

constexpr size_t kOutputs = 32;  // of a projection that are formed at once

constexpr std::array<std::string_view, kProjections> kPaths = {
    "stack/layers/block/self_attn/q_proj/kernel", "stack/layers/block/self_attn/k_proj/kernel",
    "stack/layers/block/self_attn/v_proj/kernel", "stack/layers/block/self_attn/gate_proj/kernel",
    "stack/layers/block/self_attn/out_proj/kernel"};

const MatView<const float>& ProjectionOf(const BlockView<const float>& b, size_t p) {
  const std::array<const MatView<const float>*, kProjections> all = {&b.q, &b.k, &b.v, &b.gate,
                                                                     &b.out};
  return *all[p];
}

/// Columns [first, first + rows.rows()) of w as rows.
void TransposeColumns(MatView<const float> w, size_t first, MatView<float> rows) {
  constexpr size_t kTile = 32;
  for (size_t i0 = 0; i0 < w.rows(); i0 += kTile)
    for (size_t j0 = 0; j0 < rows.rows(); j0 += kTile)
      for (size_t j = j0; j < std::min(j0 + kTile, rows.rows()); ++j)
        for (size_t i = i0; i < std::min(i0 + kTile, w.rows()); ++i)
          rows.Row(j)[i] = w.Row(i)[first + j];
}

/// rows [r, c] of w^T, contiguous.
std::vector<float> Transposed(MatView<const float> w) {
  std::vector<float> t(w.rows() * w.cols());
  TransposeColumns(w, 0, {t.data(), w.cols(), w.rows()});
  return t;
}

bool EndsWith(const std::string& text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

std::string_view ProjectionPath(Projection p) { return kPaths[p]; }

Dims::Dims(const ModelConfig& c)
    : D(static_cast<size_t>(c.d_model)),
      A(static_cast<size_t>(c.AttnDim())),
      H(static_cast<size_t>(c.num_heads)),
      K(static_cast<size_t>(c.num_kv_heads)),
      E(static_cast<size_t>(c.HeadDim())),
      KE(static_cast<size_t>(c.KvDim())),
      L(static_cast<size_t>(c.num_layers)),
      S(static_cast<size_t>(c.mhc_lanes)),
      C(LaneColumns(S)),
      V(static_cast<size_t>(c.vocab_size)),
      M(static_cast<size_t>(c.HadamardSize())),
      tables(static_cast<size_t>(c.EngramTables())),
      ED(static_cast<size_t>(c.EngramDim())),
      NQ(2 * A + 2 * KE),
      column{0, A, A + KE, A + 2 * KE, 0},
      width{A, KE, KE, A, D} {}

Inputs Inputs::From(size_t begin) const {
  Inputs x = *this;
  if (!values.empty()) x.values = values.Rows(begin, values.rows() - begin);
  x.levels.level += begin * levels.stride;
  x.levels.scale += begin;
  x.levels.sum += begin;
  return x;
}

void Multiplier::Reserve(const Kernels& kernels, size_t K, size_t N, int act_bits) {
  K_ = K;
  act_bits_ = act_bits;
  if (kernels.gemm_int24 && act_bits > 0 && act_bits <= 8) {
    integers_.Reserve(CeilDiv(N, Kernels::kInt24Panel) * Kernels::Int24PanelBytes(K));
  } else {
    floats_.Reserve(kernels.PackedSize(K, N));
  }
}

void Multiplier::PackColumns(const Kernels& kernels, const float* rows, size_t n, size_t first) {
  if (OfIntegers()) {
    kernels.pack_int24(rows, K_, n, integers_.data(), first);
  } else {
    kernels.PackColumns(rows, 1, K_, K_, n, floats_.data(), first);
  }
}

void Multiplier::Quantise(const Kernels& kernels, MatView<float> x, const Int8Rows& levels) const {
  if (OfIntegers()) {
    kernels.quantise_int8(x, act_bits_, levels);
  } else if (act_bits_ != 0) {
    kernels.fake_quantise_activations(x, act_bits_);
  }
}

void Multiplier::Product(const Kernels& kernels, size_t m, const Inputs& x, size_t from, size_t to,
                         MatView<float> y) const {
  const size_t panel = OfIntegers() ? Kernels::kInt24Panel : kernels.panel_width;
  const size_t first = from / panel * panel;
  if (OfIntegers()) {
    kernels.gemm_int24(m, to - first, K_, x.levels,
                       integers_.data() + first / panel * Kernels::Int24PanelBytes(K_),
                       y.data() + first, y.stride());
  } else {
    kernels.gemm(m, to - first, K_, x.values.data(), x.values.stride(), 1,
                 floats_.data() + first * K_, y.data() + first, y.stride(), false);
  }
}

Weights::Weights(const ModelConfig& config, const Kernels& kernels, ParamArrays<float> params,
                 const Numerics& numerics, bool backward, bool all_parameters, ThreadPool& pool)
    : config_(config),
      dims_(config),
      kernels_(Profile::Active() ? &ProfiledKernels(kernels) : &kernels),
      params_(std::move(params)),
      view_(static_cast<const ParamArrays<float>&>(params_).View(config)),
      numerics_(numerics),
      backward_(backward),
      all_parameters_(all_parameters),
      layers_(dims_.L),
      sites_(config.engram_layers.size()) {
  PackAll(pool);
  if (!all_parameters) DropPacked();
}

void Weights::DropPacked() {
  for (auto& [path, values] : params_.arrays()) {
    const bool projection = std::find(kPaths.begin(), kPaths.end(), path) != kPaths.end();
    const bool frozen = path == "embedding/embedding" || path.rfind("stack/mhc_phi_", 0) == 0 ||
                        (path.rfind("engrams_", 0) == 0 &&
                         (EndsWith(path, "/embedding") || EndsWith(path, "_proj/kernel")));
    if (frozen || projection) std::vector<float>().swap(values);
  }
  view_ = static_cast<const ParamArrays<float>&>(params_).View(config_);
}

Bits Weights::BitsFor(const std::string& path) const {
  return numerics_.quantise_weights ? numerics_.bits.For(path) : Bits::kNone;
}

void Weights::PackAll(ThreadPool& pool) {
  PackFrozen(pool);
  pool.Run("pack weights", dims_.L * kProjections, [&](size_t task, int) {
    PackProjection(task / kProjections, static_cast<Projection>(task % kProjections), nullptr);
  });
}

void Weights::PackAdapted(const LoraView<const float>& lora, ThreadPool& pool) {
  pool.Run("pack weights", dims_.L * kProjections, [&](size_t task, int) {
    const size_t l = task / kProjections, p = task % kProjections;
    if (!lora.a[l][p].empty()) PackProjection(l, static_cast<Projection>(p), &lora);
  });
}

void Weights::PackProjection(size_t l, Projection p, const LoraView<const float>* lora) {
  const Kernels& k = *kernels_;
  Layer& layer = layers_[l];
  const size_t in = p == kOut ? dims_.A : dims_.D, out = dims_.width[p];
  const Bits bits = BitsFor(std::string(kPaths[p]));
  std::vector<float> factor, product, values(kOutputs * in);
  if (lora) {
    const MatView<const float> a = lora->a[l][p];
    factor.resize(k.PackedSize(lora->rank, in));
    k.PackB(a.data(), 1, a.stride(), lora->rank, in, factor.data());
    product.resize(values.size());
  }
  // The quantiser's groups run over the inputs: rows of W^T, a few at a time.
  for (size_t first = 0; first < out; first += kOutputs) {
    const MatView<float> rows(values.data(), std::min(kOutputs, out - first), in);
    const size_t size = rows.rows() * in;
    const float* base = values.data();
    if (lora && !all_parameters_) {
      base = layer.base[p].data() + first * in;
    } else {
      TransposeColumns(ProjectionOf(view_.blocks[l], p), first, rows);
      if (backward_ && !all_parameters_)
        std::copy_n(base, size, layer.base[p].Reserve(out * in) + first * in);
    }
    if (lora) {
      const MatView<const float> b = lora->b[l][p];
      k.gemm(rows.rows(), in, lora->rank, b.data() + first, 1, b.stride(), factor.data(),
             product.data(), in, false);
      for (size_t i = 0; i < size; ++i) values[i] = base[i] + lora->scale * product[i];
    }
    if (bits != Bits::kNone) k.fake_quantise(rows, in, bits, kGroup);
    (p == kOut ? layer.out : layer.qkvg)
        .PackColumns(k, values.data(), rows.rows(), dims_.column[p] + first);
    if (backward_)
      k.pack(values.data(), in, 1, rows.rows(), in,
             p == kOut ? layer.out_t.data() : layer.qkvg_t.data(), p == kOut ? dims_.D : dims_.NQ,
             dims_.column[p] + first, 0);
  }
}

std::vector<float> Weights::QuantisedRows(const std::string& path, MatView<const float> w,
                                          bool grouped_on_rows, ThreadPool& pool) const {
  std::vector<float> rows = grouped_on_rows
                                ? std::vector<float>(w.data(), w.data() + w.rows() * w.cols())
                                : Transposed(w);
  const Bits bits = BitsFor(path);
  if (bits == Bits::kNone) return rows;
  const size_t count = grouped_on_rows ? w.rows() : w.cols(), cols = rows.size() / count;
  constexpr size_t kPerTask = 256;
  pool.Run("quantise weights", CeilDiv(count, kPerTask), [&](size_t task, int) {
    const size_t first = task * kPerTask, n = std::min(kPerTask, count - first);
    kernels_->fake_quantise({rows.data() + first * cols, n, cols}, cols, bits, kGroup);
  });
  return rows;
}

void Weights::PackFrozen(ThreadPool& pool) {
  const Kernels& k = *kernels_;
  const Dims& d = dims_;
  const size_t lanes = d.S * d.D;
  for (size_t l = 0; l < d.L; ++l) {
    Layer& layer = layers_[l];
    layer.qkvg.Reserve(k, d.D, d.NQ, numerics_.act_bits);
    layer.out.Reserve(k, d.A, d.D, numerics_.act_bits);
    layer.phi.Reserve(k.PackedSize(lanes, d.C));
    if (backward_) {
      layer.qkvg_t.Reserve(k.PackedSize(d.NQ, d.D));
      layer.out_t.Reserve(k.PackedSize(d.D, d.A));
      layer.phi_t.Reserve(k.PackedSize(d.C, lanes));
    }
    const LaneView<const float>& phi = view_.lanes[l];
    const std::array<std::pair<const char*, MatView<const float>>, 3> parts = {
        {{"stack/mhc_phi_pre", phi.phi_pre},
         {"stack/mhc_phi_post", phi.phi_post},
         {"stack/mhc_phi_res", phi.phi_res}}};
    size_t column = 0;
    for (const auto& [path, w] : parts) {
      const std::vector<float> rows = QuantisedRows(path, w, false, pool);  // [columns, S*D]
      k.PackColumns(rows.data(), 1, lanes, lanes, w.cols(), layer.phi.data(), column);
      if (backward_)
        k.pack(rows.data(), lanes, 1, w.cols(), lanes, layer.phi_t.data(), d.C, column, 0);
      column += w.cols();
    }
  }
  for (size_t s = 0; s < sites_.size(); ++s) {
    Site& site = sites_[s];
    const SiteView<const float>& w = view_.sites[s];
    const std::string at = StrCat("engrams_", s, "/");
    site.table = QuantisedRows(at + "embedding", w.table, true, pool);
    site.kv.Reserve(k.PackedSize(d.ED, 2 * d.D));
    if (all_parameters_) site.kv_t.Reserve(k.PackedSize(2 * d.D, d.ED));
    const std::vector<float> key = QuantisedRows(at + "key_proj/kernel", w.key, false, pool);
    const std::vector<float> value = QuantisedRows(at + "value_proj/kernel", w.value, false, pool);
    for (size_t half = 0; half < 2; ++half) {
      const std::vector<float>& rows = half ? value : key;  // [D, ED]
      k.PackColumns(rows.data(), 1, d.ED, d.ED, d.D, site.kv.data(), half * d.D);
      if (all_parameters_)
        k.pack(rows.data(), d.ED, 1, d.D, d.ED, site.kv_t.data(), 2 * d.D, half * d.D, 0);
    }
  }
  embedding_ = QuantisedRows("embedding/embedding", view_.embedding, true, pool);
  head_.Reserve(k, d.D, d.V, numerics_.act_bits);
  head_.PackColumns(k, embedding_.data(), d.V, 0);
  if (backward_)
    k.PackB(embedding_.data(), d.D, 1, d.V, d.D, head_t_.Reserve(k.PackedSize(d.V, d.D)));
}

}  // namespace needle
