#include "base/sha256.h"

#include <algorithm>
#include <bit>

namespace needle {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t LoadBigEndian(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | uint32_t{p[3]};
}

// The 64 words of a block's message schedule.
std::array<uint32_t, 64> Schedule(const uint8_t* block) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i) w[i] = LoadBigEndian(block + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    const uint32_t s0 = std::rotr(a, 7) ^ std::rotr(a, 18) ^ (a >> 3);
    const uint32_t s1 = std::rotr(b, 17) ^ std::rotr(b, 19) ^ (b >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  return w;
}

}  // namespace

void Sha256::Compress(const uint8_t* block) {
  const auto w = Schedule(block);
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> add = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += add[i];
}

void Sha256::Update(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const size_t used = bytes_ % 64;
    const size_t n = std::min(bytes.size(), 64 - used);
    if (n == 64) {  // a whole block needs no copy
      Compress(bytes.data());
    } else {
      std::copy_n(bytes.begin(), n, block_.begin() + static_cast<std::ptrdiff_t>(used));
      if (used + n == 64) Compress(block_.data());
    }
    bytes_ += n;
    bytes = bytes.subspan(n);
  }
}

void Sha256::Update(std::string_view text) {
  Update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

std::array<uint8_t, 32> Sha256::Digest() const {
  Sha256 last = *this;
  // Padding: a one bit, zeros up to 8 bytes before a block's end, the length in bits.
  std::array<uint8_t, 72> padding{0x80};
  const size_t zeros_end = 1 + (119 - bytes_ % 64) % 64;
  for (size_t i = 0; i < 8; ++i)
    padding[zeros_end + i] = static_cast<uint8_t>((bytes_ * 8) >> (56 - 8 * i));
  last.Update(std::span<const uint8_t>(padding).first(zeros_end + 8));
  std::array<uint8_t, 32> out;
  for (size_t i = 0; i < 32; ++i)
    out[i] = static_cast<uint8_t>(last.state_[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

std::string Sha256::HexDigest() const {
  std::string out;
  for (const uint8_t byte : Digest())
    out += {"0123456789abcdef"[byte >> 4], "0123456789abcdef"[byte & 15]};
  return out;
}

}  // namespace needle
