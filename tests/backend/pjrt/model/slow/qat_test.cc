// Quantisation-aware numerics on the CPU plugin against upstream's, with the native engine's
// tolerances (tests/exec/qat_test.cc says where they come from).
#include <gtest/gtest.h>

#include "backend/pjrt/model/on_plugin.h"
#include "support/mismatch.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

class PjrtQat : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { NEEDLE_NEED_PLUGIN(CpuPlugin()); }
};

TEST_P(PjrtQat, LossAndLoraGradientsAreUpstreams) {
  const Npz want = ReferenceNpz(GetParam() + "/grads.npz");
  const Npz init = ReferenceNpz(GetParam() + "/lora_init.npz");
  const Checkpoint base = ReferenceModel(GetParam());
  const Forest forest = BatchOf(want.at("ids"), want.at("mask")).Build(Packing::kChain);
  size_t modes = 0;
  for (const QatMode& mode : kQatModes) {
    const std::string at = std::string(mode.name) + "/";
    if (!want.count(at + "loss")) continue;
    ++modes;
    PjrtBackendOptions options = SmallPjrtLora();
    options.numerics = QatNumerics(base.config, mode.name);
    const auto backend = MakeOn(CpuClient(CpuPlugin()), base, options);
    ASSERT_NE(backend, nullptr);
    ASSERT_TRUE(backend->SetState(StateOf(*backend, init, "")).ok());
    const double wanted = want.at(at + "loss").As<double>()[0];
    // Four-bit keys and values (alt) flip by steps sixteen times as wide as activations do.
    const double allowed = base.config.kv_bits < 8 ? 5e-4 : mode.loss;
    const Result<double> loss = backend->Evaluate(forest);
    ASSERT_TRUE(loss.ok()) << loss.error().message();
    EXPECT_NEAR(*loss, wanted, allowed * wanted) << mode.name;
    RecordProperty(std::string("loss_") + mode.name, std::to_string(*loss / wanted - 1));
    const auto grads = backend->GradientsOf(forest);
    ASSERT_TRUE(grads.ok()) << grads.error().message();
    for (const auto& [name, got] : *grads)
      EXPECT_LE(RelativeL2(got, want.at(at + name).As<float>()), 0.05) << mode.name << " " << name;
  }
  EXPECT_EQ(modes, GetParam() == "tiny" || GetParam() == "alt" ? 3u : 1u);
}

INSTANTIATE_TEST_SUITE_P(Reference, PjrtQat, testing::Values("tiny", "alt", "d128"),
                         [](const auto& test) { return test.param; });

TEST(PjrtQatForward, LogitsOfFourBitsAreUpstreams) {
  NEEDLE_NEED_PLUGIN(CpuPlugin());
  const Npz want = ReferenceNpz("tiny/forward_q4.npz");
  std::vector<int32_t> ids = want.at("ids").As<int32_t>();
  ids.resize(static_cast<size_t>(want.at("ids").shape[1]));
  const Checkpoint base = ReferenceModel("tiny");
  PjrtBackendOptions options = SmallPjrtLora();  // B is zero: the base's own weights
  options.numerics = QatNumerics(base.config, "4");
  const auto backend = MakeOn(CpuClient(CpuPlugin()), base, options);
  ASSERT_NE(backend, nullptr);
  const Result<std::vector<float>> logits = backend->TargetLogits(AskingFor(ids, 0));
  ASSERT_TRUE(logits.ok()) << logits.error().message();
  const std::vector<float> wanted = want.at("logits").As<float>();
  ASSERT_EQ(logits->size(), wanted.size());
  EXPECT_LE(RelativeL2(*logits, wanted), 5e-3);
  EXPECT_LE(RelativeMax(*logits, wanted), 2e-2);
}

}  // namespace
}  // namespace needle
