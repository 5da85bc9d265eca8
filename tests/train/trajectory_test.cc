// Twenty steps of training against upstream's own run, step by step.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/file.h"
#include "json/json.h"
#include "support/mismatch.h"
#include "train/run_support.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

/// One stored run of upstream's and how far ours may be from it, relative.
struct Case {
  const char* model;
  const char* mode;     // "none", "4" or "auto" (the config's mixed map)
  double first_losses;  // steps 1 to 3
  double losses;        // all twenty, and validation
  double next_loss;     // one step's, from the very adapter that upstream had
};
// none: float32 in another order; 2e-5 after twenty steps of Adam, whose first steps have the size
// of the learning rate whatever the gradient's size, so that rounding of tiny gradients is
// amplified. Quantised: values within rounding of a code's edge flip, which moves a weight by a
// whole step; upstream itself, on another instruction set, is 4.5e-3 from its own run of a mixed
// case. alt has four-bit keys and values: one flip there moves the loss of an example by 4e-4, our
// own instruction sets give losses 1.3e-4 apart from the same adapter (with upstream's between them
// or beside them), and upstream's float32 is 6e-5 from its float64. Upstream's own trainer, run on
// another machine, is 3.9e-4 from its stored third step (2.2e-4 when XLA is held to AVX). So 1e-4
// cannot be promised there.
const Case kCases[] = {
    {"tiny", "none", 2e-5, 2e-5, 2e-6},
    {"alt", "none", 2e-5, 2e-5, 2e-6},
    {"tiny", "4", 1e-4, 3e-3, 1e-4},
    {"alt", "auto", 5e-4, 2e-2, 5e-4},
};

CpuBackendOptions OptionsFor(const Case& c, const ModelConfig& config) {
  CpuBackendOptions o = SmallLora();
  if (std::string(c.mode) == "none") return o;
  o.numerics.quantise_weights = true;
  o.numerics.act_bits = config.act_bits;
  if (config.kv_bits < 8) o.numerics.kv_bits = ParseBits(std::to_string(config.kv_bits)).value();
  o.numerics.bits =
      BitMap::Parse(std::string(c.mode) == "auto" ? config.weight_bits : c.mode).value();
  return o;
}

json::Value ReadRun(const Case& c) {
  const Result<std::string> text =
      ReadTextFile(Golden(std::string(c.model) + "/traj_" + c.mode + ".json"));
  EXPECT_TRUE(text.ok());
  return *json::Parse(*text);
}

Npz ReadArrays(const Case& c) {
  return ReferenceNpz(std::string(c.model) + "/traj_" + c.mode + ".npz");
}

using Values = std::map<std::string, std::vector<float>>;

/// The adapter stored at `when` ("init", "after1", ..., "final").
Values StoredAdapter(const Npz& npz, const std::string& when) {
  Values out;
  for (const auto& [name, array] : npz)
    if (name.rfind(when + "/", 0) == 0) out[name.substr(when.size() + 1)] = array.As<float>();
  return out;
}

/// Distance in units in the last place.
int64_t Ulps(float a, float b) {
  const auto ordered = [](float x) {
    int32_t i;
    std::memcpy(&i, &x, 4);
    return static_cast<int64_t>(i < 0 ? std::numeric_limits<int32_t>::min() - i : i);
  };
  return std::abs(ordered(a) - ordered(b));
}

