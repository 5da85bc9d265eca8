// The hub's tags as checksums: 64 hex digits are the sha256 of the bytes (large files), 40 are
// git's sha1 of "blob <size>\0" and the bytes (small files); any other tag says nothing about them.
// Errors: kIo, kNotFound of the file. Thread-safety: functions; Sha1: one object, one thread.
// Source: FIPS 180-4; git's object format.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace needle {

/// SHA-1, for git's names only: it no longer protects against somebody who wants two files alike.
class Sha1 {
 public:
  void Update(std::span<const uint8_t> bytes);
  /// The digest as 40 lower-case hex digits; the object is spent.
  std::string HexDigest();

 private:
  void Block(const uint8_t* block);
  std::array<uint32_t, 5> state_ = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  std::array<uint8_t, 64> pending_{};
  uint64_t size_ = 0;  // bytes so far; size_ % 64 of them are pending
};

/// Only digits and "a" to "f" (as git and the hub write them), at least one.
bool IsHex(std::string_view text);

enum class ChecksumKind { kNone, kGitSha1, kSha256 };
ChecksumKind KindOf(std::string_view etag);

/// The checksum of a file in the way of `kind` (not kNone), lower-case hex.
Result<std::string> ChecksumOf(const std::string& path, ChecksumKind kind);

}  // namespace needle
