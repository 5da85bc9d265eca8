// Every way to write the step: {scanned, unrolled} x {saved, remat} x {plain, blocked attention} x
// {LoRA, all parameters}, five steps each, against the CPU engine.
#include <gtest/gtest.h>

#include "backend/pjrt/model/on_plugin.h"
#include "support/mismatch.h"
#include "train/run_support.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

struct Way {
  bool unroll, remat, blocked, all;
};

std::vector<Way> Ways() {
  std::vector<Way> out;
  for (const bool all : {false, true})
    for (const bool unroll : {false, true})
      for (const bool remat : {false, true})
        for (const bool blocked : {false, true}) out.push_back({unroll, remat, blocked, all});
  return out;
}

std::string NameOf(const testing::TestParamInfo<Way>& info) {
  const Way& w = info.param;
  return std::string(w.unroll ? "Unrolled" : "Scanned") + (w.remat ? "Remat" : "Saved") +
         (w.blocked ? "Blocked" : "Plain") + (w.all ? "All" : "Lora");
}

struct FiveSteps {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> moved;
};

FiveSteps StepsOf(Backend& backend) {
  const std::vector<EncodedExample> examples = ShortExamples(8, 64);
  FiveSteps out;
  const auto start = backend.State()->values;
  const AdamWOptions adamw;
  for (int t = 1; t <= 5; ++t) {
    const int32_t first = t % 2 * 4;
    const std::vector<int32_t> rows = {first, first + 1, first + 2, first + 3};
    const Result<StepResult> step =
        backend.Step(ForestOf(examples, rows), ScalarsOf(adamw, 2e-3f, t));
    EXPECT_TRUE(step.ok()) << (step.ok() ? "" : step.error().message());
    if (!step.ok()) return out;
    out.losses.push_back(step->loss);
    out.norms.push_back(step->grad_norm);
  }
  out.moved = backend.State()->values;
  for (auto& [name, values] : out.moved)
    for (size_t i = 0; i < values.size(); ++i) values[i] -= start.at(name)[i];
  return out;
}

const FiveSteps& OnTheCpuEngine(bool all) {
  static std::map<bool, FiveSteps> runs;
  if (const auto at = runs.find(all); at != runs.end()) return at->second;
  CpuBackendOptions options = SmallLora();
  if (all) options.trained = TrainedSet::kAll;
  return runs[all] = StepsOf(*Cpu(ReferenceModel("tiny"), options));
}

class PjrtMatrix : public testing::TestWithParam<Way> {
 protected:
  void SetUp() override { NEEDLE_NEED_PLUGIN(CpuPlugin()); }
};

TEST_P(PjrtMatrix, FiveStepsAreTheCpuEngines) {
  const Way& way = GetParam();
  PjrtBackendOptions options = SmallPjrtLora();
  options.unroll = way.unroll;
  options.remat = way.remat;
  options.attention = way.blocked ? pjrt::Attention::kBlocked : pjrt::Attention::kPlain;
  if (way.all) options.trained = TrainedSet::kAll;
  const auto backend = MakeOn(CpuClient(CpuPlugin()), ReferenceModel("tiny"), options);
  ASSERT_NE(backend, nullptr);
  const FiveSteps got = StepsOf(*backend);
  const FiveSteps& want = OnTheCpuEngine(way.all);
  // float32 in another order; Adam's first steps have the size of the learning rate whatever the
  // gradient's size, which amplifies the rounding of tiny gradients.
  EXPECT_EQ("", Mismatch(got.losses, want.losses, 2e-5, 0));
  EXPECT_EQ("", Mismatch(got.norms, want.norms, 2e-4, 0));
  ASSERT_EQ(got.moved.size(), want.moved.size());
  double square = 0, whole = 0;
  for (const auto& [name, values] : got.moved)
    for (size_t i = 0; i < values.size(); ++i) {
      const double w = want.moved.at(name)[i], d = values[i] - w;
      square += d * d;
      whole += w * w;
    }
  EXPECT_LE(std::sqrt(square / whole), way.all ? 1e-2 : 1e-3);
  RecordProperty("moved", std::to_string(std::sqrt(square / whole)));
}

INSTANTIATE_TEST_SUITE_P(Ways, PjrtMatrix, testing::ValuesIn(Ways()), NameOf);

}  // namespace
}  // namespace needle
