// The models beside the smallest.
#include "backend/pjrt/model/decoder_cases.h"

namespace needle::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Reference, PjrtDecoding, testing::Values("alt", "plain", "nano"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace needle::test
