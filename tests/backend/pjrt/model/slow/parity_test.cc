// The models beside the smallest.
#include "backend/pjrt/model/parity_cases.h"

namespace needle::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Reference, PjrtParity, testing::Values("alt", "plain", "d128", "nano"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace needle::test
