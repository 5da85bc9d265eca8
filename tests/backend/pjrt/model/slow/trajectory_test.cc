// Whole runs, and single steps of each.
#include "backend/pjrt/model/trajectory_cases.h"

namespace needle::test {
namespace {

/// The same cases, for single steps.
class PjrtStoredAdapter : public PjrtTrajectory {};

TEST_P(PjrtStoredAdapter, FromTheStoredAdapterTheNextStepsLossIsUpstreams) {
  const TrajectoryCase& c = GetParam();
  for (const int after : {1, 2, 5}) {
    const std::string prefix = "after" + std::to_string(after) + "/";
    ASSERT_TRUE(backend_->SetState(StateOf(*backend_, npz_, prefix)).ok());
    const json::Value& next = run_.Find("step")->items().at(static_cast<size_t>(after));
    std::vector<int32_t> rows;
    for (const json::Value& row : next.Find("rows")->items())
      rows.push_back(static_cast<int32_t>(row.as_int64().value()));
    const Result<double> loss = backend_->Evaluate(ForestOf(examples_, rows));
    ASSERT_TRUE(loss.ok()) << loss.error().message();
    const double want = next.Find("loss")->as_double();
    EXPECT_NEAR(*loss, want, c.next_loss * want) << after;
  }
}

const TrajectoryCase kCases[] = {
    {"tiny", "none", "traj_none", 2e-5, 2e-5, 2e-6},
    {"alt", "none", "traj_none", 2e-5, 2e-5, 2e-6},
    {"tiny", "4", "traj_4", 1e-4, 3e-3, 1e-4},
    {"alt", "map", "traj_auto", 5e-4, 2e-2, 5e-4},
};
INSTANTIATE_TEST_SUITE_P(Reference, PjrtTrajectory, testing::ValuesIn(kCases), NameOfCase);
INSTANTIATE_TEST_SUITE_P(Reference, PjrtStoredAdapter, testing::ValuesIn(kCases), NameOfCase);

}  // namespace
}  // namespace needle::test
