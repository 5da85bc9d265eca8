// Tree, chain and padded packing, chunks, and threads: the same loss and the same gradients; and
// where quantisation parts them, the flipped codes that do it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/str_cat.h"
#include "exec/packing_support.h"
#include "ops/engram.h"
#include "ops/gate.h"
#include "ops/lanes.h"
#include "ops/norm.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

/// A sample of the epoch: spread out, the short last batch among them.
std::vector<size_t> Sample(const Epoch& epoch) { return {0, 27, epoch.batches() - 1}; }

TEST(Packing, GivesTheSameLossAndGradients) {
  const Epoch epoch;
  Adapted m("tiny", {});
  for (const size_t b : Sample(epoch))
    ExpectPackingsAgree(m, epoch, b, kPackedLoss, kPackedGradient);
}

TEST(Packing, GivesNearlyTheSameLossAndGradientsWhenQuantised) {
  const Epoch epoch;
  Adapted m("tiny", QatNumerics(ReferenceModel("tiny").config, "4"));
  for (const size_t b : Sample(epoch))
    ExpectPackingsAgree(m, epoch, b, kPackedQatLoss, kPackedQatGradient);
}

/// Eight of the trajectory's examples.
struct EightExamples {
  EightExamples() {
    const Npz npz = ReferenceNpz("tiny/traj_none.npz");
    batch = BatchOf(npz.at("seqs"), npz.at("masks"), {0, 3, 5, 9, 14, 21, 28, 35});
  }
  Batch batch;
};

TEST(Packing, QuantisedWeightsAloneMakeNoDifference) {
  // The weights' codes do not depend on the packing: only activations can part the packings.
  Numerics numerics = QatNumerics(ReferenceModel("tiny").config, "4");
  numerics.act_bits = 0;
  numerics.kv_bits = Bits::kNone;
  Adapted m("tiny", numerics);
  const EightExamples e;
  const Gradient chain = m.Of(e.batch.Build(Packing::kChain));
  ExpectNear(m.Of(e.batch.Build(Packing::kTree)), chain, kPackedLoss, kPackedGradient, "tree");
  ExpectNear(m.Of(e.batch.Build(Packing::kPadded, 224)), chain, kPackedLoss, kPackedGradient,
             "padded");
}

/// One forward of a forest with everything kept.
struct Traced {
  Traced(Loaded& m, const Forest& forest) : rows(PlanChunks(forest, forest.rows()).chunks[0]) {
    acts.keep = true;
    Context context;
    m.executor.Forward(rows, context, acts);
  }
  Rows rows;
  Activations acts;
};

/// Rows of a chain forest -> the row of the same prefix in the tree.
std::vector<size_t> TreeRows(const Forest& chain, const Forest& tree) {
  std::map<std::pair<int32_t, int32_t>, int32_t> child;
  for (size_t t = 0; t < tree.rows(); ++t)
    child[{tree.parent[t], tree.tokens[t]}] = static_cast<int32_t>(t);
  std::vector<size_t> out;
  for (size_t i = 0; i < chain.rows(); ++i) {
    const int32_t up =
        chain.parent[i] < 0 ? -1 : static_cast<int32_t>(out[static_cast<size_t>(chain.parent[i])]);
    out.push_back(static_cast<size_t>(child.at({up, chain.tokens[i]})));
  }
  return out;
}

/// What the quantiser sees at layer l, row t: the projections' input, computed again.
std::vector<float> NormedInput(const Loaded& m, Traced& run, size_t l, size_t t) {
  const Dims d(m.base.config);
  std::vector<float> u(d.D), h(d.D);
  const MatView<float> row(u.data(), 1, d.D);
  LanesInForward<float>(run.acts.X(l, d.S * d.D).Rows(t, 1),
                        {run.acts.layer(l).c.data() + t * d.C, 1, d.C}, row);
  if (const int site = m.base.config.SiteOf(static_cast<int>(l)); site >= 0) {
    const Activations::Site& s = run.acts.sites[static_cast<size_t>(site)];
    EngramMixForward<float>(row, {s.key.data() + t * d.D, 1, d.D}, {s.val.data() + t * d.D, 1, d.D},
                            row);
  }
  RmsNormForward<float>(row, m.weights.view().blocks[l].norm_in, {h.data(), 1, d.D});
  return h;
}

