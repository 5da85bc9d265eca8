// The executor against upstream's own float32 arrays, on every configuration of the reference set.
#include <gtest/gtest.h>

#include "exec/loaded.h"
#include "support/mismatch.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

/// One padded row of ids as a chain.
Rows Chain(const std::vector<int32_t>& ids) {
  return ChainRows(ids, std::vector<int32_t>(ids.size(), static_cast<int32_t>(ids.size())));
}

class Parity : public testing::TestWithParam<std::tuple<std::string, Isa>> {
 protected:
  std::string name() const { return std::get<0>(GetParam()); }
  Isa isa() const { return std::get<1>(GetParam()); }
};

TEST_P(Parity, LogitsAndHiddenStatesOfTheForwardAreUpstreams) {
  Loaded m(name(), isa(), {});
  const Npz want = ReferenceNpz(name() + "/forward.npz");
  const std::vector<int32_t> ids = want.at("ids").As<int32_t>();
  const auto B = static_cast<size_t>(want.at("ids").shape[0]);
  const auto T = static_cast<size_t>(want.at("ids").shape[1]);
  const Dims d(m.base.config);
  const std::vector<float> all_logits = want.at("logits").As<float>();
  const auto kept = static_cast<size_t>(want.at("logits").shape[1]);  // nano keeps the last rows
  for (size_t b = 0; b < B; ++b) {
    const Rows rows = Chain(
        {ids.begin() + static_cast<long>(b * T), ids.begin() + static_cast<long>((b + 1) * T)});
    Context context;
    Activations acts;
    std::vector<float> cells(T * (d.L + 1) * d.D), logits(kept * d.V);
    m.executor.Forward(rows, context, acts, {cells.data(), T * (d.L + 1), d.D});
    std::vector<int32_t> last;
    for (size_t t = T - kept; t < T; ++t) last.push_back(static_cast<int32_t>(t));
    m.executor.Logits(rows, acts, last, {logits.data(), kept, d.V});
    const std::span<const float> wanted{all_logits.data() + b * kept * d.V, kept * d.V};
    // float32 in another order of summation: upstream itself is 2.5e-7 from float64.
    EXPECT_LE(RelativeMax(logits, wanted), 5e-6) << "sequence " << b;
    if (b > 0 || !want.count("hidden0")) continue;
    const std::vector<float> hidden = want.at("hidden0").As<float>();
    for (size_t l = 0; l < d.L; ++l) {
      std::vector<float> got;
      for (size_t t = 0; t < T; ++t) {
        const float* cell = &cells[(t * (d.L + 1) + l + 1) * d.D];
        got.insert(got.end(), cell, cell + d.D);
      }
      EXPECT_LE(RelativeMax(got, std::span<const float>(&hidden[l * T * d.D], T * d.D)), 5e-6)
          << "layer " << l;
    }
  }
}

class ParityOfGradients : public Parity {};
TEST_P(ParityOfGradients, OfLoraWithoutQuantisationAreUpstreams) {
  Loaded m(name(), isa(), {});
  const Npz want = ReferenceNpz(name() + "/grads.npz");
  const float scale = want.at("scale").As<float>()[0];
  LoraArrays lora(m.base, 4, scale), grads(m.base, 4, scale);
  lora.Load(ReferenceNpz(name() + "/lora_init.npz"), "");
  const LoraView<const float> view = lora.const_view();
  m.weights.PackAdapted(view, m.pool);
  const Batch batch = BatchOf(want.at("ids"), want.at("mask"));
  GradientSink sink;
  sink.lora = &view;
  sink.lora_grad = &grads.view();
  const double loss = m.executor.Loss(batch.Build(Packing::kChain), &sink);
  EXPECT_NEAR(loss, want.at("none/loss").As<double>()[0], 2e-6 * loss);
  for (const auto& [path, got] : grads.arrays())
    // Sums of a few thousand float32 products in another order.
    EXPECT_LE(RelativeL2(got, want.at("none/" + path).As<float>()), 1e-5) << path;
}

std::string CaseName(const testing::TestParamInfo<std::tuple<std::string, Isa>>& info) {
  return std::get<0>(info.param) + "_" + std::string(Name(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(Reference, Parity,
                         testing::Combine(testing::Values("tiny", "alt", "plain", "d128", "nano"),
                                          testing::ValuesIn(SupportedIsas())),
                         CaseName);
// The reference set holds no gradients of nano.
INSTANTIATE_TEST_SUITE_P(Reference, ParityOfGradients,
                         testing::Combine(testing::Values("tiny", "alt", "plain", "d128"),
                                          testing::ValuesIn(SupportedIsas())),
                         CaseName);

}  // namespace
}  // namespace needle
