// The whole network in plain loops, forward and backward, generic in the number type: the float64
// witness of the executor, and the slow path of what only it computes (the MTP branch, training of
// the probe heads). Composed from src/ops alone; no quantisation.
// Everything hangs on one forward: ReferenceForward fills a tape; a loss turns what it reads of the
// tape (final hidden states, cells) into gradients; ReferenceBackward carries those to the
// parameters. Shapes: T rows, D, A = H*E, S lanes, C lane columns, L layers, V (STYLE letters).
// Source: MODEL.md section 4. Thread-safe on distinct tapes and gradients.
#pragma once

#include <algorithm>
#include <complex>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "model/config.h"
#include "model/view.h"
#include "ops/attention.h"
#include "ops/engram.h"
#include "ops/forest.h"
#include "ops/gate.h"
#include "ops/hadamard_mlp.h"
#include "ops/head.h"
#include "ops/lanes.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/probe.h"
#include "ops/rope.h"

namespace needle {

/// An owned matrix of zeros; N may be complex.
template <class N>
struct Matrix {
  Matrix() = default;
  Matrix(size_t rows, size_t cols) : values(rows * cols), rows_(rows), cols_(cols) {}
  MatView<N> view() { return {values.data(), rows_, cols_}; }
  MatView<const N> view() const { return {values.data(), rows_, cols_}; }
  operator MatView<N>() { return view(); }              // NOLINT: a matrix is its view
  operator MatView<const N>() const { return view(); }  // NOLINT
  operator MatView<const N>() { return view(); }        // NOLINT
  size_t rows() const { return rows_; }
  size_t cols() const { return cols_; }
  void Add(const Matrix& other) {
    for (size_t i = 0; i < values.size(); ++i) values[i] += other.values[i];
  }
  std::vector<N> values;

 private:
  size_t rows_ = 0, cols_ = 0;
};

/// The rows of one forward. Row t sees row j iff j <= t and t < key_end[j]: a forest's subtree_end,
/// or for the probe heads j + window (never 0 for a sink, 0 for a pad). The engrams look at the
/// parents alone: right for every window longer than their reach (taps * dilation).
struct ReferenceRows {
  std::vector<int32_t> tokens, parent, depth, key_end;  // [T]
  size_t size() const { return tokens.size(); }

