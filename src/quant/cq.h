// CQ: codebook quantisation of upstream (MODEL.md section 8). A group of 128 (64 for keys and
// values) weights is rotated by the normalised Walsh-Hadamard matrix, scaled by its L2 norm (kept
// as float16) and each value replaced by the nearest entry of a fixed codebook. What happens to one
// group is in quant/group.h.
// Errors: asserts only; widths are parsed once (BitMap). Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "quant/group.h"
#include "tensor/view.h"

namespace needle {

inline constexpr size_t kGroup = 128, kKvGroup = 64;

/// A width in the file's sense.
enum class Bits : uint8_t { kNone = 0, k2 = 2, k3 = 3, k4 = 4, kTernary = 5 };
/// Bits of one stored code: 2, 3, 4; ternary takes 2.
constexpr int StoredBits(Bits b) { return b == Bits::kTernary ? 2 : static_cast<int>(b); }
std::string_view Name(Bits b);  // "2", "3", "4", "1.58"
Result<Bits> ParseBits(std::string_view text);

/// Codebook of a width and group size (128 or 64; ternary has 128 only), ascending.
std::span<const float> Codebook(Bits bits, size_t group);

/// Rows of quantised groups: what a CQ tensor of the archive holds, [rows, cols].
struct QuantizedMatrix {
  size_t rows = 0, cols = 0;
  Bits bits = Bits::k4;
  std::vector<uint8_t> codes;   // [rows, padded cols] one code a byte (index into the codebook)
  std::vector<uint16_t> norms;  // [rows, padded cols / 128] float16
  size_t padded_cols() const { return (cols + kGroup - 1) / kGroup * kGroup; }
};
QuantizedMatrix Quantize(MatView<const float> w, Bits bits);
/// out [rows, cols]: the dequantised values.
void Dequantize(const QuantizedMatrix& q, MatView<float> out);
/// One row (of any length, grouped by `group`, the last group padded with zeros): out = dequantised
/// value, not yet fl(w + fl(q - w)). In place is allowed.
void FakeQuantizeRow(std::span<const float> w, std::span<float> out, Bits bits, size_t group);

/// Bytes of one packed row of `padded_cols` codes.
constexpr size_t PackedRowBytes(size_t padded_cols, Bits bits) {
  return padded_cols * static_cast<size_t>(StoredBits(bits)) / 8;
}
/// The archive's packed code bytes and back (LSB first; ternary as signed two-bit). Errors of
/// UnpackCodes: a wrong number of bytes, a ternary code that stands for nothing.
std::vector<uint8_t> PackCodes(const QuantizedMatrix& q);
Result<std::vector<uint8_t>> UnpackCodes(std::span<const uint8_t> packed, size_t rows,
                                         size_t padded_cols, Bits bits);

/// 8-bit (or `bits`) activation quantisation with one scale a row, halves to even; in place,
/// x = fl(x + fl(q - x)).
void FakeQuantizeActivations(std::span<float> x, int bits);

/// "name=bits,...,default=bits" or one width for all ("4").
class BitMap {
 public:
  /// Errors: a width that does not exist, no default, an empty name; the sentence names the entry.
  static Result<BitMap> Parse(std::string_view text);
  static BitMap Uniform(Bits bits);
  /// Width of a parameter by its tree path ("stack/.../q_proj/kernel") or archive name: the entry
  /// whose canonical key is the longest prefix of the canonical name.
  Bits For(std::string_view path) const;
  /// The canonical keys that are the prefix of no name in `names` (canonical): misspelt ones.
  std::vector<std::string> Unused(const std::vector<std::string>& names) const;
  bool uniform() const { return entries_.empty(); }
  Bits fallback() const { return default_; }
  const std::string& text() const { return text_; }

 private:
  std::vector<std::pair<std::string, Bits>> entries_;  // canonical key, width
  Bits default_ = Bits::k4;
  std::string text_;
};
/// MODEL.md "Mixed maps": "stack/layers/block/self_attn/q_proj/kernel" -> "attn.q_proj".
std::string CanonicalName(std::string_view path);

}  // namespace needle
