#include "backend/pjrt/op_check.h"

#include <gtest/gtest.h>

#include "backend/pjrt/wrong_operations.h"
#include "support/fake_pjrt.h"
#include "support/pjrt.h"
#include "support/scratch.h"

namespace needle::pjrt {
namespace {

TEST(OpCheck, PassesOnAPluginThatComputesRightly) {
  NEEDLE_NEED_PLUGIN(test::CpuPlugin());
  EXPECT_EQ(Wrong(test::CpuPlugin()), std::vector<std::string>{});
}

TEST(OpCheck, TellsThePluginsErrorWhenMemoryRunsOut) {
  NEEDLE_NEED_PLUGIN(test::CpuPlugin());
  const test::ScratchFolder folder;
  const std::string path =
      test::PutFakePlugin(folder.File("full.so"), "real=" + test::CpuPlugin() + "\noom-after=2");
  const std::vector<std::string> wrong = Wrong(path);
  ASSERT_FALSE(wrong.empty());
  EXPECT_NE(wrong.front().find("too little free memory"), std::string::npos) << wrong.front();
}

}  // namespace
}  // namespace needle::pjrt
