#include "base/array_memory.h"

#include <new>

#include "base/os.h"

namespace needle {
namespace {

constexpr size_t kCacheLine = 64, kLargePage = size_t{2} << 20, kLargeArray = kLargePage;

std::align_val_t AlignmentOf(size_t bytes) {
  return std::align_val_t{bytes >= kLargeArray ? kLargePage : kCacheLine};
}

}  // namespace

void* AllocateArray(size_t bytes) {
  void* array = ::operator new(bytes, AlignmentOf(bytes));
  if (bytes >= kLargeArray) os::PreferLargePages(array, bytes);
  return array;
}

void FreeArray(void* array, size_t bytes) { ::operator delete(array, AlignmentOf(bytes)); }

}  // namespace needle
