#include "hub/checksum.h"

#include <algorithm>
#include <bit>

#include "base/file.h"
#include "base/sha256.h"
#include "base/str_cat.h"

namespace needle {
namespace {

std::string HexOf(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const uint8_t byte : bytes) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

/// The 80 words of a block's schedule.
std::array<uint32_t, 80> Schedule(const uint8_t* block) {
  std::array<uint32_t, 80> w{};
  for (size_t i = 0; i < 16; ++i)
    w[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 |
           uint32_t{block[4 * i + 2]} << 8 | uint32_t{block[4 * i + 3]};
  for (size_t i = 16; i < 80; ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
  return w;
}

/// The round function and constant of round i.
uint32_t Mix(size_t i, uint32_t b, uint32_t c, uint32_t d) {
  if (i < 20) return ((b & c) | (~b & d)) + 0x5a827999;
  if (i < 40) return (b ^ c ^ d) + 0x6ed9eba1;
  if (i < 60) return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
  return (b ^ c ^ d) + 0xca62c1d6;
}

}  // namespace

void Sha1::Block(const uint8_t* block) {
  const std::array<uint32_t, 80> w = Schedule(block);
  auto [a, b, c, d, e] = state_;
  for (size_t i = 0; i < 80; ++i) {
    const uint32_t next = std::rotl(a, 5) + Mix(i, b, c, d) + e + w[i];
    e = d;
    d = c;
    c = std::rotl(b, 30);
    b = a;
    a = next;
  }
  const std::array<uint32_t, 5> add = {a, b, c, d, e};
  for (size_t i = 0; i < 5; ++i) state_[i] += add[i];
}

void Sha1::Update(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const size_t used = size_ % 64;
    if (used == 0 && bytes.size() >= 64) {
      Block(bytes.data());
      size_ += 64;
      bytes = bytes.subspan(64);
      continue;
    }
    const size_t take = std::min(64 - used, bytes.size());
    std::copy_n(bytes.begin(), take, pending_.begin() + used);
    size_ += take;
    bytes = bytes.subspan(take);
    if (size_ % 64 == 0) Block(pending_.data());
  }
}

std::string Sha1::HexDigest() {
  const uint64_t bits = size_ * 8;
  const uint8_t one = 0x80, zero = 0;
  Update({&one, 1});
  while (size_ % 64 != 56) Update({&zero, 1});
  std::array<uint8_t, 8> length{};
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  Update(length);
  std::array<uint8_t, 20> digest{};
  for (size_t i = 0; i < 20; ++i)
    digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return HexOf(digest);
}

bool IsHex(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
  });
}

ChecksumKind KindOf(std::string_view etag) {
  if (!IsHex(etag)) return ChecksumKind::kNone;
  if (etag.size() == 64) return ChecksumKind::kSha256;
  return etag.size() == 40 ? ChecksumKind::kGitSha1 : ChecksumKind::kNone;
}

Result<std::string> ChecksumOf(const std::string& path, ChecksumKind kind) {
  NEEDLE_ASSIGN(const MappedFile file, MappedFile::Open(path));
  const std::span<const uint8_t> bytes = file.bytes();
  if (kind == ChecksumKind::kSha256) {
    Sha256 sha256;
    sha256.Update(bytes);
    return sha256.HexDigest();
  }
  Sha1 sha1;
  const std::string head = StrCat("blob ", bytes.size(), '\0');
  sha1.Update({reinterpret_cast<const uint8_t*>(head.data()), head.size()});
  sha1.Update(bytes);
  return sha1.HexDigest();
}

}  // namespace needle
