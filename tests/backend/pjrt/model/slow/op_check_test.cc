// The check of single operations: the oldest plugin, and one operation wrong at a time.
#include "backend/pjrt/op_check.h"

#include <gtest/gtest.h>

#include "backend/pjrt/wrong_operations.h"
#include "support/fake_pjrt.h"
#include "support/pjrt.h"
#include "support/scratch.h"

namespace needle::pjrt {
namespace {

TEST(OpCheck, PassesOnTheOldestPlugin) {
  NEEDLE_NEED_PLUGIN(test::OldestCpuPlugin());
  EXPECT_EQ(Wrong(test::OldestCpuPlugin()), std::vector<std::string>{});
}

TEST(OpCheck, NamesTheOneOperationThatIsWrong) {
  NEEDLE_NEED_PLUGIN(test::CpuPlugin());
  const test::ScratchFolder folder;
  for (const char* swap : {"exponential:logistic", "rsqrt:sqrt", "maximum:minimum"}) {
    const std::string name = std::string(swap).substr(0, std::string(swap).find(':'));
    const std::string path = test::PutFakePlugin(folder.File(name + ".so"),
                                                 "real=" + test::CpuPlugin() + "\nswap=" + swap);
    const std::vector<std::string> wrong = Wrong(path);
    ASSERT_FALSE(wrong.empty()) << swap;
    EXPECT_EQ(wrong.front(), name + " ");
  }
}

}  // namespace
}  // namespace needle::pjrt
