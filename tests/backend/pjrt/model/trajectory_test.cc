// The first steps of the smallest model, without and with quantisation; whole runs are in the slow
// program.
#include "backend/pjrt/model/trajectory_cases.h"

namespace needle::test {
namespace {

const TrajectoryCase kCases[] = {
    {"tiny", "none", "traj_none", 2e-5, 2e-5, 2e-6, 4},
    {"tiny", "4", "traj_4", 1e-4, 3e-3, 1e-4, 4},
};
INSTANTIATE_TEST_SUITE_P(Reference, PjrtTrajectory, testing::ValuesIn(kCases), NameOfCase);

}  // namespace
}  // namespace needle::test
