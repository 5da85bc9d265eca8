// Quantisation-aware numerics against upstream's: losses, gradients, logits and the weights' codes.
#include <gtest/gtest.h>

#include "exec/loaded.h"
#include "quant/midpoint.h"
#include "support/mismatch.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

class Qat : public testing::TestWithParam<std::string> {};

TEST_P(Qat, LossAndLoraGradientsAreUpstreamsOnEveryIsa) {
  const Npz want = ReferenceNpz(GetParam() + "/grads.npz");
  const Npz init = ReferenceNpz(GetParam() + "/lora_init.npz");
  const float scale = want.at("scale").As<float>()[0];
  const Batch batch = BatchOf(want.at("ids"), want.at("mask"));
  const Forest forest = batch.Build(Packing::kChain);
  size_t modes = 0;
  for (const QatMode& mode : kQatModes) {
    const std::string at = std::string(mode.name) + "/";
    if (!want.count(at + "loss")) continue;
    ++modes;
    for (const Isa isa : SupportedIsas()) {
      Loaded m(GetParam(), isa, QatNumerics(ReferenceModel(GetParam()).config, mode.name));
      LoraArrays lora(m.base, 4, scale), grads(m.base, 4, scale);
      lora.Load(init, "");
      m.weights.PackAdapted(lora.const_view(), m.pool);
      const double loss = m.LoraLoss(forest, lora, &grads);
      const double wanted = want.at(at + "loss").As<double>()[0];
      // Four-bit keys and values (alt) flip by steps sixteen times as wide as activations do.
      const double allowed = m.base.config.kv_bits < 8 ? 5e-4 : mode.loss;
      EXPECT_NEAR(loss, wanted, allowed * wanted) << mode.name << " " << Name(isa);
      for (const auto& [path, got] : grads.arrays())
        // Flips again: upstream's own float32 and float64 differ by up to 1 % in norm.
        EXPECT_LE(RelativeL2(got, want.at(at + path).As<float>()), 0.05)
            << mode.name << " " << Name(isa) << " " << path;
    }
  }
  EXPECT_EQ(modes, GetParam() == "tiny" || GetParam() == "alt" ? 3u : 1u);
}

INSTANTIATE_TEST_SUITE_P(Reference, Qat, testing::Values("tiny", "alt", "d128"),
                         [](const auto& test) { return test.param; });

TEST(QatForward, LogitsOfFourBitsAreUpstreams) {
  const Npz want = ReferenceNpz("tiny/forward_q4.npz");
  const auto T = static_cast<size_t>(want.at("ids").shape[1]);
  std::vector<int32_t> ids = want.at("ids").As<int32_t>();
  ids.resize(T);
  for (const Isa isa : SupportedIsas()) {
    Loaded m("tiny", isa, QatNumerics(ReferenceModel("tiny").config, "4"));
    const Rows rows = ChainRows(ids, std::vector<int32_t>(T, static_cast<int32_t>(T)));
    Context context;
    Activations acts;
    const auto V = static_cast<size_t>(m.base.config.vocab_size);
    std::vector<float> logits(T * V);
    std::vector<int32_t> all(T);
    for (size_t t = 0; t < T; ++t) all[t] = static_cast<int32_t>(t);
    m.executor.Forward(rows, context, acts);
    m.executor.Logits(rows, acts, all, {logits.data(), T, V});
    const std::vector<float> wanted = want.at("logits").As<float>();
    // One activation code is 1/127 of a vector's largest value; a few flips among 80 x 5 vectors.
    EXPECT_LE(RelativeL2(logits, wanted), 5e-3) << Name(isa);
    EXPECT_LE(RelativeMax(logits, wanted), 2e-2) << Name(isa);
  }
}

/// The values of a group of `n` weights with some codes replaced.
std::vector<float> Values(std::vector<uint8_t> codes, uint16_t norm,
                          std::span<const float> codebook, size_t n) {
  std::vector<float> out(codes.size());
  DequantizeGroup(codes.data(), norm, codebook, out);
  out.resize(n);
  return out;
}

