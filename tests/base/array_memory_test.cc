// Memory of arrays: aligned, writable to its last byte, and given back.
#include "base/array_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

namespace needle {
namespace {

TEST(ArrayMemory, IsAlignedToCacheLinesAndWhenLargeToLargePages) {
  constexpr size_t kLargePage = size_t{2} << 20, kLargeArray = 4 * kLargePage;
  for (const size_t bytes : {size_t{1}, size_t{4096}, kLargeArray - 1, kLargeArray, kLargeArray + 1,
                             3 * kLargeArray + 12345}) {
    void* array = AllocateArray(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(array) % (bytes >= kLargeArray ? kLargePage : 64), 0u);
    std::memset(array, 0x5a, bytes);
    EXPECT_EQ(static_cast<const unsigned char*>(array)[bytes - 1], 0x5a);
    FreeArray(array, bytes);
  }
  FreeArray(nullptr, kLargeArray);
}

}  // namespace
}  // namespace needle
