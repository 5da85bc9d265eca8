// What is chosen for a device where the user chose nothing.
#include "api/device_tuning.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace needle {
namespace {

using pjrt::Kind;

std::string Chosen(Kind kind, const DeviceTuning& tuning = {}) {
  const PjrtBackendOptions o = PjrtOptionsFor(kind, /*found=*/4, tuning);
  std::string out = o.unroll ? "unrolled" : "scanned";
  out += o.remat ? " remat" : " saved";
  out += o.attention == pjrt::Attention::kBlocked ? " flash" : " plain";
  if (o.precision != hlo::Precision::kHighest) out += " rounded";
  return out + " on " + std::to_string(o.devices);
}

TEST(DeviceTuning, FollowsUpstreamWhereTheUserChoseNothing) {
  for (const Kind kind : {Kind::kCuda, Kind::kRocm, Kind::kOneapi, Kind::kTpu, Kind::kOther})
    EXPECT_EQ(Chosen(kind), "scanned remat flash on 1") << Name(kind);
  EXPECT_EQ(Chosen(Kind::kMetal), "unrolled saved plain on 1");
  EXPECT_EQ(Chosen(Kind::kXlaCpu), "scanned saved flash on 1");
}

TEST(DeviceTuning, IsWhatTheUserChoseOnEveryDevice) {
  DeviceTuning tuning;
  tuning.devices = 0;
  tuning.precision = DeviceTuning::Precision::kBf16;
  for (const Kind kind : {Kind::kCuda, Kind::kMetal, Kind::kXlaCpu}) {
    tuning.remat = tuning.unroll = tuning.flash = true;
    EXPECT_EQ(Chosen(kind, tuning), "unrolled remat flash rounded on 4") << Name(kind);
    tuning.remat = tuning.unroll = tuning.flash = false;
    EXPECT_EQ(Chosen(kind, tuning), "scanned saved plain rounded on 4") << Name(kind);
  }
}

}  // namespace
}  // namespace needle