std::vector<float> Minus(std::vector<float> a, const std::vector<float>& b) {
  for (size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

class Trajectory : public testing::TestWithParam<Case> {};

TEST_P(Trajectory, TwentyStepsAreUpstreams) {
  const Case& c = GetParam();
  const Checkpoint base = ReferenceModel(c.model);
  const json::Value run = ReadRun(c);
  const Npz npz = ReadArrays(c);
  const std::vector<EncodedExample> examples = ExamplesOf(npz.at("seqs"), npz.at("masks"));
  const std::unique_ptr<Backend> backend = Cpu(base, OptionsFor(c, base.config));

  const Values init = StoredAdapter(npz, "init");
  ASSERT_EQ(init.size(), backend->State()->values.size());
  const TrainState reached = *backend->State();
  for (const auto& [name, got] : reached.values) {
    const std::vector<float>& want = init.at(name);
    ASSERT_EQ(got.size(), want.size()) << name;
    int64_t worst = 0;
    for (size_t i = 0; i < got.size(); ++i) worst = std::max(worst, Ulps(got[i], want[i]));
    EXPECT_LE(worst, 2) << name;  // erfinv's fused multiply-adds
  }

  TrainOptions options = ReferenceRun();
  Recorder recorder;
  recorder.on_step = [&](const StepEvent& e) {
    std::vector<Sequence> sequences;
    for (const int32_t row : e.rows)
      sequences.push_back(examples[static_cast<size_t>(row)].sequence());
    EXPECT_EQ(e.tokens_computed, DistinctPrefixes(sequences)) << e.step;
  };
  const Result<TrainOutcome> outcome = Train(*backend, examples, {}, options, recorder);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message();

  const std::vector<json::Value>& steps = run.Find("step")->items();
  ASSERT_EQ(recorder.steps.size(), steps.size());
  ASSERT_EQ(recorder.plan.warmup_steps, run.Find("warmup")->as_int64().value());
  for (size_t k = 0; k < steps.size(); ++k) {
    const StepEvent& got = recorder.steps[k];
    const json::Value& want = steps[k];
    std::vector<int32_t> rows;
    for (const json::Value& row : want.Find("rows")->items())
      rows.push_back(static_cast<int32_t>(row.as_int64().value()));
    EXPECT_EQ(recorder.rows[k], rows) << "step " << k + 1;
    EXPECT_EQ(got.target_tokens, want.Find("target_tokens")->as_double());
    EXPECT_NEAR(got.lr, want.Find("lr")->as_double(), 3e-7 * 5e-3) << "step " << k + 1;
    const double loss = want.Find("loss")->as_double();
    EXPECT_NEAR(got.loss, loss, (k < 3 ? c.first_losses : c.losses) * loss) << "step " << k + 1;
    if (want.Find("grad_norm")->is_null()) continue;
    // The norm follows the loss's direction less closely than the loss itself.
    const double norm = want.Find("grad_norm")->as_double();
    const bool exact = std::string(c.mode) == "none";
    EXPECT_NEAR(got.grad_norm, norm, (exact ? 2e-4 : 0.1) * norm) << "step " << k + 1;
  }
  const std::vector<json::Value>& validation = run.Find("val")->items();
  ASSERT_EQ(recorder.epochs.size(), validation.size());
  for (size_t e = 0; e < validation.size(); ++e)
    EXPECT_NEAR(recorder.epochs[e].val_loss.value(), validation[e].as_double(),
                c.losses * validation[e].as_double())
        << "epoch " << e + 1;
  if (std::string(c.mode) != "none") return;  // code flips part the adapters
  const Values final = StoredAdapter(npz, "final");
  const TrainState trained = *backend->State();
  for (const auto& [name, got] : trained.values) {
    const bool is_a = name.back() == 'A';
    // What training added: A minus its initial value, and B, which starts at zero.
    const std::vector<float> moved = is_a ? Minus(got, init.at(name)) : got;
    const std::vector<float> wanted = is_a ? Minus(final.at(name), init.at(name)) : final.at(name);
    EXPECT_LE(RelativeL2(moved, wanted), 1e-3) << name;
  }
}

TEST_P(Trajectory, FromTheStoredAdapterTheNextStepsLossIsUpstreams) {
  const Case& c = GetParam();
  const Checkpoint base = ReferenceModel(c.model);
  const json::Value run = ReadRun(c);
  const Npz npz = ReadArrays(c);
  const std::vector<EncodedExample> examples = ExamplesOf(npz.at("seqs"), npz.at("masks"));
  const std::unique_ptr<Backend> backend = Cpu(base, OptionsFor(c, base.config));
  for (const int after : {1, 2, 5}) {
    TrainState state = *backend->State();
    state.values = StoredAdapter(npz, "after" + std::to_string(after));
    const Status set = backend->SetState(state);
    ASSERT_TRUE(set.ok());
    const json::Value& next = run.Find("step")->items().at(static_cast<size_t>(after));
    std::vector<int32_t> rows;
    for (const json::Value& row : next.Find("rows")->items())
      rows.push_back(static_cast<int32_t>(row.as_int64().value()));
    const Result<double> loss = backend->Evaluate(ForestOf(examples, rows));
    ASSERT_TRUE(loss.ok());
    const double want = next.Find("loss")->as_double();
    // The same adapter to the bit, so only flips of codes within rounding of an edge are left.
    EXPECT_NEAR(*loss, want, c.next_loss * want) << after;
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, Trajectory, testing::ValuesIn(kCases), [](const auto& test) {
  return std::string(test.param.model) + "_" + test.param.mode;
});

}  // namespace
}  // namespace needle