  static ReferenceRows Of(const Forest& f) { return {f.tokens, f.parent, f.depth, f.subtree_end}; }
  /// One example whose padding (trailing `pad`) is hidden. `window` 0: none. The first `sinks` rows
  /// are seen from everywhere.
  static ReferenceRows Chain(std::span<const int32_t> ids, int32_t pad, int32_t window = 0,
                             int32_t sinks = 0) {
    ReferenceRows rows;
    const auto T = static_cast<int32_t>(ids.size());
    for (int32_t t = 0; t < T; ++t) {
      const int32_t id = ids[static_cast<size_t>(t)];
      rows.tokens.push_back(id);
      rows.parent.push_back(t - 1);
      rows.depth.push_back(t);
      const int32_t end = window == 0 || t < sinks ? T : std::min(T, t + window);
      rows.key_end.push_back(id == pad ? 0 : end);
    }
    return rows;
  }
};

namespace reference_internal {

template <class N>
struct RealOf {
  using Type = N;
};
template <class R>
struct RealOf<std::complex<R>> {
  using Type = R;
};

template <class N>
Matrix<N> Linear(MatView<const N> x, MatView<const N> w) {
  Matrix<N> y(x.rows(), w.cols());
  LinearForward<N>(x, w, y);
  return y;
}

/// dW += x^T dy, and the gradient of x.
template <class N>
Matrix<N> LinearBackward(MatView<const N> x, MatView<const N> w, MatView<const N> dy,
                         MatView<N> dw) {
  LinearBackwardWeight<N>(x, dy, dw);
  Matrix<N> dx(x.rows(), x.cols());
  LinearBackwardInput<N>(w, dy, dx);
  return dx;
}

template <class N>
Matrix<N> Norm(const Matrix<N>& x, std::span<const N> scale) {
  Matrix<N> y(x.rows(), x.cols());
  RmsNormForward<N>(x, scale, y);
  return y;
}

template <class N>
Matrix<N> NormBackward(const Matrix<N>& x, std::span<const N> scale, const Matrix<N>& dy,
                       std::span<N> dscale) {
  Matrix<N> dx(x.rows(), x.cols());
  RmsNormBackward<N>(x, scale, dy, dx, dscale);
  return dx;
}

}  // namespace reference_internal

/// What the backward of a block reads of its forward. All [T, ...].
template <class N>
struct BlockTape {
  Matrix<N> u1, h;          // block input, normed
  Matrix<N> q_raw, k_raw;   // before head norms and rotation
  Matrix<N> q, k, v, gate;  // what attention reads
  Matrix<N> att, gated, p;  // attention, gated, after the out projection
  Matrix<N> n, x1, h2;      // normed p, after the gate, input of the MLP
};

/// u1 [T, D] -> the block's output [T, D] (MODEL.md 4.5 b-d).
template <class N, class R>
Matrix<N> BlockForward(const ModelConfig& c, const BlockView<const N>& w, const ReferenceRows& rows,
                       const RopeTable<R>& rope, Matrix<N> u1, BlockTape<N>* tape) {
  using namespace reference_internal;  // NOLINT
  BlockTape<N>& b = *tape;
  const size_t T = rows.size();
  const AttentionShape shape = {static_cast<size_t>(c.num_heads),
                                static_cast<size_t>(c.num_kv_heads),
                                static_cast<size_t>(c.HeadDim())};
  b.u1 = std::move(u1);
  b.h = Norm<N>(b.u1, w.norm_in);
  b.q_raw = Linear<N>(b.h, w.q);
  b.k_raw = Linear<N>(b.h, w.k);
  b.v = Linear<N>(b.h, w.v);
  b.gate = Linear<N>(b.h, w.gate);
  b.q = Norm<N>(b.q_raw, w.q_norm);
  b.k = Norm<N>(b.k_raw, w.k_norm);
  RopeInPlace<N>(b.q.view(), rows.depth, rope, 1);
  RopeInPlace<N>(b.k.view(), rows.depth, rope, 1);
  b.att = Matrix<N>(T, b.q.cols());
  AttentionForward<N>(shape, b.q, b.k, b.v, rows.key_end, 0, b.att);
  b.gated = Matrix<N>(T, b.q.cols());
  GateForward<N>(b.att, b.gate, b.gated);
  b.p = Linear<N>(b.gated, w.out);
  b.n = Norm<N>(b.p, w.post_norm);
  b.x1 = Matrix<N>(T, b.u1.cols());
  ScalarGateForward<N>(b.u1, b.n, *w.attn_gate, b.x1);
  b.h2 = Norm<N>(b.x1, w.pre_hada);
  Matrix<N> out(T, b.u1.cols());
  HadamardMlpForward<N>(b.h2, w.d1, w.d2, w.d3, out);
  out.Add(b.x1);
  return out;
}

/// d(output) -> d(u1); adds to the block's gradients.
template <class N, class R>
Matrix<N> BlockBackward(const ModelConfig& c, const BlockView<const N>& w,
                        const ReferenceRows& rows, const RopeTable<R>& rope, const BlockTape<N>& b,
                        const Matrix<N>& dout, const BlockView<N>& g) {
  using namespace reference_internal;  // NOLINT
  const size_t T = rows.size(), D = dout.cols(), A = b.q.cols(), KE = b.k.cols();
  const AttentionShape shape = {static_cast<size_t>(c.num_heads),
                                static_cast<size_t>(c.num_kv_heads),
                                static_cast<size_t>(c.HeadDim())};
  Matrix<N> dh2(T, D);
  HadamardMlpBackward<N>(b.h2, w.d1, w.d2, w.d3, dout, dh2, g.d1, g.d2, g.d3);
  Matrix<N> dx1 = NormBackward<N>(b.x1, w.pre_hada, dh2, g.pre_hada);
  dx1.Add(dout);
  Matrix<N> dn(T, D);
  ScalarGateBackward<N>(b.n, *w.attn_gate, dx1, dn, g.attn_gate);
  const Matrix<N> dp = NormBackward<N>(b.p, w.post_norm, dn, g.post_norm);
  const Matrix<N> dgated = LinearBackward<N>(b.gated, w.out, dp, g.out);
  Matrix<N> datt(T, A), dgate(T, A);
  GateBackward<N>(b.att, b.gate, dgated, datt, dgate);
  Matrix<N> dq(T, A), dk(T, KE), dv(T, KE);
  AttentionBackward<N>(shape, b.q, b.k, b.v, rows.key_end, 0, datt, dq, dk, dv);
  RopeInPlace<N>(dq.view(), rows.depth, rope, -1);
  RopeInPlace<N>(dk.view(), rows.depth, rope, -1);
  const Matrix<N> dq_raw = NormBackward<N>(b.q_raw, w.q_norm, dq, g.q_norm);
  const Matrix<N> dk_raw = NormBackward<N>(b.k_raw, w.k_norm, dk, g.k_norm);
  Matrix<N> dh = LinearBackward<N>(b.h, w.q, dq_raw, g.q);
  dh.Add(LinearBackward<N>(b.h, w.k, dk_raw, g.k));
  dh.Add(LinearBackward<N>(b.h, w.v, dv, g.v));
  dh.Add(LinearBackward<N>(b.h, w.gate, dgate, g.gate));
  Matrix<N> du1 = NormBackward<N>(b.u1, w.norm_in, dh, g.norm_in);
  du1.Add(dx1);
  return du1;
}

/// Everything that a loss or the backward reads of a forward.
template <class N>
struct ReferenceTape {
  using R = typename reference_internal::RealOf<N>::Type;
  struct Layer {
    Matrix<N> x, r, c, u,
        y;  // lanes in [T, S*D], projections and coefficients [T, C], u and y [T, D]
    BlockTape<N> block;
  };
  struct Site {
    Matrix<N> e, key, raw,
        val;  // gathered [T, ED]; key, values before and after the convolution [T, D]
  };
  ReferenceRows rows;
  RopeTable<R> rope;
  std::vector<int32_t> slots;  // [T, tables]
  std::vector<Site> sites;
  std::vector<Layer> layers;
  Matrix<N> mean, hidden;  // [T, D]: mean of the last lanes, and normed (what the head reads)
  Matrix<N> cells;         // [T * (L + 1), D]: row t * (L + 1) + layer; layer 0 is x0
};

namespace reference_internal {

template <class N>
void EngramsForward(const ModelConfig& c, const ModelView<const N>& w, ReferenceTape<N>* tape) {
  const ReferenceRows& rows = tape->rows;
  const size_t T = rows.size(), tables = static_cast<size_t>(c.EngramTables());
  tape->slots.resize(T * tables);
  for (size_t t = 0; t < T && !w.sites.empty(); ++t)
    EngramSlots(rows.tokens, rows.parent, static_cast<int32_t>(t), c.engram_orders, c.EngramHeads(),
                static_cast<uint32_t>(c.engram_slots), {&tape->slots[t * tables], tables});
  for (const SiteView<const N>& site : w.sites) {
    typename ReferenceTape<N>::Site s;
    s.e = Matrix<N>(T, site.key.rows());
    EngramGatherForward<N>(site.table, tape->slots, tables, s.e);
    s.key = Linear<N>(s.e, site.key);
    s.raw = Linear<N>(s.e, site.value);
    s.val = Matrix<N>(T, s.raw.cols());
    EngramConvForward<N>(s.raw, rows.parent, site.taps, c.ConvDilation(), 0, s.val);
    tape->sites.push_back(std::move(s));
  }
}

/// dval: of the convolved values.
template <class N>
void SiteBackward(const ModelConfig& c, const SiteView<const N>& w, const ReferenceTape<N>& tape,
                  const typename ReferenceTape<N>::Site& s, const Matrix<N>& dkey,
                  const Matrix<N>& dval, const SiteView<N>& g) {
  Matrix<N> draw(s.raw.rows(), s.raw.cols());
  EngramConvBackward<N>(s.raw, tape.rows.parent, w.taps, c.ConvDilation(), 0, dval, draw, g.taps);
  Matrix<N> de = LinearBackward<N>(s.e, w.key, dkey, g.key);
  de.Add(LinearBackward<N>(s.e, w.value, draw, g.value));
  EngramGatherBackward<N>(tape.slots, static_cast<size_t>(c.EngramTables()), de, g.table);
}

/// r = unit(x) [phi_pre | phi_post | phi_res]
template <class N>
Matrix<N> LaneProjections(const LaneView<const N>& w, const Matrix<N>& x) {
  Matrix<N> r(x.rows(), w.phi_pre.cols() + w.phi_post.cols() + w.phi_res.cols());
  size_t column = 0;
  for (const MatView<const N>& phi : {w.phi_pre, w.phi_post, w.phi_res}) {
    LinearForward<N>(x, phi, r.view().Cols(column, phi.cols()));
    column += phi.cols();
  }
  UnitScaleForward<N>(x, r);
  return r;
}

/// dr (of the scaled r) -> adds to dx and to the phi gradients.
template <class N>
void LaneProjectionsBackward(const LaneView<const N>& w, const Matrix<N>& x, const Matrix<N>& r,
                             Matrix<N> dr, Matrix<N>* dx, const LaneView<N>& g) {
  UnitScaleBackward<N>(x, r, dr, *dx);
  const MatView<const N> phis[] = {w.phi_pre, w.phi_post, w.phi_res};
  const MatView<N> grads[] = {g.phi_pre, g.phi_post, g.phi_res};
  size_t column = 0;
  for (size_t i = 0; i < 3; ++i) {
    dx->Add(LinearBackward<N>(x, phis[i], dr.view().Cols(column, phis[i].cols()), grads[i]));
    column += phis[i].cols();
  }
}

template <class N>
Matrix<N> LayerForward(const ModelConfig& c, const ModelView<const N>& w, size_t l, Matrix<N> x,
                       ReferenceTape<N>* tape) {
  const size_t T = x.rows(), D = static_cast<size_t>(c.d_model), S = x.cols() / D;
  typename ReferenceTape<N>::Layer& layer = tape->layers[l];
  layer.x = std::move(x);
  layer.r = LaneProjections<N>(w.lanes[l], layer.x);
  layer.c = Matrix<N>(T, layer.r.cols());
  LaneCoefficientsForward<N>(layer.r, w.lanes[l].Scalars(l % S), layer.c);
  layer.u = Matrix<N>(T, D);
  LanesInForward<N>(layer.x, layer.c, layer.u);
  Matrix<N> u1 = layer.u;
  if (const int site = c.SiteOf(static_cast<int>(l)); site >= 0) {
    const auto& s = tape->sites[static_cast<size_t>(site)];
    EngramMixForward<N>(layer.u, s.key, s.val, u1);
  }
  layer.y = BlockForward<N>(c, w.blocks[l], tape->rows, tape->rope, std::move(u1), &layer.block);
  for (size_t i = 0; i < layer.y.values.size(); ++i) layer.y.values[i] -= layer.u.values[i];
  Matrix<N> next(T, S * D);
  LanesOutForward<N>(layer.x, layer.c, layer.y, next);
  return next;
}

/// dnext -> dx; adds to the layer's gradients and to those of its site's keys and values.
template <class N>
Matrix<N> LayerBackward(const ModelConfig& c, const ModelView<const N>& w, size_t l,
                        const ReferenceTape<N>& tape, const Matrix<N>& dnext,
                        std::vector<Matrix<N>>* dkeys, std::vector<Matrix<N>>* dvals,
                        const ModelView<N>& g) {
  const typename ReferenceTape<N>::Layer& layer = tape.layers[l];
  const size_t T = layer.u.rows(), D = layer.u.cols(), S = layer.x.cols() / D;
  Matrix<N> dx(T, S * D), dy(T, D), dc(T, layer.c.cols());
  LanesOutBackward<N>(layer.x, layer.c, layer.y, dnext, dx, dy, dc);
  const Matrix<N> du1 =
      BlockBackward<N>(c, w.blocks[l], tape.rows, tape.rope, layer.block, dy, g.blocks[l]);
  Matrix<N> du = du1;  // u1 = u + ..., and y = block(u1) - u
  for (size_t i = 0; i < du.values.size(); ++i) du.values[i] -= dy.values[i];
  if (const int site = c.SiteOf(static_cast<int>(l)); site >= 0) {
    const auto n = static_cast<size_t>(site);
    EngramMixBackward<N>(layer.u, tape.sites[n].key, tape.sites[n].val, du1, du, (*dkeys)[n],
                         (*dvals)[n]);
  }
  LanesInBackward<N>(layer.x, layer.c, du, dx, dc);
  const LaneView<N>& lanes = g.lanes[l];
  LaneCoefficientsBackward<N>(
      layer.r, layer.c, w.lanes[l].Scalars(l % S), dc, dc,
      {lanes.a_pre, lanes.a_post, lanes.a_res, lanes.b_pre, lanes.b_post, lanes.b_res});
  LaneProjectionsBackward<N>(w.lanes[l], layer.x, layer.r, std::move(dc), &dx, lanes);
  return dx;
}

}  // namespace reference_internal

template <class N>
ReferenceTape<N> ReferenceForward(const ModelConfig& c, const ModelView<const N>& w,
                                  ReferenceRows rows) {
  using namespace reference_internal;  // NOLINT
  const size_t T = rows.size(), D = static_cast<size_t>(c.d_model);
  const size_t S = static_cast<size_t>(c.mhc_lanes), L = w.blocks.size();
  ReferenceTape<N> tape;
  tape.rows = std::move(rows);
  int32_t deepest = 0;
  for (const int32_t depth : tape.rows.depth) deepest = std::max(deepest, depth);
  tape.rope = RopeTable<typename ReferenceTape<N>::R>(
      static_cast<size_t>(deepest) + 1, static_cast<size_t>(c.HeadDim()), c.rope_theta);
  EngramsForward<N>(c, w, &tape);
  tape.layers.resize(L);
  tape.cells = Matrix<N>(T * (L + 1), D);
  Matrix<N> x(T, S * D);
  EmbeddingForward<N>(w.embedding, tape.rows.tokens, x.view().Cols(0, D));
  for (size_t lane = 1; lane < S; ++lane)
    EmbeddingForward<N>(w.embedding, tape.rows.tokens, x.view().Cols(lane * D, D));
  for (size_t l = 0; l <= L; ++l) {
    tape.mean = Matrix<N>(T, D);
    LaneMeanForward<N>(x, tape.mean);
    for (size_t t = 0; t < T;
         ++t)  // layer 0: the lanes are all x0, and the mean of S copies rounds
      std::copy_n(l == 0 ? x.view().Row(t) : tape.mean.view().Row(t), D,
                  tape.cells.view().Row(t * (L + 1) + l));
    if (l < L) x = LayerForward<N>(c, w, l, std::move(x), &tape);
  }
  tape.hidden = Norm<N>(tape.mean, w.final_norm);
  return tape;
}

/// Adds to `g` the gradients of a loss with dhidden [T, D] and dcells [T * (L + 1), D] (either may
/// have no rows: zero).
template <class N>
void ReferenceBackward(const ModelConfig& c, const ModelView<const N>& w,
                       const ReferenceTape<N>& tape, const Matrix<N>& dhidden,
                       const Matrix<N>& dcells, const ModelView<N>& g) {
  using namespace reference_internal;  // NOLINT
  const size_t T = tape.rows.size(), D = static_cast<size_t>(c.d_model);
  const size_t S = static_cast<size_t>(c.mhc_lanes), L = w.blocks.size();
  Matrix<N> dx(T, S * D);
  if (dhidden.rows() > 0)
    LaneMeanBackward<N>(NormBackward<N>(tape.mean, w.final_norm, dhidden, g.final_norm), dx);
  const auto add_cells = [&](size_t layer) {  // the mean of the lanes that leave layer `layer`
    if (dcells.rows() == 0) return;
    Matrix<N> dmean(T, D), dlanes(T, S * D);
    for (size_t t = 0; t < T; ++t)
      std::copy_n(dcells.view().Row(t * (L + 1) + layer), D, dmean.view().Row(t));
    LaneMeanBackward<N>(dmean, dlanes);
    dx.Add(dlanes);
  };
  std::vector<Matrix<N>> dkeys(w.sites.size(), Matrix<N>(T, D)), dvals = dkeys;
  for (size_t l = L; l-- > 0;) {
    add_cells(l + 1);
    dx = LayerBackward<N>(c, w, l, tape, dx, &dkeys, &dvals, g);
  }
  add_cells(0);
  for (size_t n = 0; n < w.sites.size(); ++n)
    SiteBackward<N>(c, w.sites[n], tape, tape.sites[n], dkeys[n], dvals[n], g.sites[n]);
  for (size_t lane = 0; lane < S; ++lane)
    EmbeddingBackward<N>(tape.rows.tokens, std::as_const(dx).view().Cols(lane * D, D), g.embedding);
}

/// logits [T, V] of rows of hidden states: the table is tied.
template <class N>
Matrix<N> ReferenceLogits(const ModelView<const N>& w, const Matrix<N>& hidden) {
  Matrix<N> logits(hidden.rows(), w.embedding.rows());
  LinearBackwardInput<N>(w.embedding, hidden, logits);  // hidden E^T
  return logits;
}

/// dlogits -> dhidden; adds to the table's gradient.
template <class N>
Matrix<N> ReferenceLogitsBackward(const ModelView<const N>& w, const Matrix<N>& hidden,
                                  const Matrix<N>& dlogits, const ModelView<N>& g) {
  LinearBackwardWeight<N>(dlogits, hidden, g.embedding);
  Matrix<N> dhidden(hidden.rows(), hidden.cols());
  LinearForward<N>(dlogits, w.embedding, dhidden);
  return dhidden;
}

/// The training loss of a forest; with `g`, adds its gradients.
template <class N>
N ReferenceLoss(const ModelConfig& c, const ModelView<const N>& w, const Forest& forest,
                const ModelView<N>* g = nullptr) {
  const ReferenceTape<N> tape = ReferenceForward<N>(c, w, ReferenceRows::Of(forest));
  Matrix<N> logits = ReferenceLogits<N>(w, tape.hidden);
  std::vector<std::vector<int32_t>> ids(forest.rows());
  std::vector<std::vector<float>> weights(forest.rows());
  for (size_t n = 0; n < forest.targets(); ++n) {
    const auto row = static_cast<size_t>(forest.target_row[n]);
    ids[row].push_back(forest.target_id[n]);
    weights[row].push_back(forest.target_weight[n]);
  }
  N loss{};
  for (size_t t = 0; t < forest.rows(); ++t)
    loss += CrossEntropyRow<N>(logits.view().RowSpan(t), ids[t], weights[t]);
  if (g)
    ReferenceBackward<N>(c, w, tape, ReferenceLogitsBackward<N>(w, tape.hidden, logits, *g), {},
                         *g);
  return loss;
}

/// The multi-token branch (MODEL.md 4.6): from row t's hidden state and the token after it, logits
/// of the token after that.
template <class N>
struct MtpTape {
  std::vector<int32_t> next;  // [T] the token after each row, 0 after the last
  Matrix<N> e, joined;        // scaled embeddings of `next` [T, D]; [hidden, normed e] [T, 2D]
  BlockTape<N> block;
  Matrix<N> out, hidden;  // the block's output, and normed [T, D]
};

/// Needs chains (every row has at most one child): a branching row would have several next tokens.
template <class N>
MtpTape<N> MtpForward(const ModelConfig& c, const ModelView<const N>& w,
                      const ReferenceTape<N>& tape) {
  using namespace reference_internal;  // NOLINT
  const size_t T = tape.rows.size(), D = static_cast<size_t>(c.d_model);
  MtpTape<N> m;
  m.next.assign(T, 0);
  for (size_t t = 0; t < T; ++t)
    if (const int32_t p = tape.rows.parent[t]; p >= 0)
      m.next[static_cast<size_t>(p)] = tape.rows.tokens[t];
  m.e = Matrix<N>(T, D);
  EmbeddingForward<N>(w.embedding, m.next, m.e);
  m.joined = Matrix<N>(T, 2 * D);
  for (size_t t = 0; t < T; ++t) std::copy_n(tape.hidden.view().Row(t), D, m.joined.view().Row(t));
  RmsNormForward<N>(m.e, w.mtp_emb_norm, m.joined.view().Cols(D, D));
  m.out = BlockForward<N>(c, w.mtp_block, tape.rows, tape.rope, Linear<N>(m.joined, w.mtp_combine),
                          &m.block);
  m.hidden = Norm<N>(m.out, w.mtp_final_norm);
  return m;
}

/// d(m.hidden) -> d(tape.hidden) (returned); adds to the branch's gradients and the table's.
template <class N>
Matrix<N> MtpBackward(const ModelConfig& c, const ModelView<const N>& w,
                      const ReferenceTape<N>& tape, const MtpTape<N>& m, const Matrix<N>& dhidden,
                      const ModelView<N>& g) {
  using namespace reference_internal;  // NOLINT
  const size_t T = tape.rows.size(), D = static_cast<size_t>(c.d_model);
  const Matrix<N> dout = NormBackward<N>(m.out, w.mtp_final_norm, dhidden, g.mtp_final_norm);
  const Matrix<N> din =
      BlockBackward<N>(c, w.mtp_block, tape.rows, tape.rope, m.block, dout, g.mtp_block);
  const Matrix<N> djoined = LinearBackward<N>(m.joined, w.mtp_combine, din, g.mtp_combine);
  Matrix<N> de(T, D), dtape(T, D);
  RmsNormBackward<N>(m.e, w.mtp_emb_norm, djoined.view().Cols(D, D), de, g.mtp_emb_norm);
  EmbeddingBackward<N>(m.next, de, g.embedding);
  for (size_t t = 0; t < T; ++t) std::copy_n(djoined.view().Row(t), D, dtape.view().Row(t));
  return dtape;
}

/// Which cells the probe heads pool: those of rows that are not padding. [T * (L + 1)]
inline std::unique_ptr<bool[]> KeptCells(const ReferenceRows& rows, int32_t pad, size_t L) {
  auto keep = std::make_unique<bool[]>(rows.size() * (L + 1));
  for (size_t t = 0; t < rows.size(); ++t)
    for (size_t l = 0; l <= L; ++l) keep[t * (L + 1) + l] = rows.tokens[t] != pad;
  return keep;
}

/// A probe head's output before its last step: pooled cells through `proj` [P*D, O].
template <class N>
Matrix<N> ProbeHead(MatView<const N> cells, std::span<const bool> keep, MatView<const N> probes,
                    MatView<const N> proj, Matrix<N>* pooled) {
  *pooled = Matrix<N>(1, probes.rows() * probes.cols());
  ProbePoolForward<N>(cells, keep, probes, pooled->values);
  return reference_internal::Linear<N>(*pooled, proj);
}

/// The embedding of an example, [contrastive_dim], of length 1 (MODEL.md 4.7).
template <class N>
std::vector<N> ContrastiveForward(const ModelView<const N>& w, MatView<const N> cells,
                                  std::span<const bool> keep) {
  Matrix<N> pooled;
  const Matrix<N> raw =
      ProbeHead<N>(cells, keep, w.contrastive_probes, w.contrastive_proj, &pooled);
  std::vector<N> out(raw.cols());
  UnitVectorForward<N>(raw.values, out);
  return out;
}

/// Adds to the head's gradients and to dcells.
template <class N>
void ContrastiveBackward(const ModelView<const N>& w, MatView<const N> cells,
                         std::span<const bool> keep, std::span<const N> dembedding,
                         MatView<N> dcells, const ModelView<N>& g) {
  Matrix<N> pooled;
  const Matrix<N> raw =
      ProbeHead<N>(cells, keep, w.contrastive_probes, w.contrastive_proj, &pooled);
  Matrix<N> draw(1, raw.cols());
  UnitVectorBackward<N>(raw.values, dembedding, draw.values);
  const Matrix<N> dpooled =
      reference_internal::LinearBackward<N>(pooled, w.contrastive_proj, draw, g.contrastive_proj);
  ProbePoolBackward<N>(cells, keep, w.contrastive_probes, dpooled.values, dcells,
                       g.contrastive_probes);
}

/// One raw logit.
template <class N>
N ConfidenceForward(const ModelView<const N>& w, MatView<const N> cells,
                    std::span<const bool> keep) {
  Matrix<N> pooled;
  return ProbeHead<N>(cells, keep, w.confidence_probes, w.confidence_proj, &pooled).values[0] +
         *w.confidence_bias;
}

/// Adds to the head's gradients and to dcells.
template <class N>
void ConfidenceBackward(const ModelView<const N>& w, MatView<const N> cells,
                        std::span<const bool> keep, N dlogit, MatView<N> dcells,
                        const ModelView<N>& g) {
  Matrix<N> pooled, draw(1, 1);
  ProbeHead<N>(cells, keep, w.confidence_probes, w.confidence_proj, &pooled);
  draw.values[0] = dlogit;
  *g.confidence_bias += dlogit;
  const Matrix<N> dpooled =
      reference_internal::LinearBackward<N>(pooled, w.confidence_proj, draw, g.confidence_proj);
  ProbePoolBackward<N>(cells, keep, w.confidence_probes, dpooled.values, dcells,
                       g.confidence_probes);
}

}  // namespace needle
