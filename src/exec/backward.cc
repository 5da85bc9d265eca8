// The backward of the executor, layer by layer from the last:
//   out: dX' -> dX (lanes), dy -> MLP, post norm, out projection, gate -> d(attention)
//   attention: d(queries), d(keys), d(values), one key/value head at a time
//   in:  head norms, projections, norm, engram mix, lane coefficients -> dX complete
//   weights: products over all rows, split by output columns
// What the forward did not keep (u, norms, MLP) is computed again from what it did.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "exec/executor.h"
#include "exec/scratch.h"
#include "ops/engram.h"
#include "ops/gate.h"
#include "ops/hadamard_mlp.h"
#include "ops/head.h"
#include "ops/lanes.h"
#include "ops/norm.h"

namespace needle {
namespace {

constexpr size_t kColumns = 128;  // columns of a weight gradient that one task computes

/// Its own rows.
size_t LargestChunk(const ChunkPlan& plan) {
  size_t rows = 0;
  for (const Rows& chunk : plan.chunks) rows = std::max(rows, chunk.count());
  return rows;
}

void AddTo(std::span<float> to, std::span<const float> from) {
  for (size_t i = 0; i < to.size(); ++i) to[i] += from[i];
}

/// The matrices of a block's projections, in the order of Projection.
std::array<MatView<float>, kProjections> ProjectionGrads(const BlockView<float>& b) {
  return {b.q, b.k, b.v, b.gate, b.out};
}

}  // namespace

ChunkPlan Executor::PlanFor(const Forest& forest, bool keep) {
  ChunkPlan plan = PlanChunks(forest, chunk_rows_);
  const size_t P = plan.prefix.total(), sites = w_.config().engram_layers.size();
  const size_t chunk_rows = LargestChunk(plan);
  context_.Reserve(d_, sites, P + chunk_rows, 0);
  // One piece for both: a batch with a long prefix has short chunks.
  prefix_acts_.keep = chunk_acts_.keep = keep;
  // Room for a later batch with more rows, which then need not take the pages anew.
  const size_t room = chunk_acts_.Lay(d_, chunk_rows_, sites, nullptr);
  const size_t prefix_size = prefix_acts_.Lay(d_, P, sites, nullptr);
  const size_t size = prefix_size + chunk_acts_.Lay(d_, chunk_rows, sites, nullptr);
  float* memory = acts_memory_.Reserve(std::max(size, room));
  prefix_acts_.place = memory;
  chunk_acts_.place = memory + prefix_size;
  return plan;
}

double Executor::Loss(const Forest& forest, const GradientSink* sink) {
  const ChunkPlan plan = PlanFor(forest, sink != nullptr);
  const size_t P = plan.prefix.total(), sites = w_.config().engram_layers.size();
  const size_t most = P + LargestChunk(plan);
  Backward& b = *back_;
  if (sink) {
    b.dkv_size = most * 2 * d_.KE;
    b.dkv.Reserve(d_.L * std::max(most, chunk_rows_) * 2 * d_.KE);
    pool_.Run("clear gradients", d_.L,
              [&](size_t l, int) { std::fill_n(b.Dkv(l), P * 2 * d_.KE, 0.0f); });
    b.dval.resize(sites);
    if (sink->all)
      for (Buffer<float>& dval : b.dval) std::fill_n(dval.Reserve(most * d_.D), P * d_.D, 0.0f);
  }
  if (sink && sink->lora) PackLora(*sink->lora);
  double loss = 0;
  if (P > 0) {
    ForwardTo(Needed::kTargets, plan.prefix, context_, prefix_acts_, {});
    if (!sink) loss += HeadLoss(plan.prefix, prefix_acts_, nullptr);
  }
  for (const Rows& chunk : plan.chunks) {
    ForwardTo(Needed::kTargets, chunk, context_, chunk_acts_, {});
    loss += HeadLoss(chunk, chunk_acts_, sink);
    if (sink) RunBackward(chunk, context_, chunk_acts_, /*clear_own=*/true, *sink);
  }
  if (P > 0 && sink) {
    Prepare(plan.prefix, prefix_acts_, Needed::kTargets);
    loss += HeadLoss(plan.prefix, prefix_acts_, sink);
    RunBackward(plan.prefix, context_, prefix_acts_, /*clear_own=*/false, *sink);
  }
  if (sink && sink->lora) AddSharedGradients(*sink);
  return loss;
}

double Executor::HeadLoss(const Rows& rows, Activations& acts, const GradientSink* sink) {
  const size_t T = rows.count(), width = d_.S * d_.D, N = rows.target_row.size();
  Backward& b = *back_;
  if (sink) {
    for (Buffer<float>& dx : b.dx) dx.Reserve(T * width);
    std::fill_n(b.dx[d_.L % 2].data(), T * width, 0.0f);
  }
  std::vector<size_t> starts;  // first target of each distinct row
  for (size_t n = 0; n < N; ++n)
    if (n == 0 || rows.target_row[n] != rows.target_row[n - 1]) starts.push_back(n);
  const size_t R = starts.size();
  if (R == 0) return 0;
  starts.push_back(N);
  const bool all = sink && sink->all;
  if (all) {
    b.dlogits.Reserve(R * d_.V);
    b.hidden.Reserve(R * d_.D);
  }
  size_t tasks = CeilDiv(R, kHeadBlock);
  if (tasks > 1) tasks = CeilDiv(tasks, 2) * 2;  // two workers end at the same time
  std::vector<double> loss(tasks);
  std::vector<float> dnorm(all ? tasks * d_.D : 0);
  const MatView<float> x = acts.X(d_.L, width);
  pool_.Run("head", tasks, [&](size_t task, int worker) {
    Scratch& s = scratch_[static_cast<size_t>(worker)];
    const size_t begin = task * R / tasks, m = (task + 1) * R / tasks - begin;
    const MatView<float> mean = s.a.Matrix(m, d_.D);
    const auto row_of = [&](size_t i) {
      return static_cast<size_t>(rows.target_row[starts[begin + i]]) - rows.first;
    };
    for (size_t i = 0; i < m; ++i) k_.lane_mean_forward(x.Rows(row_of(i), 1), mean.Rows(i, 1));
    const MatView<float> h =
        all ? MatView<float>(b.hidden.data() + begin * d_.D, m, d_.D) : s.b.Matrix(m, d_.D);
    k_.rms_norm_forward(mean, w_.view().final_norm, h);
    const Inputs inputs = s.InputsOf(h);
    w_.head().Quantise(k_, h, inputs.levels);
    // The gradient of the table reads the quantised values.
    if (all && w_.head().OfIntegers()) k_.fake_quantise_activations(h, w_.numerics().act_bits);
    const MatView<float> logits =
        all ? MatView<float>(b.dlogits.data() + begin * d_.V, m, d_.V) : s.logits.Matrix(m, d_.V);
    w_.head().Product(k_, m, inputs, 0, d_.V, logits);
    for (size_t i = 0; i < m; ++i) {
      const size_t n = starts[begin + i], count = starts[begin + i + 1] - n;
      loss[task] += k_.cross_entropy_row(logits.RowSpan(i), {&rows.target_id[n], count},
                                         {&rows.target_weight[n], count});
    }
    if (!sink) return;
    const MatView<float> dh = s.c.Matrix(m, d_.D);
    k_.gemm(m, d_.D, d_.V, logits.data(), d_.V, 1, w_.head_t(), dh.data(), d_.D, false);
    k_.rms_norm_backward(mean, w_.view().final_norm, dh, dh,
                         all ? std::span<float>(&dnorm[task * d_.D], d_.D) : std::span<float>());
    for (size_t i = 0; i < m; ++i)
      k_.lane_mean_backward(dh.Rows(i, 1), b.Dx(d_.L, T, width).Rows(row_of(i), 1));
  });
  if (all) {
    for (size_t task = 0; task < tasks; ++task)
      AddTo(sink->all->final_norm, {&dnorm[task * d_.D], d_.D});
    const MatView<float> dtable = sink->all->embedding;
    pool_.Run("head weight gradient", CeilDiv(d_.V, kColumns), [&](size_t task, int worker) {
      const size_t begin = task * kColumns, m = std::min(kColumns, d_.V - begin);
      k_.gemm_tn(m, d_.D, R, b.dlogits.data() + begin, d_.V, b.hidden.data(), d_.D,
                 dtable.Row(begin), d_.D,
                 scratch_[static_cast<size_t>(worker)].pack.Reserve(k_.PackedSize(R, d_.D)));
    });
  }
  double total = 0;
  for (const double part : loss) total += part;
  return total;
}

void Executor::RunBackward(const Rows& rows, Context& context, Activations& acts, bool clear_own,
                           const GradientSink& sink) {
  const size_t T = rows.count();
  const RowBlocks blocks(T);
  Backward& b = *back_;
  b.dc.Reserve(T * d_.C);
  b.du.Reserve(T * d_.D);
  b.dx1.Reserve(T * d_.D);
  b.datt.Reserve(T * d_.A);
  b.dq.Reserve(T * d_.A);
  b.dqkvg.Reserve(T * d_.NQ);
  b.h.Reserve(T * d_.D);
  b.o.Reserve(T * d_.A);
  b.dp.Reserve(T * d_.D);
  const size_t sites = w_.config().engram_layers.size();
  b.dkey.resize(sites);
  b.dval_conv.resize(sites);
  if (sink.lora) {
    b.xa.Reserve(T * kProjections * sink.lora->rank);
    b.g.Reserve(T * kProjections * sink.lora->rank);
  } else {
    for (size_t n = 0; n < sites; ++n) {
      std::fill_n(b.dkey[n].Reserve(T * d_.D), T * d_.D, 0.0f);
      std::fill_n(b.dval_conv[n].Reserve(T * d_.D), T * d_.D, 0.0f);
      if (clear_own) std::fill_n(b.dval[n].data() + rows.first * d_.D, T * d_.D, 0.0f);
    }
    b.small.Reserve(blocks.count * SmallGrads(d_, nullptr).size);
  }
  for (size_t l = d_.L; l-- > 0;) {
    if (sink.all) {
      std::fill_n(b.small.data(), blocks.count * SmallGrads(d_, nullptr).size, 0.0f);
    }
    pool_.Run("backward out", blocks.count, [&](size_t task, int worker) {
      const auto [index, begin, m] = blocks[task];
      if (clear_own) std::fill_n(b.Dkv(l) + (rows.first + begin) * 2 * d_.KE, m * 2 * d_.KE, 0.0f);
      Scratch& s = scratch_[static_cast<size_t>(worker)];
      if (IsPartial(l)) {
        BackwardPartial(rows, l, blocks[task], acts, sink, s);
      } else {
        BackwardOut(rows, l, blocks[task], acts, sink, s);
      }
    });
    PackKeys(rows, l, context, /*backward=*/true);
    pool_.Run("backward attention", d_.K, [&](size_t head, int worker) {
      BackwardAttention(rows, l, head, context, acts, scratch_[static_cast<size_t>(worker)]);
    });
    pool_.Run("backward in", blocks.count, [&](size_t task, int worker) {
      BackwardIn(rows, l, blocks[task], acts, sink, scratch_[static_cast<size_t>(worker)]);
    });
    WeightGradients(l, acts, sink);
    if (sink.all) AddSmallGradients(l, blocks.count, *sink.all);
  }
  if (!sink.all) return;
  EngramsBackward(rows, context, acts, *sink.all);
  const MatView<float> dx0 = b.Dx(0, T, d_.S * d_.D);
  pool_.Run("embedding gradient", CeilDiv(d_.D, kColumns), [&](size_t task, int worker) {
    const size_t begin = task * kColumns, n = std::min(kColumns, d_.D - begin);
    const MatView<float> sum = scratch_[static_cast<size_t>(worker)].a.Matrix(T, n);
    for (size_t t = 0; t < T; ++t)
      for (size_t i = 0; i < n; ++i) {
        float total = 0;
        for (size_t lane = 0; lane < d_.S; ++lane) total += dx0.Row(t)[lane * d_.D + begin + i];
        sum.Row(t)[i] = total * std::sqrt(static_cast<float>(d_.D));
      }
    for (size_t t = 0; t < T; ++t) {
      const auto token = static_cast<size_t>(rows.tokens[rows.first + t]);
      AddTo({sink.all->embedding.Row(token) + begin, n}, sum.RowSpan(t));
    }
  });
}

void Executor::BackwardOut(const Rows& rows, size_t l, const RowBlock& at, Activations& acts,
                           const GradientSink& sink, Scratch& s) {
  for (const RowBlock& piece : PiecesOf(at)) BackwardMlp(l, piece, acts, sink, s);
  // Out projection and gate.
  Activations::Layer& a = acts.layer(l);
  Backward& back = *back_;
  const size_t D = d_.D, begin = at.begin, m = at.m;
  const MatView<const float> qkvg{a.qkvg.data() + begin * d_.NQ, m, d_.NQ};
  const MatView<const float> gate = qkvg.Cols(d_.column[kGate], d_.A);
  const MatView<const float> att{a.att.data() + begin * d_.A, m, d_.A};
  const MatView<float> o{back.o.data() + begin * d_.A, m, d_.A};
  k_.gate_forward(att, gate, o);
  if (w_.numerics().act_bits) k_.fake_quantise_activations(o, w_.numerics().act_bits);
  const MatView<float> datt{back.datt.data() + begin * d_.A, m, d_.A};
  k_.gemm(m, d_.A, D, back.dp.data() + begin * D, D, 1, w_.layer(l).out_t.data(), datt.data(), d_.A,
          false);
  const MatView<float> dqkvg{back.dqkvg.data() + begin * d_.NQ, m, d_.NQ};
  k_.gate_backward(att, gate, datt, datt, dqkvg.Cols(d_.column[kGate], d_.A));
  // What the attention's backward needs again: the rotated queries.
  const MatView<float> q{q_.data() + begin * d_.A, m, d_.A};
  k_.rms_norm_forward(qkvg.Cols(0, d_.A), w_.view().blocks[l].q_norm, q);
  k_.rope(q, std::span<const int32_t>{&rows.depth[rows.first + begin], m}, rope_, 1);
}

void Executor::BackwardPartial(const Rows& rows, size_t l, const RowBlock& at, Activations& acts,
                               const GradientSink& sink, Scratch& s) {
  Backward& back = *back_;
  const auto clear = [&](float* values, size_t width) {
    std::fill_n(values + at.begin * width, at.m * width, 0.0f);
  };
  if (sink.all || l > 0) clear(back.Dx(l, acts.T, d_.S * d_.D).data(), d_.S * d_.D);
  clear(back.dc.data(), d_.C);
  clear(back.du.data(), d_.D);
  clear(back.dx1.data(), d_.D);
  clear(back.dp.data(), d_.D);
  clear(back.o.data(), d_.A);
  clear(back.dq.data(), d_.A);
  clear(back.dqkvg.data(), d_.NQ);
  for (const RowBlock& piece : PiecesOf(at)) MixIn(l, piece.begin, piece.m, acts);
  ForEachIn(runs_, at, [&](const RowBlock& run) { BackwardOut(rows, l, run, acts, sink, s); });
}

void Executor::BackwardMlp(size_t l, const RowBlock& at, Activations& acts,
                           const GradientSink& sink, Scratch& s) {
  const BlockView<const float>& block = w_.view().blocks[l];
  Activations::Layer& a = acts.layer(l);
  Backward& back = *back_;
  const size_t width = d_.S * d_.D, D = d_.D, begin = at.begin, m = at.m;
  const bool need_dx = sink.all || l > 0;
  const SmallGrads small(
      d_, sink.all ? back.small.data() + at.index * SmallGrads(d_, nullptr).size : nullptr);
  const MatView<const float> x = acts.X(l, width).Rows(begin, m);
  const MatView<const float> c{a.c.data() + begin * d_.C, m, d_.C};
  const MatView<const float> p{a.p.data() + begin * D, m, D};
  // The forward again, from u to y.
  MixIn(l, begin, m, acts);
  const MatView<float> u = U(begin, m), u1 = U1(l, begin, m);
  const MatView<float> n = s.a.Matrix(m, D), x1 = s.b.Matrix(m, D), h2 = s.c.Matrix(m, D);
  const MatView<float> y = s.d.Matrix(m, D), dy = s.e.Matrix(m, D);
  k_.rms_norm_forward(p, block.post_norm, n);
  k_.scalar_gate_forward(u1, n, *block.attn_gate, x1);
  k_.rms_norm_forward(x1, block.pre_hada, h2);
  k_.hadamard_mlp_forward(h2, block.d1, block.d2, block.d3, y);
  k_.residual(x1, u, y);
  // Lanes, then the MLP: du holds what reaches x1 beside dy itself.
  const MatView<float> dnext = back.Dx(l + 1, acts.T, width).Rows(begin, m);
  const MatView<float> dx = need_dx ? back.Dx(l, acts.T, width).Rows(begin, m) : MatView<float>();
  const MatView<float> dc{back.dc.data() + begin * d_.C, m, d_.C};
  k_.lanes_out_backward(x, c, y, dnext, dx, dy, dc);
  const MatView<float> du{back.du.data() + begin * D, m, D};
  const MatView<float> dx1{back.dx1.data() + begin * D, m, D};
  k_.hadamard_mlp_backward(h2, block.d1, block.d2, block.d3, dy, du, small.d1, small.d2, small.d3);
  k_.rms_norm_backward(x1, block.pre_hada, du, du, small.pre_hada);
  std::copy_n(dy.data(), m * D, dx1.data());
  k_.axpy(1, du.data(), dx1.data(), m * D);
  const MatView<float> dp{back.dp.data() + begin * D, m, D};
  k_.scalar_gate_backward(n, *block.attn_gate, dx1, dp,
                          small.attn_gate.empty() ? nullptr : &small.attn_gate[0]);
  k_.rms_norm_backward(p, block.post_norm, dp, dp, small.post_norm);
}

void Executor::BackwardAttention(const Rows& rows, size_t l, size_t head, Context& context,
                                 Activations& acts, Scratch& s) {
  const size_t group = d_.H / d_.K, column = head * group * d_.E;
  Activations::Layer& a = acts.layer(l);
  Backward& back = *back_;
  float* dkv = back.Dkv(l);
  for (const KeyBlock& block : KeyBlocks(l)) {
    const AttentionBlock b = BlockOf(rows, l, head, block, context);
    AttentionGradients g;
    g.d_o = back.datt.data() + block.begin * d_.A + column;
    g.d_o_stride = d_.A;
    g.dq = back.dq.data() + block.begin * d_.A + column;
    g.dq_stride = d_.A;
    g.dk = dkv + head * d_.E;
    g.dv = dkv + d_.KE + head * d_.E;
    g.dk_stride = g.dv_stride = 2 * d_.KE;
    k_.attention_backward(b, a.att.data() + block.begin * d_.A + column, d_.A,
                          a.lse.data() + (head * acts.T + block.begin) * group, g,
                          s.attention.Reserve(k_.attention_scratch(b.m, b.columns, group, d_.E)));
  }
}

void Executor::BackwardIn(const Rows& rows, size_t l, const RowBlock& at, Activations& acts,
                          const GradientSink& sink, Scratch& s) {
  const BlockView<const float>& block = w_.view().blocks[l];
  Activations::Layer& a = acts.layer(l);
  Backward& back = *back_;
  const size_t D = d_.D, begin = at.begin, m = at.m;
  const SmallGrads small(
      d_, sink.all ? back.small.data() + at.index * SmallGrads(d_, nullptr).size : nullptr);
  const MatView<const float> qkvg{a.qkvg.data() + begin * d_.NQ, m, d_.NQ};
  const MatView<float> dqkvg{back.dqkvg.data() + begin * d_.NQ, m, d_.NQ};
  const std::span<const int32_t> position{&rows.depth[rows.first + begin], m};
  // Heads: rotation and norms back to the projections.
  const MatView<float> dq{back.dq.data() + begin * d_.A, m, d_.A};
  k_.rope(dq, position, rope_, -1);
  k_.rms_norm_backward(qkvg.Cols(0, d_.A), block.q_norm, dq, dqkvg.Cols(0, d_.A), small.q_norm);
  const MatView<float> dkv{back.Dkv(l) + (rows.first + begin) * 2 * d_.KE, m, 2 * d_.KE};
  const MatView<float> dk = dqkvg.Cols(d_.column[kK], d_.KE);
  for (size_t i = 0; i < m; ++i) {
    std::copy_n(dkv.Row(i), d_.KE, dk.Row(i));
    std::copy_n(dkv.Row(i) + d_.KE, d_.KE, dqkvg.Row(i) + d_.column[kV]);
  }
  k_.rope(dk, position, rope_, -1);
  k_.rms_norm_backward(qkvg.Cols(d_.column[kK], d_.KE), block.k_norm, dk, dk, small.k_norm);
  // The projections' input again, and LoRA's thin products.
  const MatView<float> u1 = U1(l, begin, m);
  const MatView<float> h{back.h.data() + begin * D, m, D};
  k_.rms_norm_forward(u1, block.norm_in, h);
  if (w_.numerics().act_bits) k_.fake_quantise_activations(h, w_.numerics().act_bits);
  if (sink.lora) LoraRows(l, begin, m, *sink.lora);
  if (!sink.all && l == 0) return;
  const MatView<float> dh = s.a.Matrix(m, D);
  k_.gemm(m, D, d_.NQ, dqkvg.data(), d_.NQ, 1, w_.layer(l).qkvg_t.data(), dh.data(), D, false);
  for (const RowBlock& piece : PiecesOf(at))
    BackwardLanes(l, piece, acts, dh.Rows(piece.begin - begin, piece.m), sink);
  const size_t width = d_.S * D;
  k_.gemm(m, width, d_.C, back.dc.data() + begin * d_.C, d_.C, 1, w_.layer(l).phi_t.data(),
          back.Dx(l, acts.T, width).Row(begin), width, true);
}

void Executor::BackwardLanes(size_t l, const RowBlock& at, Activations& acts, MatView<float> dh,
                             const GradientSink& sink) {
  Activations::Layer& a = acts.layer(l);
  Backward& back = *back_;
  const size_t width = d_.S * d_.D, D = d_.D, begin = at.begin, m = at.m;
  const SmallGrads small(
      d_, sink.all ? back.small.data() + at.index * SmallGrads(d_, nullptr).size : nullptr);
  const MatView<float> u = U(begin, m), u1 = U1(l, begin, m);
  const MatView<float> du{back.du.data() + begin * D, m, D};
  k_.rms_norm_backward(u1, w_.view().blocks[l].norm_in, dh, dh, small.norm_in);
  k_.axpy(1, dh.data(), du.data(), m * D);
  if (const int site = w_.config().SiteOf(static_cast<int>(l)); site >= 0) {
    const auto n = static_cast<size_t>(site);
    const Activations::Site& e = acts.sites[n];
    const MatView<float> du1{back.dx1.data() + begin * D, m, D};  // dx1 + what came through h
    k_.axpy(1, dh.data(), du1.data(), m * D);
    MatView<float> dkey, dval;
    if (sink.all) {
      dkey = {back.dkey[n].data() + begin * D, m, D};
      dval = {back.dval_conv[n].data() + begin * D, m, D};
    }
    k_.engram_mix_backward(u, {e.key.data() + begin * D, m, D}, {e.val.data() + begin * D, m, D},
                           du1, du, dkey, dval);
  }
  // Lanes.
  const MatView<const float> x = acts.X(l, width).Rows(begin, m);
  const MatView<const float> r{a.r.data() + begin * d_.C, m, d_.C};
  const MatView<const float> c{a.c.data() + begin * d_.C, m, d_.C};
  const MatView<float> dc{back.dc.data() + begin * d_.C, m, d_.C};
  const MatView<float> dx = back.Dx(l, acts.T, width).Rows(begin, m);
  k_.lanes_in_backward(x, c, du, dx, dc);
  k_.lane_coefficients_backward(r, c, w_.view().lanes[l].Scalars(l % d_.S), dc, dc,
                                LaneGrads(small));
  k_.unit_scale_backward(x, r, dc, dx);
}

void Executor::PackLora(const LoraView<const float>& lora) {
  const size_t R = lora.rank;
  back_->factors.resize(d_.L);
  pool_.Run("pack factors", d_.L, [&](size_t l, int) {
    Backward::Factors& to = back_->factors[l];
    std::fill_n(to.a_in.Reserve(k_.PackedSize(d_.D, kOut * R)), k_.PackedSize(d_.D, kOut * R),
                0.0f);
    std::fill_n(to.da.Reserve(d_.D * kOut * R), d_.D * kOut * R, 0.0f);
    to.a_out.Reserve(k_.PackedSize(d_.A, R));
    for (size_t p = 0; p < kProjections; ++p) {
      const MatView<const float> fa = lora.a[l][p], fb = lora.b[l][p];
      if (fa.empty()) continue;
      k_.PackColumns(fa.data(), fa.stride(), 1, fa.rows(), R,
                     p == kOut ? to.a_out.data() : to.a_in.data(), p == kOut ? 0 : p * R);
      k_.PackB(fb.data(), 1, fb.stride(), fb.cols(), R,
               to.b_t[p].Reserve(k_.PackedSize(fb.cols(), R)));
    }
  });
}

void Executor::AddSharedGradients(const GradientSink& sink) {
  const size_t R = sink.lora->rank;
  pool_.Run("weight gradients", d_.L, [&](size_t l, int) {
    const float* shared = back_->factors[l].da.data();
    for (size_t p = 0; p < kOut; ++p) {
      const MatView<float> da = sink.lora_grad->a[l][p];
      for (size_t i = 0; i < da.rows(); ++i) AddTo(da.RowSpan(i), {shared + (i * kOut + p) * R, R});
    }
  });
}

void Executor::LoraRows(size_t l, size_t begin, size_t m, const LoraView<const float>& lora) {
  Backward& b = *back_;
  Backward::Factors& factors = b.factors[l];
  const size_t R = lora.rank, stride = kProjections * R;
  float *xa = b.xa.data() + begin * stride, *g = b.g.data() + begin * stride;
  k_.gemm(m, 4 * R, d_.D, b.h.data() + begin * d_.D, d_.D, 1, factors.a_in.data(), xa, stride,
          false);
  for (size_t p = 0; p < kProjections; ++p) {
    if (lora.a[l][p].empty()) continue;
    const float* dy =
        p == kOut ? b.dp.data() + begin * d_.D : b.dqkvg.data() + begin * d_.NQ + d_.column[p];
    k_.gemm(m, R, d_.width[p], dy, p == kOut ? d_.D : d_.NQ, 1, factors.b_t[p].data(), g + p * R,
            stride, false);
  }
  if (!lora.a[l][kOut].empty())
    k_.gemm(m, R, d_.A, b.o.data() + begin * d_.A, d_.A, 1, factors.a_out.data(), xa + kOut * R,
            stride, false);
  for (size_t i = 0; i < m * stride; ++i) {
    xa[i] *= lora.scale;
    g[i] *= lora.scale;
  }
}

void Executor::WeightGradients(size_t l, Activations& acts, const GradientSink& sink) {
  Backward& b = *back_;
  const size_t T = acts.T;
  struct Product {  // c [M, N] += a^T b over the T rows
    size_t M, N;
    const float* a;
    size_t lda;
    const float* b;
    size_t ldb;
    float* c;
    size_t ldc;
  };
  std::vector<Product> products;
  // Splits along the longer side, so that every task has the same rows to sum in the same order.
  const auto add = [&](Product p) {
    if (p.N >= p.M) {
      for (size_t n = 0; n < p.N; n += kColumns)
        products.push_back(
            {p.M, std::min(kColumns, p.N - n), p.a, p.lda, p.b + n, p.ldb, p.c + n, p.ldc});
    } else {
      for (size_t n = 0; n < p.M; n += kColumns)
        products.push_back(
            {std::min(kColumns, p.M - n), p.N, p.a + n, p.lda, p.b, p.ldb, p.c + n * p.ldc, p.ldc});
    }
  };
  // The projections that read the same rows share one product for dA.
  const size_t shared = sink.lora ? kOut * sink.lora->rank : 0;
  if (sink.lora)
    add({d_.D, shared, b.h.data(), d_.D, b.g.data(), kProjections * sink.lora->rank,
         b.factors[l].da.data(), shared});
  for (size_t p = 0; p < kProjections; ++p) {
    const float* x = p == kOut ? b.o.data() : b.h.data();
    const float* dy = p == kOut ? b.dp.data() : b.dqkvg.data() + d_.column[p];
    const size_t in = p == kOut ? d_.A : d_.D, ldy = p == kOut ? d_.D : d_.NQ;
    if (sink.all) {
      const MatView<float> dw = ProjectionGrads(sink.all->blocks[l])[p];
      add({in, d_.width[p], x, in, dy, ldy, dw.data(), dw.stride()});
    } else if (!sink.lora->a[l][p].empty()) {
      const size_t R = sink.lora->rank, stride = kProjections * R;
      const MatView<float> da = sink.lora_grad->a[l][p], db = sink.lora_grad->b[l][p];
      if (p == kOut) add({in, R, x, in, b.g.data() + p * R, stride, da.data(), da.stride()});
      add({R, d_.width[p], b.xa.data() + p * R, stride, dy, ldy, db.data(), db.stride()});
    }
  }
  if (sink.all) {
    const LaneView<float>& g = sink.all->lanes[l];
    const float* x = acts.X(l, d_.S * d_.D).data();
    size_t column = 0;
    for (const MatView<float>& dphi : {g.phi_pre, g.phi_post, g.phi_res}) {
      add({d_.S * d_.D, dphi.cols(), x, d_.S * d_.D, b.dc.data() + column, d_.C, dphi.data(),
           dphi.stride()});
      column += dphi.cols();
    }
  }
  pool_.Run("weight gradients", products.size(), [&](size_t task, int worker) {
    const Product& p = products[task];
    k_.gemm_tn(p.M, p.N, T, p.a, p.lda, p.b, p.ldb, p.c, p.ldc,
               scratch_[static_cast<size_t>(worker)].pack.Reserve(k_.PackedSize(T, p.N)));
  });
}

void Executor::AddSmallGradients(size_t l, size_t blocks, const ModelView<float>& grads) {
  const BlockView<float>& g = grads.blocks[l];
  const LaneView<float>& lanes = grads.lanes[l];
  const size_t size = SmallGrads(d_, nullptr).size;
  for (size_t block = 0; block < blocks; ++block) {
    const SmallGrads part(d_, back_->small.data() + block * size);
    AddTo(g.norm_in, part.norm_in);
    AddTo(g.q_norm, part.q_norm);
    AddTo(g.k_norm, part.k_norm);
    AddTo(g.post_norm, part.post_norm);
    *g.attn_gate += part.attn_gate[0];
    AddTo(g.pre_hada, part.pre_hada);
    AddTo(g.d1, part.d1);
    AddTo(g.d2, part.d2);
    AddTo(g.d3, part.d3);
    AddTo(lanes.b_pre, part.b_pre);
    AddTo(lanes.b_post, part.b_post);
    AddTo(lanes.b_res, part.b_res);
    *lanes.a_pre += part.a[0];
    *lanes.a_post += part.a[1];
    *lanes.a_res += part.a[2];
  }
}

void Executor::EngramsBackward(const Rows& rows, Context& context, Activations& acts,
                               const ModelView<float>& grads) {
  Backward& b = *back_;
  const ModelConfig& c = w_.config();
  const size_t T = rows.count(), D = d_.D, ED = d_.ED;
  for (size_t n = 0; n < acts.sites.size(); ++n) {
    const SiteView<float>& g = grads.sites[n];
    // The convolution, a few columns a task: rows above are reached by many rows below.
    pool_.Run("engram gradients", CeilDiv(D, kColumns), [&](size_t task, int) {
      const size_t begin = task * kColumns, count = std::min(kColumns, D - begin);
      EngramConvBackward<float>(
          MatView<const float>(context.val[n].data(), rows.total(), D).Cols(begin, count),
          rows.parent, w_.view().sites[n].taps.Cols(begin, count), c.ConvDilation(), rows.first,
          MatView<const float>(b.dval_conv[n].data(), T, D).Cols(begin, count),
          MatView<float>(b.dval[n].data(), rows.total(), D).Cols(begin, count),
          g.taps.Cols(begin, count));
    });
    // [dkey | dval] of the own rows, then the projections and the tables.
    const MatView<float> dkv = b.dlogits.Matrix(T, 2 * D), de = b.hidden.Matrix(T, ED);
    for (size_t t = 0; t < T; ++t) {
      std::copy_n(b.dkey[n].data() + t * D, D, dkv.Row(t));
      std::copy_n(b.dval[n].data() + (rows.first + t) * D, D, dkv.Row(t) + D);
    }
    const std::array<MatView<float>, 2> dw = {g.key, g.value};
    const size_t slices = CeilDiv(D, kColumns);
    pool_.Run("engram gradients", 2 * slices, [&](size_t task, int worker) {
      const size_t half = task / slices, begin = task % slices * kColumns;
      const size_t count = std::min(kColumns, D - begin);
      k_.gemm_tn(ED, count, T, acts.sites[n].e.data(), ED, dkv.data() + half * D + begin, 2 * D,
                 dw[half].data() + begin, dw[half].stride(),
                 scratch_[static_cast<size_t>(worker)].pack.Reserve(k_.PackedSize(T, count)));
    });
    const RowBlocks blocks(T);
    pool_.Run("engram gradients", blocks.count, [&](size_t task, int) {
      const auto [index, begin, m] = blocks[task];
      k_.gemm(m, ED, 2 * D, dkv.Row(begin), 2 * D, 1, w_.site(n).kv_t.data(), de.Row(begin), ED,
              false);
    });
    const size_t sub = g.table.cols(), per_table = g.table.rows() / d_.tables;
    pool_.Run("engram gradients", d_.tables, [&](size_t j, int) {
      for (size_t t = 0; t < T; ++t) {
        const int32_t slot = acts.slots[t * d_.tables + j];
        if (slot < 0) continue;
        AddTo({g.table.Row(j * per_table + static_cast<size_t>(slot)), sub},
              {de.Row(t) + j * sub, sub});
      }
    });
  }
}

}  // namespace needle
