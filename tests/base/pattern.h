// Test support: bytes that tell where they belong.
#pragma once

#include <cstddef>
#include <string>

namespace needle::test {

inline std::string Pattern(size_t size) {
  std::string out(size, '\0');
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<char>(i * 31 + i / 977);
  return out;
}

}  // namespace needle::test
