// Constants and the header record that the .cact reader and writer share; see docs/formats-cact.md.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "format/cact.h"

namespace needle::cact {

inline constexpr size_t kHeaderBytes = 120, kRecordBytes = 44, kAlignment = 64;
inline constexpr size_t kCodebookEntries = 28;  // the 2-, 3- and 4-bit codebooks
inline constexpr size_t kDirectoryAt = kHeaderBytes + 4 * kCodebookEntries;
inline constexpr float kContrastiveMark = 1.0f, kConfidenceMark = 2.0f;

inline size_t Aligned(size_t at) { return (at + kAlignment - 1) / kAlignment * kAlignment; }

/// The header's 29 words and the float behind them, in file order.
struct Header {
  uint32_t tag, tensors, codebook_entries, kv_window, kv_bits, vocab, width, heads, kv_heads,
      layers, head_size, max_seq_len, hadamard, lanes, slots, sub, tables, taps, dilation, orders;
  std::array<uint32_t, 4> order;
  uint32_t sites;
  std::array<uint32_t, 4> site;
  float rope_theta;
};
static_assert(sizeof(Header) == kHeaderBytes);

/// One directory record.
struct Record {
  uint8_t type, dims;
  uint16_t zero;
  std::array<uint32_t, 4> shape;
  uint64_t offset, bytes;  // at byte 20 and 28 of the file's record
  uint32_t group, bits;
};

/// The three codebooks behind the header, in file order.
inline std::vector<float> Codebooks() {
  std::vector<float> out;
  for (const Bits b : {Bits::k2, Bits::k3, Bits::k4})
    for (const float v : Codebook(b, kGroup)) out.push_back(v);
  return out;
}

/// Bytes of the blob of a tensor that is not raw.
inline uint64_t BlobBytes(CactType type, const Shape& shape, Bits bits) {
  if (type != CactType::kCodes)
    return static_cast<uint64_t>(ElementCount(shape)) * (type == CactType::kFp32 ? 4 : 2);
  const auto rows = static_cast<uint64_t>(shape[0]);
  const uint64_t groups = (static_cast<uint64_t>(shape[1]) + kGroup - 1) / kGroup;
  return rows * (PackedRowBytes(groups * kGroup, bits) + groups * 2);
}

}  // namespace needle::cact
