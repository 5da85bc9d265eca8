#include "ops/engram.h"

namespace needle {

void EngramSlots(std::span<const int32_t> tokens, std::span<const int32_t> parent, int32_t t,
                 std::span<const int> orders, int heads, uint32_t slots, std::span<int32_t> out) {
  for (size_t o = 0; o < orders.size(); ++o) {
    const bool fits = Ancestor(parent, t, orders[o] - 1) >= 0;
    for (int h = 0; h < heads; ++h) {
      const size_t j = o * static_cast<size_t>(heads) + static_cast<size_t>(h);
      uint32_t hash = 0x9E3779B9u * static_cast<uint32_t>(j + 1);
      int32_t row = t;
      for (int k = 0; k < orders[o]; ++k) {
        const uint32_t token =
            row >= 0 ? static_cast<uint32_t>(tokens[static_cast<size_t>(row)]) : 0;
        hash = (hash ^ token) * 0x01000193u;
        if (row >= 0) row = parent[static_cast<size_t>(row)];
      }
      hash ^= hash >> 15;
      out[j] = fits ? static_cast<int32_t>(hash % slots) : -1;
    }
  }
}

}  // namespace needle