/// The gated attention of layer l, row t: what the out projection's quantiser sees.
std::vector<float> Gated(const Loaded& m, Traced& run, size_t l, size_t t) {
  const Dims d(m.base.config);
  std::vector<float> o(d.A);
  const MatView<const float> qkvg(run.acts.layer(l).qkvg.data() + t * d.NQ, 1, d.NQ);
  GateForward<float>({run.acts.layer(l).att.data() + t * d.A, 1, d.A},
                     qkvg.Cols(d.column[kGate], d.A), {o.data(), 1, d.A});
  return o;
}

/// x / scale of an 8-bit vector: its code before rounding.
std::vector<double> InCodes(const std::vector<float>& x) {
  float largest = 0;
  for (const float v : x) largest = std::max(largest, std::abs(v));
  std::vector<double> out;
  for (const float v : x) out.push_back(largest > 0 ? 127.0 * double{v} / double{largest} : 0);
  return out;
}

struct Flips {
  size_t clean = 0, flipped = 0,
         codes = 0;  // vectors equal to rounding; with a flip; codes that did
};

/// How far the input that is computed again here may lie from what the kernels quantised, in codes.
constexpr double kAgain = 5e-4;

double ToEdge(double x) { return std::abs(x - (std::floor(x) + 0.5)); }

/// Counts codes that differ, or may have differed (both values on the edge), between two vectors
/// that are equal to rounding; each must lie on an edge. True when there is one.
bool CountFlips(const std::vector<float>& a, const std::vector<float>& b, Flips* flips) {
  const std::vector<double> x = InCodes(a), y = InCodes(b);
  bool any = false;
  for (size_t i = 0; i < x.size(); ++i) {
    const bool differs = std::nearbyint(x[i]) != std::nearbyint(y[i]);
    if (!differs && (ToEdge(x[i]) > kAgain || ToEdge(y[i]) > kAgain)) continue;
    any = true;
    ++flips->codes;
    // Both sides of n + 1/2, no farther apart than rounding of values up to 127.
    EXPECT_LE(std::abs(x[i] - y[i]), 127 * 4e-5);
    EXPECT_LE(std::abs(std::nearbyint(x[i]) - std::nearbyint(y[i])), 1);
  }
  ++(any ? flips->flipped : flips->clean);
  return any;
}

constexpr double kClean = 1e-5;  // rounding of a float32 row, relative to its largest

bool Near(const float* a, const float* b, size_t n, double tolerance) {
  return RelativeMax(std::span<const float>(a, n), std::span<const float>(b, n)) <= tolerance;
}

