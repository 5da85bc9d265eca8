#include "backend/pjrt/op_check.h"

#include <gtest/gtest.h>

#include "support/fake_pjrt.h"
#include "support/pjrt.h"
#include "support/scratch.h"

namespace needle::pjrt {
namespace {

std::unique_ptr<Client> ClientOf(const std::string& path) {
  Result<std::shared_ptr<Plugin>> plugin = Plugin::Load(path);
  if (!plugin.ok()) throw std::runtime_error(plugin.error().message());
  Result<std::unique_ptr<Client>> client = Client::Create(*plugin, {});
  if (!client.ok()) throw std::runtime_error(client.error().message());
  return *std::move(client);
}

/// The operations that came out wrong.
std::vector<std::string> Wrong(const std::string& path) {
  std::vector<std::string> wrong;
  const std::unique_ptr<Client> client = ClientOf(path);
  for (const OpCheck& check : CheckOperations(*client, 0))
    if (!check.ok()) wrong.push_back(check.operation + " " + check.failure);
  return wrong;
}

TEST(OpCheck, PassesOnPluginsThatComputeRightly) {
  NEEDLE_NEED_PLUGIN(test::CpuPlugin());
  EXPECT_EQ(Wrong(test::CpuPlugin()), std::vector<std::string>{});
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
