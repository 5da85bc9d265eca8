// SHA-256 (FIPS 180-4), piece by piece. Thread-safety: one object, one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace needle {

class Sha256 {
 public:
  void Update(std::span<const uint8_t> bytes);
  void Update(std::string_view text);
  /// The digest of all bytes so far; the object goes on as if it had not been asked.
  std::array<uint8_t, 32> Digest() const;
  /// The same as 64 lower-case hex digits.
  std::string HexDigest() const;

 private:
  void Compress(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_{};
  uint64_t bytes_ = 0;  // so far; the last bytes_ % 64 of them wait in block_
};

}  // namespace needle
