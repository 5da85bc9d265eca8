// Memory for arrays: aligned to cache lines and, where an array is large, to large pages, which the
// system is asked for (a fault for each small page costs as much as filling it, and a stream
// through them waits for addresses). Thread-safe.
#pragma once

#include <cstddef>

namespace needle {

/// Uninitialised. Without memory it does what operator new does.
void* AllocateArray(size_t bytes);
/// `bytes` as it was allocated with; nullptr is fine.
void FreeArray(void* array, size_t bytes);

}  // namespace needle