/// Chains on one instruction set against the tree on another: wherever a vector that is equal to
/// rounding gives a product that is not, a code on an edge has flipped.
Flips ExpectFlipsExplain(Isa chain_isa, Isa tree_isa, const EightExamples& e) {
  const Numerics numerics = QatNumerics(ReferenceModel("tiny").config, "4");
  Loaded m("tiny", chain_isa, numerics), n("tiny", tree_isa, numerics);
  const Dims d(m.base.config);
  const Forest chain_forest = e.batch.Build(Packing::kChain);
  const Forest tree_forest = e.batch.Build(Packing::kTree);
  EXPECT_LT(tree_forest.rows(), chain_forest.rows());
  const std::vector<size_t> same = TreeRows(chain_forest, tree_forest);
  Traced chain(m, chain_forest), tree(n, tree_forest);
  Flips flips;
  size_t moved = 0;  // vectors whose product differs by more than rounding although they do not
  for (size_t l = 0; l < d.L; ++l)
    for (size_t i = 0; i < chain_forest.rows(); ++i) {
      const size_t t = same[i], width = d.S * d.D;
      const auto& a = chain.acts.layer(l);
      const auto& b = tree.acts.layer(l);
      const float *qa = a.qkvg.data() + i * d.NQ, *qb = b.qkvg.data() + t * d.NQ;
      if (Near(chain.acts.X(l, width).Row(i), tree.acts.X(l, width).Row(t), width, kClean)) {
        const bool flip =
            CountFlips(NormedInput(m, chain, l, i), NormedInput(n, tree, l, t), &flips);
        const bool near = Near(qa, qb, d.NQ, 10 * kClean);
        EXPECT_TRUE(near || flip) << "layer " << l << " row " << i;
        moved += !near;
      }
      if (Near(qa, qb, d.NQ, kClean) &&
          Near(a.att.data() + i * d.A, b.att.data() + t * d.A, d.A, kClean)) {
        const bool flip = CountFlips(Gated(m, chain, l, i), Gated(n, tree, l, t), &flips);
        const bool near = Near(a.p.data() + i * d.D, b.p.data() + t * d.D, d.D, 10 * kClean);
        EXPECT_TRUE(near || flip) << "layer " << l << " row " << i;
        moved += !near;
      }
    }
  EXPECT_GT(flips.clean, chain_forest.rows()) << "most vectors are equal to rounding";
  EXPECT_LE(moved, flips.flipped);
  // Without a flip there is nothing to part them: then the losses agree as without quantisation.
  const double tree_loss = n.executor.Loss(tree_forest, nullptr);
  const double chain_loss = m.executor.Loss(chain_forest, nullptr);
  EXPECT_NEAR(tree_loss, chain_loss,
              (flips.codes == 0 ? kPackedLoss : kPackedQatLoss) * chain_loss);
  return flips;
}

TEST(Packing, WhatPartsQuantisedPackingsAreCodesOnAnEdge) {
  const EightExamples e;
  const Isa plain = SupportedIsas().front(), best = SupportedIsas().back();
  for (const Isa isa : SupportedIsas()) {
    const Flips flips = ExpectFlipsExplain(isa, isa, e);
    RecordProperty(std::string(Name(isa)) + "_flipped_codes", static_cast<int>(flips.codes));
  }
  if (plain == best) return;  // one instruction set: rounding may be the same to the bit
  const Flips flips = ExpectFlipsExplain(plain, best, e);
  EXPECT_GT(flips.codes, 0u) << "rounding differs, so some code of a million must flip";
  EXPECT_LT(flips.flipped, flips.clean / 4);
  RecordProperty("across_flipped_codes", static_cast<int>(flips.codes));
}

TEST(Chunks, GiveTheWholeForestsLoraGradients) {
  Adapted m("tiny", {});
  const EightExamples e;
  for (const Packing packing : {Packing::kTree, Packing::kChain}) {
    const Forest forest = e.batch.Build(packing);
    m.model.executor.set_chunk_rows(forest.rows());
    const Gradient whole = m.Of(forest);
    for (const size_t rows : {64u, 200u}) {
      m.model.executor.set_chunk_rows(rows);
      ASSERT_GT(PlanChunks(forest, rows).chunks.size(), 2u);
      ExpectNear(m.Of(forest), whole, kPackedLoss, kPackedGradient, std::to_string(rows));
    }
  }
}

TEST(Chunks, GiveTheWholeForestsFullGradients) {
  for (const std::string name : {"tiny", "alt"}) {
    Loaded m(name, SupportedIsas().back(), {}, /*all=*/true);
    const EightExamples e;
    const Forest forest = e.batch.Build(Packing::kTree);
    m.executor.set_chunk_rows(forest.rows());
    ParamArrays<float> whole, cut;
    const double loss = m.FullLoss(forest, &whole);
    for (const size_t rows : {64u, 200u}) {
      m.executor.set_chunk_rows(rows);
      EXPECT_NEAR(m.FullLoss(forest, &cut), loss, kPackedLoss * loss);
      for (const ParamSpec& spec : ModelParams(m.base.config)) {
        if (!spec.in_training) continue;
        EXPECT_LE(RelativeL2(cut.At(spec.path), whole.At(spec.path)), kPackedGradient)
            << name << " " << spec.path << " " << rows;
      }
    }
  }
}

