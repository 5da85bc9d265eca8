// The declarations of pjrt_abi.h against the published header (that of interface 0.81, which the
// wheel xla-cpu-pjrt holds): each offset, size and number. Skipped where the build found no header.
#include <gtest/gtest.h>

#include <string>

#include "backend/pjrt/pjrt_abi.h"
#include "backend/pjrt/published_abi.h"

namespace needle::pjrt {
namespace {

TEST(PjrtAbi, HasSlotStopsAtTheEndOfTheTable) {
  abi::Api api = {};
  api.executable_get_compiled_memory_stats = [](auto*) -> abi::Error* { return nullptr; };
  api.struct_size = sizeof(api);
  EXPECT_TRUE(abi::HasSlot(api, &abi::Api::executable_get_compiled_memory_stats));
  EXPECT_FALSE(abi::HasSlot(api, &abi::Api::client_create));  // there, but empty
  api.struct_size = sizeof(api) - 1;
  EXPECT_FALSE(abi::HasSlot(api, &abi::Api::executable_get_compiled_memory_stats));
}

const AbiRow kOurs[] = {
#define STRUCT(Ours, Theirs) {#Ours, 0, abi::kStructSize<abi::Ours>},
#define FIELD(Ours, ours, Theirs, theirs) \
  {#Ours "." #ours, offsetof(abi::Ours, ours), sizeof(abi::Ours::ours)},
#define SLOT(ours, theirs) {#ours, offsetof(abi::Api, ours), sizeof(abi::Api::ours)},
#define NUMBER(ours, theirs) {#ours, static_cast<size_t>(abi::ours), 0},
#include "backend/pjrt/abi_rows.inc"
};

TEST(PjrtAbi, IsThatOfThePublishedHeader) {
#ifndef NEEDLE_PJRT_HEADER
  GTEST_SKIP() << "no pjrt_c_api.h; scripts/pjrt_plugins.sh installs it, then configure again";
#else
  ASSERT_EQ(std::size(kOurs), needle_published_abi_rows);
  for (size_t i = 0; i < std::size(kOurs); ++i) {
    const AbiRow& ours = kOurs[i];
    const AbiRow& theirs = needle_published_abi[i];
    ASSERT_STREQ(ours.name, theirs.name);
    EXPECT_EQ(ours.place, theirs.place) << ours.name;
    EXPECT_EQ(ours.size, theirs.size) << ours.name;
  }
#endif
}

}  // namespace
}  // namespace needle::pjrt
