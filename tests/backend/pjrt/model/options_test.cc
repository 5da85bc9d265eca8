// What the options of a backend refuse; what they change is in the slow program.
#include <gtest/gtest.h>

#include "backend/pjrt/model/on_plugin.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

TEST(PjrtOptions, MoreDevicesThanThereAreIsASentence) {
  NEEDLE_NEED_PLUGIN(CpuPlugin());
  PjrtBackendOptions options = SmallPjrtLora();
  options.devices = 3;
  const auto made = MakePjrtBackend(CpuClient(CpuPlugin(), 2), ReferenceModel("tiny"), options);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
  EXPECT_NE(made.error().message().find("3 devices"), std::string::npos);
}

}  // namespace
}  // namespace needle
