// Runs on the CPU plugin against upstream's of twenty steps, and against the CPU engine: the same
// data, order and settings as tests/train/trajectory_test.cc, which says where the tolerances come
// from. The tests; each program that includes them names its cases.
#pragma once

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/pjrt/model/on_plugin.h"
#include "base/file.h"
#include "json/json.h"
#include "support/mismatch.h"
#include "train/run_support.h"

namespace needle::test {

struct TrajectoryCase {
  const char* model;
  const char* mode;  // "none", "4" or "map" (the config's own)
  const char* file;
  double first_losses;  // steps 1 to 3
  double losses;        // all twenty, and validation
  double next_loss;     // one step's, from the very adapter that upstream had
  size_t steps = 20;    // fewer stop the run there, before the first validation
};

class PjrtTrajectory : public testing::TestWithParam<TrajectoryCase> {
 protected:
  void SetUp() override {
    NEEDLE_NEED_PLUGIN(CpuPlugin());
    const TrajectoryCase& c = GetParam();
    base_ = ReferenceModel(c.model);
    npz_ = ReferenceNpz(std::string(c.model) + "/" + c.file + ".npz");
    const Result<std::string> text =
        ReadTextFile(Golden(std::string(c.model) + "/" + c.file + ".json"));
    ASSERT_TRUE(text.ok());
    run_ = *json::Parse(*text);
    examples_ = ExamplesOf(npz_.at("seqs"), npz_.at("masks"));
    PjrtBackendOptions options = SmallPjrtLora();
    options.numerics = QatNumerics(base_.config, c.mode);
    backend_ = MakeOn(CpuClient(CpuPlugin()), base_, options);
    ASSERT_NE(backend_, nullptr);
  }
  Checkpoint base_;
  Npz npz_;
  json::Value run_;
  std::vector<EncodedExample> examples_;
  std::unique_ptr<PjrtBackend> backend_;
};

TEST_P(PjrtTrajectory, StepsAreUpstreamsAndOnlyLossAndNormCross) {
  const TrajectoryCase& c = GetParam();
  TrainOptions options = ReferenceRun();
  Recorder recorder;
  if (c.steps < 20) recorder.stop_after = static_cast<int64_t>(c.steps);
  const std::shared_ptr<pjrt::Client> client = CpuClient(CpuPlugin());
  int64_t before = client->bytes_to_host();
  recorder.on_step = [&](const StepEvent& e) {
    if (e.step % 5 != 1) {  // not the first after an epoch's validation
      EXPECT_EQ(client->bytes_to_host() - before, 8) << "a loss and a norm, step " << e.step;
    }
    before = client->bytes_to_host();
  };
  const Result<TrainOutcome> outcome = Train(*backend_, examples_, {}, options, recorder);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message();
  const std::vector<json::Value>& steps = run_.Find("step")->items();
  ASSERT_EQ(steps.size(), 20u);
  ASSERT_EQ(recorder.steps.size(), c.steps);
  double worst = 0;
  for (size_t k = 0; k < c.steps; ++k) {
    const double loss = steps[k].Find("loss")->as_double();
    worst = std::max(worst, std::abs(recorder.steps[k].loss / loss - 1));
    EXPECT_NEAR(recorder.steps[k].loss, loss, (k < 3 ? c.first_losses : c.losses) * loss)
        << "step " << k + 1;
    if (steps[k].Find("grad_norm")->is_null()) continue;
    const double norm = steps[k].Find("grad_norm")->as_double();
    const bool exact = std::string(c.mode) == "none";
    EXPECT_NEAR(recorder.steps[k].grad_norm, norm, (exact ? 2e-4 : 0.1) * norm) << "step " << k + 1;
  }
  RecordProperty("worst_loss", std::to_string(worst));
  if (c.steps < 20) return;
  const std::vector<json::Value>& validation = run_.Find("val")->items();
  ASSERT_EQ(recorder.epochs.size(), validation.size());
  for (size_t e = 0; e < validation.size(); ++e)
    EXPECT_NEAR(recorder.epochs[e].val_loss.value(), validation[e].as_double(),
                c.losses * validation[e].as_double());
  if (std::string(c.mode) != "none") return;  // code flips part the adapters
  const TrainState reached = *backend_->State();
  for (const auto& [name, got] : reached.values) {
    std::vector<float> moved = got, wanted = npz_.at("final/" + name).As<float>();
    const std::vector<float> init = npz_.at("init/" + name).As<float>();
    for (size_t i = 0; i < moved.size(); ++i) moved[i] -= init[i], wanted[i] -= init[i];
    EXPECT_LE(RelativeL2(moved, wanted), 1e-3) << name;
  }
}

inline std::string NameOfCase(const testing::TestParamInfo<TrajectoryCase>& test) {
  return std::string(test.param.model) + "_" + test.param.mode;
}

}  // namespace needle::test