/// The forest with targets of weight 0 at all rows, which makes the last layer give them all.
Forest WithEveryRowATarget(const Forest& forest) {
  Forest all = forest;
  all.target_row.clear();
  all.target_id.clear();
  all.target_weight.clear();
  size_t n = 0;
  for (int32_t row = 0; row < static_cast<int32_t>(forest.rows()); ++row) {
    all.target_row.push_back(row);
    all.target_id.push_back(0);
    all.target_weight.push_back(0.0f);
    for (; n < forest.targets() && forest.target_row[n] == row; ++n) {
      all.target_row.push_back(row);
      all.target_id.push_back(forest.target_id[n]);
      all.target_weight.push_back(forest.target_weight[n]);
    }
  }
  return all;
}

/// The forest with every `step`-th of its targets.
Forest WithFewTargets(const Forest& forest, size_t step) {
  Forest few = forest;
  few.target_row.clear();
  few.target_id.clear();
  few.target_weight.clear();
  for (size_t n = 0; n < forest.targets(); n += step) {
    few.target_row.push_back(forest.target_row[n]);
    few.target_id.push_back(forest.target_id[n]);
    few.target_weight.push_back(forest.target_weight[n]);
  }
  return few;
}

TEST(LastLayer, GivesTheSameLoraGradientsAtTargetsAsAtAllRows) {
  for (const Isa isa : SupportedIsas()) {
    Adapted m("tiny", {}, isa);
    const Forest tree = EightExamples().batch.Build(Packing::kTree);
    for (const size_t step : {1u, 31u, 1000u})
      for (const size_t rows : {200u, 4096u}) {
        m.model.executor.set_chunk_rows(rows);
        const Forest forest = WithFewTargets(tree, step);
        ExpectNear(m.Of(forest), m.Of(WithEveryRowATarget(forest)), kPackedLoss, kPackedGradient,
                   StrCat(Name(isa), ", every ", step, "th target, ", rows, " rows"));
      }
  }
}

TEST(LastLayer, GivesTheSameFullGradientsAtTargetsAsAtAllRows) {
  Loaded m("alt", SupportedIsas().back(), {}, /*all=*/true);
  const Forest forest = WithFewTargets(EightExamples().batch.Build(Packing::kTree), 31);
  ParamArrays<float> targets, all;
  const double loss = m.FullLoss(forest, &targets);
  EXPECT_NEAR(m.FullLoss(WithEveryRowATarget(forest), &all), loss, kPackedLoss * loss);
  for (const ParamSpec& spec : ModelParams(m.base.config)) {
    if (!spec.in_training) continue;
    EXPECT_LE(RelativeL2(targets.At(spec.path), all.At(spec.path)), kPackedGradient) << spec.path;
  }
}

TEST(Threads, GradientsAreTheSameBitForBitOnAnyNumberOfThem) {
  const EightExamples e;
  const Forest forest = e.batch.Build(Packing::kTree);
  for (const std::string mode : {"none", "map"}) {
    std::map<std::string, std::vector<float>> lora_want, full_want;
    for (const int threads : {1, 2, 3, 8}) {
      Loaded m("tiny", SupportedIsas().back(), QatNumerics(ReferenceModel("tiny").config, mode),
               /*all=*/true, threads);
      m.executor.set_chunk_rows(300);
      ParamArrays<float> full;
      const double full_loss = m.FullLoss(forest, &full);
      LoraArrays lora(m.base, 4, 2.0f), grads(m.base, 4, 2.0f);
      lora.Load(ReferenceNpz("tiny/lora_init.npz"), "");
      m.weights.PackAdapted(lora.const_view(), m.pool);
      const double lora_loss = m.LoraLoss(forest, lora, &grads);
      full.arrays()["loss"] = {static_cast<float>(full_loss), static_cast<float>(lora_loss)};
      if (threads == 1) {
        lora_want = grads.arrays();
        full_want = full.arrays();
      }
      EXPECT_TRUE(grads.arrays() == lora_want) << threads << " " << mode;
      EXPECT_TRUE(full.arrays() == full_want) << threads << " " << mode;
    }
  }
}

}  // namespace
}  // namespace needle