/// "" when `theirs` (n <= 128 values) is `w` quantised, up to codes that lie on a midpoint within
/// rounding and a norm that rounds the other way; counts such codes.
std::string WhyNotQuantised(std::span<const float> w, std::span<const float> theirs, Bits bits,
                            size_t* flips) {
  const std::span<const float> codebook = Codebook(bits, kGroup);
  std::vector<float> rotated(w.begin(), w.end());
  rotated.resize(kGroup);
  std::vector<uint8_t> codes(kGroup);
  const uint16_t norm = QuantizeGroup(rotated, codebook, codes.data());
  const ExactGroup exact = RotateExactly(w, kGroup);
  struct Choice {
    size_t at;
    uint8_t code;
  };
  std::vector<Choice> edges;
  for (size_t i = 0; i < kGroup; ++i)
    for (const int step : {-1, 1}) {
      const int other = codes[i] + step;
      if (other < 0 || other >= static_cast<int>(codebook.size())) continue;
      if (WhyNotOnMidpoint(exact.u[i], codes[i], other, codebook).empty())
        edges.push_back({i, static_cast<uint8_t>(other)});
    }
  if (edges.size() > 6) return "too many codes on edges to tell";
  const double allowed = 1e-6 * exact.norm + 1e-12;  // a flipped code moves values by 1e-3 norms
  for (const int up : {0, -1, 1}) {
    const auto their_norm = static_cast<uint16_t>(norm + up);
    if (!WhyNormDiffers(exact.norm, norm, their_norm).empty()) continue;
    for (size_t subset = 0; subset < (size_t{1} << edges.size()); ++subset) {
      std::vector<uint8_t> chosen = codes;
      for (size_t e = 0; e < edges.size(); ++e)
        if (subset >> e & 1) chosen[edges[e].at] = edges[e].code;
      const std::vector<float> values = Values(chosen, their_norm, codebook, w.size());
      if (Mismatch(values, theirs, 0, allowed).empty()) {
        *flips += static_cast<size_t>(__builtin_popcountll(subset)) + (up != 0);
        return "";
      }
    }
  }
  return Mismatch(Values(codes, norm, codebook, w.size()), theirs, 0, allowed);
}

TEST(QatWeights, QuantisedValuesAreUpstreamsOutsideMidpoints) {
  for (const std::string bits : {"4", "2"}) {
    const Npz want = ReferenceNpz("tiny/cq_params_" + bits + ".npz");
    const Checkpoint base = ReferenceModel("tiny");
    const ParamArrays<float> params(base.params);
    size_t groups = 0, flips = 0;
    for (const ParamSpec& spec : ModelParams(base.config)) {
      if (!want.count(spec.path)) continue;
      const std::vector<float> theirs = want.at(spec.path).As<float>();
      const std::vector<float>& w = params.At(spec.path);
      const auto cols = static_cast<size_t>(spec.shape.back());
      const auto in = static_cast<size_t>(spec.shape[spec.shape.size() - 2]);
      const size_t length = spec.grouped_on_rows ? cols : in;
      const size_t stride = spec.grouped_on_rows ? 1 : cols;
      for (size_t line = 0; line < w.size() / length; ++line) {
        const size_t start =
            spec.grouped_on_rows ? line * cols : line / cols * in * cols + line % cols;
        for (size_t g = 0; g < length; g += kGroup) {
          std::vector<float> ours, reference;
          for (size_t i = g; i < std::min(length, g + kGroup); ++i) {
            ours.push_back(w[start + i * stride]);
            reference.push_back(theirs[start + i * stride]);
          }
          EXPECT_EQ("", WhyNotQuantised(ours, reference, ParseBits(bits).value(), &flips))
              << spec.path << " line " << line << " group " << g / kGroup;
          ++groups;
        }
      }
    }
    EXPECT_GT(groups, 1000u);
    EXPECT_LE(flips, 5u) << "midpoints are rare";
  }
}

/// Row-major [K, N] out of packed panels of floats: the identity times them is exact.
std::vector<float> Unpacked(const Kernels& k, const float* panels, size_t K, size_t N) {
  std::vector<float> identity(K * K), out(K * N);
  for (size_t i = 0; i < K; ++i) identity[i * K + i] = 1;
  k.gemm(K, N, K, identity.data(), K, 1, panels, out.data(), N, false);
  return out;
}

TEST(QatWeights, WhatTheExecutorMultipliesWithIsTheStraightThroughValue) {
  for (const Isa isa : SupportedIsas()) {
    Loaded m("tiny", isa, QatNumerics(ReferenceModel("tiny").config, "4"));
    const Dims d(m.base.config);
    const ParamArrays<float> params(m.base.params);
    const ModelView<const float> view = params.View(m.base.config);
    const auto straight_through = [](std::vector<float> row, std::vector<float>* all) {
      std::vector<float> q(row.size());
      FakeQuantizeRow(row, q, Bits::k4, kGroup);
      for (size_t i = 0; i < row.size(); ++i) row[i] += q[i] - row[i];
      all->insert(all->end(), row.begin(), row.end());
    };
    std::vector<float> table;
    for (size_t v = 0; v < d.V; ++v) {
      const std::span<const float> row = view.embedding.RowSpan(v);
      straight_through({row.begin(), row.end()}, &table);
    }
    EXPECT_EQ(table, std::vector<float>(m.weights.embedding().data(),
                                        m.weights.embedding().data() + d.V * d.D));
    for (size_t l = 0; l < d.L; ++l) {
      const std::vector<float> qkvg_t =
          Unpacked(m.weights.kernels(), m.weights.layer(l).qkvg_t.data(), d.NQ, d.D);
      std::vector<float> got, want;
      const MatView<const float> q = view.blocks[l].q;
      for (size_t o = 0; o < d.A; ++o) {
        std::vector<float> column;
        for (size_t i = 0; i < d.D; ++i) {
          column.push_back(q(i, o));
          got.push_back(qkvg_t[o * d.D + i]);
        }
        straight_through(column, &want);
      }
      EXPECT_EQ(got, want) << l;
    }
  }
}

}  // namespace
}  // namespace needle
