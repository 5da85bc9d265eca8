// Every batch of an epoch in every packing. Minutes, not seconds: a few of the batches are in
// packing_test.cc.
#include <gtest/gtest.h>

#include "exec/packing_support.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

TEST(PackingEpoch, EveryBatchGivesTheSameLossAndGradientsInEveryPacking) {
  const Epoch epoch;
  Adapted m("tiny", {});
  ASSERT_EQ(epoch.batches(), 45u);
  for (size_t b = 0; b < epoch.batches(); ++b)
    ExpectPackingsAgree(m, epoch, b, kPackedLoss, kPackedGradient);
}

TEST(PackingEpoch, EveryBatchGivesNearlyTheSameWhenQuantised) {
  const Epoch epoch;
  Adapted m("tiny", QatNumerics(ReferenceModel("tiny").config, "4"));
  for (size_t b = 0; b < epoch.batches(); ++b)
    ExpectPackingsAgree(m, epoch, b, kPackedQatLoss, kPackedQatGradient);
}

}  // namespace
}  // namespace needle
