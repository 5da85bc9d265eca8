// The programs on the CPU plugin against upstream's own arrays, with the native engine's
// tolerances: the tests; each program that includes them names its models.
#pragma once

#include <gtest/gtest.h>

#include "backend/pjrt/model/on_plugin.h"
#include "support/mismatch.h"

namespace needle::test {

class PjrtParity : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { NEEDLE_NEED_PLUGIN(CpuPlugin()); }
  std::unique_ptr<PjrtBackend> Make(const PjrtBackendOptions& options) {
    return MakeOn(CpuClient(CpuPlugin()), base_, options);
  }
  Checkpoint base_ = ReferenceModel(GetParam());
};

TEST_P(PjrtParity, LogitsOfTheForwardAreUpstreams) {
  const Npz want = ReferenceNpz(GetParam() + "/forward.npz");
  const std::vector<int32_t> ids = want.at("ids").As<int32_t>();
  const auto B = static_cast<size_t>(want.at("ids").shape[0]);
  const auto T = static_cast<size_t>(want.at("ids").shape[1]);
  const auto V = static_cast<size_t>(base_.config.vocab_size);
  const std::vector<float> all = want.at("logits").As<float>();
  const auto kept = static_cast<size_t>(want.at("logits").shape[1]);  // nano keeps the last rows
  const auto backend = Make(SmallPjrtLora());
  ASSERT_NE(backend, nullptr);
  for (size_t b = 0; b < B; ++b) {
    const std::vector<int32_t> row(ids.begin() + static_cast<std::ptrdiff_t>(b * T),
                                   ids.begin() + static_cast<std::ptrdiff_t>((b + 1) * T));
    const Result<std::vector<float>> logits = backend->TargetLogits(AskingFor(row, T - kept));
    ASSERT_TRUE(logits.ok()) << logits.error().message();
    // float32 in another order of summation: upstream itself is 2.5e-7 from float64.
    EXPECT_LE(RelativeMax(*logits, std::span<const float>(&all[b * kept * V], kept * V)), 5e-6)
        << "sequence " << b;
  }
}

TEST_P(PjrtParity, LossAndLoraGradientsWithoutQuantisationAreUpstreams) {
  if (GetParam() == "nano") GTEST_SKIP() << "there are no gradients of nano to compare with";
  const Npz want = ReferenceNpz(GetParam() + "/grads.npz");
  const auto backend = Make(SmallPjrtLora());
  ASSERT_NE(backend, nullptr);
  ASSERT_TRUE(
      backend->SetState(StateOf(*backend, ReferenceNpz(GetParam() + "/lora_init.npz"), "")).ok());
  const Batch batch = BatchOf(want.at("ids"), want.at("mask"));
  for (const Packing packing : {Packing::kChain, Packing::kTree}) {
    const Forest forest = batch.Build(packing);
    const double wanted = want.at("none/loss").As<double>()[0];
    const Result<double> loss = backend->Evaluate(forest);
    ASSERT_TRUE(loss.ok()) << loss.error().message();
    EXPECT_NEAR(*loss, wanted, 2e-6 * wanted);
    const auto grads = backend->GradientsOf(forest);
    ASSERT_TRUE(grads.ok()) << grads.error().message();
    EXPECT_GT(grads->size(), 7u);
    for (const auto& [name, got] : *grads)
      // Sums of a few thousand float32 products in another order.
      EXPECT_LE(RelativeL2(got, want.at("none/" + name).As<float>()), 1e-5) << name;
  }
}

}  // namespace needle::test
