// The probe heads of the executor against upstream's float32, under every mask and quantised.
#include "exec/heads.h"

#include <gtest/gtest.h>

#include "exec/loaded.h"
#include "support/mismatch.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

class Heads : public testing::TestWithParam<std::tuple<std::string, Isa>> {};

TEST_P(Heads, EmbeddingAndConfidenceAreUpstreamsUnderEveryMask) {
  const auto& [name, isa] = GetParam();
  const Npz want = ReferenceNpz(name + "/heads.npz");
  const auto B = static_cast<size_t>(want.at("ids").shape[0]);
  const auto T = static_cast<int32_t>(want.at("ids").shape[1]);
  const std::vector<int32_t> all_ids = want.at("ids").As<int32_t>();
  const std::vector<int32_t> sinks = want.at("sink_len").As<int32_t>();
  const int32_t window = want.at("window").As<int32_t>()[0];
  for (const std::string mask : {"plain", "win", "sink", "quant"}) {
    Numerics numerics;
    if (mask == "quant") {
      numerics = QatNumerics(ReferenceModel(name).config, "4");
      numerics.quantise_weights = false;
    }
    Loaded m(name, isa, numerics);
    const Dims d(m.base.config);
    const size_t L1 = d.L + 1, O = static_cast<size_t>(m.base.config.contrastive_dim);
    const std::vector<float> emb = want.at("emb_" + mask).As<float>();
    for (size_t b = 0; b < B; ++b) {
      const auto first = all_ids.begin() + static_cast<long>(b) * T;
      const std::vector<int32_t> ids(first, first + T);
      std::vector<int32_t> key_end;
      const auto keep = std::make_unique<bool[]>(ids.size() * L1);
      for (int32_t t = 0; t < T; ++t) {
        const bool pad = ids[static_cast<size_t>(t)] == m.base.config.pad_token_id;
        const bool whole = mask == "plain" || mask == "quant" || (mask == "sink" && t < sinks[b]);
        key_end.push_back(pad ? 0 : whole ? T : std::min(T, t + window));
        std::fill_n(&keep[static_cast<size_t>(t) * L1], L1, !pad);
      }
      Context context;
      Activations acts;
      std::vector<float> cells(ids.size() * L1 * d.D);
      const MatView<float> view(cells.data(), ids.size() * L1, d.D);
      m.executor.Forward(ChainRows(ids, key_end), context, acts, view);
      const std::span<const bool> kept(keep.get(), ids.size() * L1);
      // float32 in another order of summation: upstream itself is 6e-7 from float64. Quantised,
      // activations within rounding of a code's edge flip: upstream is 1e-3 from its own float64.
      const double allowed = mask == "quant" ? 2e-3 : 5e-6;
      const std::vector<float> embedding = ContrastiveEmbedding(m.weights, view, kept);
      const std::span<const float> wanted(&emb[b * O], O);
      EXPECT_LE(RelativeMax(embedding, wanted), allowed) << mask << " " << b;
      const float conf = want.at("conf_" + mask).As<float>()[b];
      EXPECT_NEAR(ConfidenceLogit(m.weights, view, kept), conf, allowed * std::abs(conf))
          << mask << " " << b;
      if (mask == "quant") {  // nearer to upstream's quantised answer than to the plain one
        const std::vector<float> plain = want.at("emb_plain").As<float>();
        EXPECT_LT(3 * RelativeL2(embedding, wanted),
                  RelativeL2(embedding, std::span<const float>(&plain[b * O], O)));
      }
      if (std::count(ids.begin(), ids.end(), m.base.config.pad_token_id) > 0) continue;
      EXPECT_EQ(ConfidenceLogit(m.weights, view), ConfidenceLogit(m.weights, view, kept));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, Heads,
                         testing::Combine(testing::Values("tiny", "alt"),
                                          testing::ValuesIn(SupportedIsas())),
                         [](const auto& test) {
                           return std::get<0>(test.param) + "_" +
                                  std::string(Name(std::get<1>(test.param)));
                         });

}  // namespace
}  // namespace needle
