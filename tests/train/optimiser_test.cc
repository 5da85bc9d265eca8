// The schedule and the optimiser against upstream's arrays.
#include <gtest/gtest.h>

#include "kernels/kernels.h"
#include "ops/adamw.h"
#include "support/mismatch.h"
#include "support/npz.h"
#include "train/schedule.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

TEST(Schedule, LearningRatesAreUpstreams) {
  size_t seen = 0;
  for (const auto& [name, array] : ReadNpz(Golden("ops/optim.npz"))) {
    if (name.rfind("lr/", 0) != 0) continue;
    ++seen;
    const float peak = std::stof(name.substr(3));
    const size_t total_at = name.find('_') + 1, warmup_at = name.find("_w") + 2;
    const int64_t total = std::stoll(name.substr(total_at));
    const int64_t warmup = std::stoll(name.substr(warmup_at));
    EXPECT_EQ(WarmupSteps(total), warmup) << name;
    const std::vector<float> want = array.As<float>();
    std::vector<float> got;
    for (size_t k = 0; k < want.size(); ++k)
      got.push_back(LearningRate(peak, static_cast<int64_t>(k), warmup, total));
    // A float32 cosine of one or two units in the last place.
    EXPECT_EQ("", Mismatch(got, want, 3e-7, 0)) << name;
    EXPECT_EQ(got[0], total == 1 ? peak : 0.0f) << "the first update of a warm-up has rate 0";
    EXPECT_FLOAT_EQ(got[static_cast<size_t>(warmup)], peak) << name;
  }
  EXPECT_EQ(seen, 7u);
}

/// Upstream's six steps: clipping (every second gradient is longer than 1), moments, decay.
template <class Update>
void ExpectUpstreamsSteps(const Update& update) {
  const Npz golden = ReadNpz(Golden("ops/optim.npz"));
  const auto both = [&](int step, const std::string& what) {
    const std::string at = "adam/" + std::to_string(step) + "/" + what + "_";
    std::vector<float> v = golden.at(at + "a").As<float>(), b = golden.at(at + "b").As<float>();
    v.insert(v.end(), b.begin(), b.end());
    return v;
  };
  const AdamWOptions options;
  std::vector<float> p = both(0, "param"), u = both(0, "update");
  for (size_t i = 0; i < p.size(); ++i) p[i] -= u[i];
  std::vector<float> m(p.size()), v(p.size());
  size_t clipped = 0;
  for (int step = 0; step < 6; ++step) {
    const std::vector<float> g = both(step, "grad"), before = p;
    double squares = 0;
    for (const float x : g) squares += double{x} * double{x};
    const auto norm = static_cast<float>(std::sqrt(squares));
    clipped += norm > options.clip;
    const float lr = LearningRate(1e-2f, step, 1, 6);
    update(options, ScalarsOf(options, lr, step + 1), norm, g, p, m, v);
    EXPECT_EQ("", Mismatch(p, both(step, "param"), 3e-7, 0)) << step;
    std::vector<float> moved(p.size());
    for (size_t i = 0; i < p.size(); ++i) moved[i] = p[i] - before[i];
    // The difference of two parameters of size 1 carries their rounding.
    EXPECT_EQ("", Mismatch(moved, both(step, "update"), 0, 3e-7)) << step;
  }
  EXPECT_EQ(clipped, 3u);
}

TEST(AdamW, SixStepsAreUpstreamsByTheMeaningOfTheOperation) {
  ExpectUpstreamsSteps([](const AdamWOptions& o, const UpdateScalars& s, float norm,
                          const std::vector<float>& g, std::vector<float>& p, std::vector<float>& m,
                          std::vector<float>& v) { AdamWUpdate(o, s, norm, g, p, m, v); });
}

TEST(AdamW, SixStepsAreUpstreamsByEveryKernel) {
  for (const Isa isa : SupportedIsas())
    ExpectUpstreamsSteps(
        [&](const AdamWOptions& o, const UpdateScalars& s, float norm, const std::vector<float>& g,
            std::vector<float>& p, std::vector<float>& m,
            std::vector<float>& v) { KernelsFor(isa).adamw(o, s, norm, g, p, m, v); });
}

TEST(AdamW, BiasCorrectionsAreFloat32) {
  const AdamWOptions options;
  const UpdateScalars s = ScalarsOf(options, 1, 3);
  EXPECT_EQ(s.c1, 1.0f - std::pow(0.9f, 3.0f));
  EXPECT_EQ(s.c2, 1.0f - std::pow(0.999f, 3.0f));
  EXPECT_NE(s.c2, static_cast<float>(1 - std::pow(0.999, 3)));  // double is 1e-5 away
}

}  // namespace
}  // namespace needle
