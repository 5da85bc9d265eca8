// The smallest model; the others are in the slow program.
#include "backend/pjrt/model/parity_cases.h"

namespace needle::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Reference, PjrtParity, testing::Values("tiny"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace needle::test
