// The forward of the executor. Each layer is two passes over row blocks with attention between:
//   in:  lanes -> u -> (engram mix) -> norm -> q | k | v | gate -> head norms, rotation
//   out: gate -> out projection -> post norm -> Hadamard MLP -> lanes of the next layer
#include <algorithm>
#include <cmath>
#include <cstring>

#include "exec/executor.h"
#include "exec/scratch.h"
#include "ops/attention.h"
#include "ops/engram.h"
#include "ops/gate.h"
#include "ops/hadamard_mlp.h"
#include "ops/head.h"
#include "ops/lanes.h"
#include "ops/norm.h"

namespace needle {
void Context::Reserve(const Dims& d, size_t sites, size_t rows, size_t keep) {
  kv.resize(d.L);
  val.resize(sites);
  for (Buffer<float>& b : kv) b.Grow(rows * 2 * d.KE, keep * 2 * d.KE);
  for (Buffer<float>& b : val) b.Grow(rows * d.D, keep * d.D);
}

size_t Activations::Lay(const Dims& d, size_t rows, size_t site_count, float* from) {
  T = rows;
  x.resize(keep ? d.L + 1 : 2);
  layers.resize(keep ? d.L : 1);
  sites.resize(site_count);
  const auto for_each = [&](const auto& fn) {
    for (Array& a : x) fn(a, d.S * d.D);
    for (Layer& a : layers) {
      fn(a.r, d.C);
      fn(a.c, d.C);
      fn(a.qkvg, d.NQ);
      fn(a.att, d.A);
      fn(a.lse, d.H);
      fn(a.p, d.D);
    }
    for (Site& a : sites) {
      fn(a.e, d.ED);
      fn(a.key, d.D);
      fn(a.val, d.D);
    }
  };
  size_t size = 0;
  for_each([&](Array& a, size_t width) {
    a.data_ = from ? from + size : nullptr;
    size += CeilDiv(T * width, 16) * 16;  // whole cache lines
  });
  return size;
}

void Activations::Reserve(const Dims& d, size_t rows, size_t site_count) {
  float* from = place;
  if (!from) from = memory_.Reserve(Lay(d, rows, site_count, nullptr));
  Lay(d, rows, site_count, from);
}

Executor::Executor(const Weights& weights, ThreadPool& pool)
    : w_(weights),
      k_(weights.kernels()),
      pool_(pool),
      d_(weights.dims()),
      rope_(static_cast<size_t>(weights.config().max_seq_len), d_.E, weights.config().rope_theta),
      scratch_(static_cast<size_t>(pool.threads())),
      panels_(std::make_unique<KeyPanels>()),
      back_(std::make_unique<Backward>()) {}

Executor::~Executor() = default;

void Executor::set_activation_budget(size_t bytes) {
  const size_t per_layer = d_.S * d_.D + 2 * d_.C + d_.NQ + d_.A + d_.H + d_.D + 4 * d_.KE;
  chunk_rows_ = std::clamp<size_t>(bytes / (4 * d_.L * per_layer), 128, 4096);
}

void Executor::Prepare(const Rows& rows, Activations& acts, Needed needed) {
  const size_t T = rows.count();
  acts.Reserve(d_, T, w_.config().engram_layers.size());
  u_.Reserve(T * d_.D);
  u1_.Reserve(T * d_.D);
  q_.Reserve(T * d_.A);
  size_t deepest = 0;
  for (const int32_t depth : rows.depth)
    deepest = std::max(deepest, static_cast<size_t>(depth) + 1);
  if (deepest > rope_.positions())
    rope_ = RopeTable<float>(2 * deepest, d_.E, w_.config().rope_theta);
  key_blocks_.clear();
  AddKeyBlocks(rows, 0, T, &key_blocks_);
  partial_ = needed == Needed::kTargets;
  runs_.clear();
  last_key_blocks_.clear();
  if (!partial_) return;
  for (const int32_t target : rows.target_row) {
    const size_t row = static_cast<size_t>(target) - rows.first;
    if (runs_.empty() || row > runs_.back().begin + runs_.back().m + kRunGap)
      runs_.push_back({runs_.size(), row, 0});
    runs_.back().m = row + 1 - runs_.back().begin;
  }
  for (const RowBlock& run : runs_) AddKeyBlocks(rows, run.begin, run.m, &last_key_blocks_);
}

void Executor::AddKeyBlocks(const Rows& rows, size_t begin, size_t count,
                            std::vector<KeyBlock>* blocks) {
  const size_t parts = CeilDiv(count, k_.query_block);
  for (size_t b = 0; b < parts; ++b) {
    KeyBlock block;
    block.begin = begin + b * count / parts;
    block.count = begin + (b + 1) * count / parts - block.begin;
    block.columns =
        VisibleSpans(rows, rows.first + block.begin, block.count, k_.panel_width, &block.spans);
    blocks->push_back(std::move(block));
  }
}

void Executor::Engrams(const Rows& rows, Context& context, Activations& acts) {
  const ModelConfig& c = w_.config();
  const size_t T = rows.count(), sites = c.engram_layers.size();
  if (sites == 0) return;
  acts.slots.resize(T * d_.tables);
  const RowBlocks blocks(T);
  const int act_bits = w_.numerics().act_bits;
  pool_.Run("engrams", blocks.count, [&](size_t task, int worker) {
    const auto [index, begin, m] = blocks[task];
    for (size_t i = begin; i < begin + m; ++i)
      EngramSlots(rows.tokens, rows.parent, static_cast<int32_t>(rows.first + i), c.engram_orders,
                  c.EngramHeads(), static_cast<uint32_t>(c.engram_slots),
                  {&acts.slots[i * d_.tables], d_.tables});
    Scratch& s = scratch_[static_cast<size_t>(worker)];
    for (size_t n = 0; n < sites; ++n) {
      Activations::Site& site = acts.sites[n];
      const std::vector<float>& table = w_.site(n).table;
      const MatView<float> e{site.e.data() + begin * d_.ED, m, d_.ED};
      const size_t sub = d_.ED / d_.tables;
      EngramGatherForward<float>({table.data(), table.size() / sub, sub},
                                 {&acts.slots[begin * d_.tables], m * d_.tables}, d_.tables, e);
      if (act_bits) k_.fake_quantise_activations(e, act_bits);
      const MatView<float> kv = s.a.Matrix(m, 2 * d_.D);
      k_.gemm(m, 2 * d_.D, d_.ED, e.data(), d_.ED, 1, w_.site(n).kv.data(), kv.data(), 2 * d_.D,
              false);
      for (size_t i = 0; i < m; ++i) {
        std::copy_n(kv.Row(i), d_.D, site.key.data() + (begin + i) * d_.D);
        std::copy_n(kv.Row(i) + d_.D, d_.D,
                    context.val[n].data() + (rows.first + begin + i) * d_.D);
      }
    }
  });
  pool_.Run("engrams", blocks.count * sites, [&](size_t task, int) {
    const size_t n = task / blocks.count;
    const auto [index, begin, m] = blocks[task % blocks.count];
    EngramConvForward<float>({context.val[n].data(), rows.total(), d_.D}, rows.parent,
                             w_.view().sites[n].taps, c.ConvDilation(), rows.first + begin,
                             {acts.sites[n].val.data() + begin * d_.D, m, d_.D});
  });
}

void Executor::Forward(const Rows& rows, Context& context, Activations& acts,
                       MatView<float> cells) {
  ForwardTo(Needed::kAll, rows, context, acts, cells);
}

void Executor::ForwardTo(Needed needed, const Rows& rows, Context& context, Activations& acts,
                         MatView<float> cells) {
  const size_t T = rows.count();
  const RowBlocks blocks(T);
  context.Reserve(d_, w_.config().engram_layers.size(), rows.total(), rows.first);
  Prepare(rows, acts, needed);
  Engrams(rows, context, acts);
  for (size_t l = 0; l < d_.L; ++l) {
    // One pass over the rows: the end of layer l - 1 and the beginning of layer l.
    pool_.Run("forward rows", blocks.count, [&](size_t task, int worker) {
      Scratch& s = scratch_[static_cast<size_t>(worker)];
      const RowBlock block = blocks[task];
      if (l > 0) OutProjection(l - 1, block.begin, block.m, acts, s);
      const Inputs h = s.InputsOf(s.a.Matrix(block.m, d_.D));
      for (const RowBlock& piece : PiecesOf(block)) {
        if (l == 0) {
          Embed(rows, piece.begin, piece.m, acts, cells);
        } else {
          PhaseOut(l - 1, piece.begin, piece.m, acts, cells, s);
        }
      }
      LaneProducts(l, block.begin, block.m, acts);
      for (const RowBlock& piece : PiecesOf(block))
        PhaseIn(l, piece.begin, piece.m, acts, h.From(piece.begin - block.begin));
      Projections(rows, l, block, h, context, acts);
    });
    if (T > 1) PackKeys(rows, l, context, /*backward=*/false);
    const std::vector<KeyBlock>& key_blocks = KeyBlocks(l);
    pool_.Run("forward attention", key_blocks.size() * d_.K, [&](size_t task, int worker) {
      Attend(rows, l, task % d_.K, key_blocks[task / d_.K], context, acts,
             scratch_[static_cast<size_t>(worker)]);
    });
  }
  const size_t last = d_.L - 1;
  pool_.Run("forward rows", blocks.count, [&](size_t task, int worker) {
    Scratch& s = scratch_[static_cast<size_t>(worker)];
    const auto finish = [&](const RowBlock& block) {
      OutProjection(last, block.begin, block.m, acts, s);
      for (const RowBlock& piece : PiecesOf(block))
        PhaseOut(last, piece.begin, piece.m, acts, cells, s);
    };
    if (IsPartial(last)) {
      ForEachIn(runs_, blocks[task], finish);
    } else {
      finish(blocks[task]);
    }
  });
}

MatView<float> Executor::U1(size_t l, size_t begin, size_t m) {
  if (w_.config().SiteOf(static_cast<int>(l)) < 0) return U(begin, m);
  return {u1_.data() + begin * d_.D, m, d_.D};
}

void Executor::MixIn(size_t l, size_t begin, size_t m, Activations& acts) {
  const MatView<float> u = U(begin, m);
  k_.lanes_in_forward(acts.X(l, d_.S * d_.D).Rows(begin, m),
                      {acts.layer(l).c.data() + begin * d_.C, m, d_.C}, u);
  const int site = w_.config().SiteOf(static_cast<int>(l));
  if (site < 0) return;
  const Activations::Site& e = acts.sites[static_cast<size_t>(site)];
  k_.engram_mix_forward(u, {e.key.data() + begin * d_.D, m, d_.D},
                        {e.val.data() + begin * d_.D, m, d_.D}, U1(l, begin, m));
}

void Executor::Embed(const Rows& rows, size_t begin, size_t m, Activations& acts,
                     MatView<float> cells) {
  const MatView<float> x = acts.X(0, d_.S * d_.D).Rows(begin, m);
  EmbeddingForward<float>(w_.embedding(), {&rows.tokens[rows.first + begin], m}, x.Cols(0, d_.D));
  for (size_t i = 0; i < m; ++i) {
    for (size_t lane = 1; lane < d_.S; ++lane) std::copy_n(x.Row(i), d_.D, x.Row(i) + lane * d_.D);
    if (!cells.empty()) std::copy_n(x.Row(i), d_.D, cells.Row((begin + i) * (d_.L + 1)));
  }
}

void Executor::LaneProducts(size_t l, size_t begin, size_t m, Activations& acts) {
  const size_t width = d_.S * d_.D;
  const MatView<const float> x = acts.X(l, width).Rows(begin, m);
  k_.gemm(m, d_.C, width, x.data(), width, 1, w_.layer(l).phi.data(),
          acts.layer(l).r.data() + begin * d_.C, d_.C, false);
}

void Executor::PhaseIn(size_t l, size_t begin, size_t m, Activations& acts, const Inputs& h) {
  Activations::Layer& a = acts.layer(l);
  const MatView<const float> x = acts.X(l, d_.S * d_.D).Rows(begin, m);
  const MatView<float> r{a.r.data() + begin * d_.C, m, d_.C};
  const MatView<float> c{a.c.data() + begin * d_.C, m, d_.C};
  k_.unit_scale_forward(x, r);
  k_.lane_coefficients_forward(r, w_.view().lanes[l].Scalars(l % d_.S), c);
  MixIn(l, begin, m, acts);
  const MatView<float> rows = h.values.Rows(0, m);
  k_.rms_norm_forward(U1(l, begin, m), w_.view().blocks[l].norm_in, rows);
  w_.layer(l).qkvg.Quantise(k_, rows, h.levels);
}

void Executor::Projections(const Rows& rows, size_t l, const RowBlock& at, const Inputs& h,
                           Context& context, Activations& acts) {
  const BlockView<const float>& block = w_.view().blocks[l];
  const size_t begin = at.begin, m = at.m;
  const MatView<float> qkvg{acts.layer(l).qkvg.data() + begin * d_.NQ, m, d_.NQ};
  const auto project = [&](size_t row, size_t n, size_t from, size_t to) {
    w_.layer(l).qkvg.Product(k_, n, h.From(row), from, to, qkvg.Rows(row, n));
  };
  if (IsPartial(l)) {
    for (size_t i = 0; i < m; ++i) std::fill_n(qkvg.Row(i), d_.NQ, 0.0f);
    project(0, m, d_.column[kK], d_.column[kGate]);
    ForEachIn(runs_, at, [&](const RowBlock& run) {
      project(run.begin - begin, run.m, d_.column[kQ], d_.column[kK]);
      project(run.begin - begin, run.m, d_.column[kGate], d_.NQ);
    });
  } else {
    project(0, m, 0, d_.NQ);
  }
  const std::span<const int32_t> position{&rows.depth[rows.first + begin], m};
  const MatView<float> q{q_.data() + begin * d_.A, m, d_.A};
  k_.rms_norm_forward(qkvg.Cols(0, d_.A), block.q_norm, q);
  k_.rope(q, position, rope_, 1);
  const MatView<float> kv{context.kv[l].data() + (rows.first + begin) * 2 * d_.KE, m, 2 * d_.KE};
  const MatView<float> key = kv.Cols(0, d_.KE), value = kv.Cols(d_.KE, d_.KE);
  k_.rms_norm_forward(qkvg.Cols(d_.column[kK], d_.KE), block.k_norm, key);
  k_.rope(key, position, rope_, 1);
  for (size_t i = 0; i < m; ++i) {
    std::copy_n(qkvg.Row(i) + d_.column[kV], d_.KE, value.Row(i));
  }
  if (const Bits bits = w_.numerics().kv_bits; bits != Bits::kNone)
    k_.fake_quantise(kv, d_.E, bits, kKvGroup);
}

void Executor::PackKeys(const Rows& rows, size_t l, const Context& context, bool backward) {
  const size_t n = rows.total(), stride = 2 * d_.KE, E = d_.E;
  const size_t columns = k_.PackedSize(E, n), by_row = k_.PackedSize(n, E);
  KeyPanels& to = *panels_;
  // Which panels, from keys or values, each head's K or V transposed or not.
  struct Kind {
    Buffer<float>& panels;
    size_t offset;  // of the keys or values in a row
    bool transposed;
  };
  const Kind key_columns = {to.key_columns, 0, true}, key_rows = {to.key_rows, 0, false};
  const Kind value_columns = {to.value_columns, d_.KE, true},
             value_rows = {to.value_rows, d_.KE, false};
  const std::vector<Kind> kinds = backward ? std::vector<Kind>{key_columns, value_columns, key_rows}
                                           : std::vector<Kind>{key_columns, value_rows};
  for (const Kind& kind : kinds) kind.panels.Reserve(d_.K * (kind.transposed ? columns : by_row));
  pool_.Run("pack keys", d_.K * kinds.size(), [&](size_t task, int) {
    const size_t head = task / kinds.size();
    const Kind& kind = kinds[task % kinds.size()];
    const float* from = context.kv[l].data() + kind.offset + head * E;
    if (kind.transposed) {
      k_.PackB(from, 1, stride, E, n, kind.panels.data() + head * columns);
    } else {
      k_.PackB(from, stride, 1, n, E, kind.panels.data() + head * by_row);
    }
  });
}

AttentionBlock Executor::BlockOf(const Rows& rows, size_t l, size_t head, const KeyBlock& block,
                                 const Context& context) const {
  const float* kv = context.kv[l].data();
  const size_t n = rows.total();
  const size_t columns = head * k_.PackedSize(d_.E, n), by_row = head * k_.PackedSize(n, d_.E);
  AttentionBlock b;
  b.m = block.count;
  b.group = d_.H / d_.K;
  b.E = d_.E;
  b.first_row = rows.first + block.begin;
  b.q = q_.data() + block.begin * d_.A + head * b.group * d_.E;
  b.q_stride = d_.A;
  b.spans = block.spans.data();
  b.span_count = block.spans.size();
  b.columns = block.columns;
  b.key_first = rows.key_first.data();
  b.key_end = rows.key_end.data();
  b.scale = 1.0f / std::sqrt(static_cast<float>(d_.E));
  b.k = kv + head * d_.E;
  b.v = kv + d_.KE + head * d_.E;
  b.k_stride = b.v_stride = 2 * d_.KE;
  b.rows = n;
  const auto at = [](const Buffer<float>& panels, size_t offset) -> const float* {
    return panels.data() ? panels.data() + offset : nullptr;
  };
  b.key_columns = at(panels_->key_columns, columns);
  b.value_rows = at(panels_->value_rows, by_row);
  b.value_columns = at(panels_->value_columns, columns);
  b.key_rows = at(panels_->key_rows, by_row);
  return b;
}

void Executor::Attend(const Rows& rows, size_t l, size_t head, const KeyBlock& block,
                      Context& context, Activations& acts, Scratch& s) {
  const AttentionBlock b = BlockOf(rows, l, head, block, context);
  Activations::Layer& a = acts.layer(l);
  k_.attention_forward(b, a.att.data() + block.begin * d_.A + head * b.group * d_.E, d_.A,
                       a.lse.data() + (head * acts.T + block.begin) * b.group,
                       s.attention.Reserve(k_.attention_scratch(b.m, b.columns, b.group, d_.E)));
}

void Executor::OutProjection(size_t l, size_t begin, size_t m, Activations& acts, Scratch& s) {
  Activations::Layer& a = acts.layer(l);
  const MatView<const float> qkvg{a.qkvg.data() + begin * d_.NQ, m, d_.NQ};
  const Inputs o = s.InputsOf(s.a.Matrix(m, d_.A));
  k_.gate_forward({a.att.data() + begin * d_.A, m, d_.A}, qkvg.Cols(d_.column[kGate], d_.A),
                  o.values);
  const Multiplier& out = w_.layer(l).out;
  out.Quantise(k_, o.values, o.levels);
  out.Product(k_, m, o, 0, d_.D, {a.p.data() + begin * d_.D, m, d_.D});
}

void Executor::PhaseOut(size_t l, size_t begin, size_t m, Activations& acts, MatView<float> cells,
                        Scratch& s) {
  const BlockView<const float>& block = w_.view().blocks[l];
  Activations::Layer& a = acts.layer(l);
  const size_t width = d_.S * d_.D;
  const MatView<const float> p{a.p.data() + begin * d_.D, m, d_.D};
  const MatView<const float> u = U(begin, m), u1 = U1(l, begin, m);
  const MatView<float> x1 = s.b.Matrix(m, d_.D), y = s.c.Matrix(m, d_.D);
  k_.rms_norm_forward(p, block.post_norm, x1);
  k_.scalar_gate_forward(u1, x1, *block.attn_gate, x1);
  k_.rms_norm_forward(x1, block.pre_hada, y);
  k_.hadamard_mlp_forward(y, block.d1, block.d2, block.d3, y);
  k_.residual(x1, u, y);
  const MatView<float> next = acts.X(l + 1, width).Rows(begin, m);
  k_.lanes_out_forward(acts.X(l, width).Rows(begin, m), {a.c.data() + begin * d_.C, m, d_.C}, y,
                       next);
  if (cells.empty()) return;
  for (size_t i = 0; i < m; ++i)
    k_.lane_mean_forward(next.Rows(i, 1), cells.Rows((begin + i) * (d_.L + 1) + l + 1, 1));
}

void Executor::Logits(const Rows& rows, Activations& acts, std::span<const int32_t> row,
                      MatView<float> logits) {
  const MatView<const float> x = acts.X(d_.L, d_.S * d_.D);
  pool_.Run("logits", CeilDiv(row.size(), kHeadBlock), [&](size_t task, int worker) {
    const size_t begin = task * kHeadBlock, m = std::min(kHeadBlock, row.size() - begin);
    Scratch& s = scratch_[static_cast<size_t>(worker)];
    const MatView<float> h = s.a.Matrix(m, d_.D);
    for (size_t i = 0; i < m; ++i)
      k_.lane_mean_forward(x.Rows(static_cast<size_t>(row[begin + i]) - rows.first, 1),
                           h.Rows(i, 1));
    k_.rms_norm_forward(h, w_.view().final_norm, h);
    const Inputs inputs = s.InputsOf(h);
    w_.head().Quantise(k_, h, inputs.levels);
    w_.head().Product(k_, m, inputs, 0, d_.V, logits.Rows(begin, m));
  });
}

namespace {

/// The row of the first value that is not finite, or -1.
std::ptrdiff_t NonFiniteRow(const float* values, size_t T, size_t width) {
  for (size_t i = 0; i < T * width; ++i)
    if (!std::isfinite(values[i])) return static_cast<std::ptrdiff_t>(i / width);
  return -1;
}

}  // namespace

std::string Executor::Explain(const Rows& rows, Activations& acts) {
  const auto at = [&](std::ptrdiff_t row) {
    return StrCat(" (token ", rows.tokens[rows.first + static_cast<size_t>(row)], " at position ",
                  rows.depth[rows.first + static_cast<size_t>(row)], ")");
  };
  for (size_t n = 0; n < acts.sites.size(); ++n) {
    const Activations::Site& site = acts.sites[n];
    for (const auto& [buffer, what] :
         {std::pair{&site.key, "keys"}, std::pair{&site.val, "values"}})
      if (const auto row = NonFiniteRow(buffer->data(), acts.T, d_.D); row >= 0)
        return StrCat("the engram ", what, " of site ", n, at(row));
  }
  for (size_t l = 0; l < d_.L; ++l) {
    Activations::Layer& a = acts.layer(l);
    const struct {
      const float* values;
      size_t width;
      const char* what;
    } steps[] = {{acts.X(l, d_.S * d_.D).data(), d_.S * d_.D, "the residual lanes entering layer "},
                 {a.c.data(), d_.C, "the lane coefficients of layer "},
                 {a.qkvg.data(), d_.NQ, "the q, k, v and gate projections of layer "},
                 {a.att.data(), d_.A, "the attention of layer "},
                 {a.p.data(), d_.D, "the out projection of layer "}};
    for (const auto& step : steps)
      if (const auto row = NonFiniteRow(step.values, acts.T, step.width); row >= 0)
        return StrCat(step.what, l, at(row));
  }
  if (const auto row = NonFiniteRow(acts.X(d_.L, d_.S * d_.D).data(), acts.T, d_.S * d_.D);
      row >= 0)
    return StrCat("the Hadamard MLP or lanes of the last layer", at(row));
  std::vector<float> logits(d_.V);
  for (const int32_t target : rows.target_row) {
    Logits(rows, acts, {&target, 1}, {logits.data(), 1, d_.V});
    if (NonFiniteRow(logits.data(), 1, d_.V) >= 0)
      return StrCat("the final norm or the logits", at(target - static_cast<int32_t>(rows.first)));
  }
  return "";
}

std::string Executor::FirstNonFinite(const Forest& forest) {
  const ChunkPlan plan = PlanFor(forest, /*keep=*/true);
  std::string found;
  if (plan.prefix.total() > 0) {
    Forward(plan.prefix, context_, prefix_acts_);
    found = Explain(plan.prefix, prefix_acts_);
  }
  for (const Rows& chunk : plan.chunks) {
    if (!found.empty()) return found;
    Forward(chunk, context_, chunk_acts_);
    found = Explain(chunk, chunk_acts_);
  }
  return found;
}

}  // namespace needle
