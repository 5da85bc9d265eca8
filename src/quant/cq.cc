#include "quant/cq.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/str_cat.h"

namespace needle {
namespace {

template <size_t n>
constexpr std::array<float, n> FromBits(const uint32_t (&bits)[n]) {
  std::array<float, n> out{};
  for (size_t i = 0; i < n; ++i) out[i] = std::bit_cast<float>(bits[i]);
  return out;
}

// Lloyd-Max levels of a Gaussian sample over sqrt(group), as upstream stores them. They were
// estimated from a sample, so they are not symmetric.
constexpr auto k2Of128 = FromBits({0xbe085e47, 0xbd237060, 0x3d23fc09, 0x3e08a9db});
constexpr auto k3Of128 = FromBits({0xbe41cdbb, 0xbdf16db0, 0xbd87797d, 0xbcac246c,  //
                                   0x3cb50d39, 0x3d88c69c, 0x3df23363, 0x3e4261c1});
constexpr auto k4Of128 = FromBits({0xbe7547c2, 0xbe390b02, 0xbe105747, 0xbddf41f9,  //
                                   0xbda6f045, 0xbd67898a, 0xbd06eb34, 0xbc25be0a,  //
                                   0x3c5040f6, 0x3d124277, 0x3d738a80, 0x3dae086f,  //
                                   0x3de6e514, 0x3e142b6e, 0x3e3ca926, 0x3e781699});
constexpr auto kTernaryOf128 = FromBits({0xbddd919f, 0x00000000, 0x3ddd919f});
constexpr auto k2Of64 = FromBits({0xbe40da97, 0xbd672339, 0x3d67e8bc, 0x3e414579});
constexpr auto k3Of64 = FromBits({0xbe890a34, 0xbe2ab739, 0xbdbf9708, 0xbcf37228,  //
                                  0x3d0005d9, 0x3dc16e23, 0x3e2b4304, 0x3e8972df});
constexpr auto k4Of64 = FromBits({0xbead707a, 0xbe82d85c, 0xbe4c2100, 0xbe1dddf6,  //
                                  0xbdec1637, 0xbda3b8b9, 0xbd3ecdcf, 0xbc6a6524,  //
                                  0x3c9341f5, 0x3d4ed7a5, 0x3dac35a2, 0x3df61ea8,  //
                                  0x3e23446e, 0x3e518b25, 0x3e85673e, 0x3eaf6cc7});

// The two-bit pattern of a ternary code: -1, 0, +1 as signed two-bit numbers, and back.
constexpr uint8_t kTernaryPattern[3] = {3, 0, 1};
constexpr uint8_t kNoCode = 0xFF;
constexpr uint8_t kTernaryCode[4] = {1, 2, kNoCode, 0};

void PackRow(const uint8_t* codes, size_t n, Bits bits, uint8_t* out) {
  const int width = StoredBits(bits);
  for (size_t k = 0; k < n; ++k) {
    const unsigned pattern = bits == Bits::kTernary ? kTernaryPattern[codes[k]] : codes[k];
    const size_t at = k * static_cast<size_t>(width);
    const unsigned shifted = pattern << (at % 8);
    out[at / 8] = static_cast<uint8_t>(out[at / 8] | shifted);
    if (shifted > 0xFF) out[at / 8 + 1] = static_cast<uint8_t>(shifted >> 8);
  }
}

void UnpackRow(const uint8_t* packed, size_t n, Bits bits, uint8_t* codes) {
  const int width = StoredBits(bits);
  const unsigned mask = (1u << width) - 1;
  for (size_t k = 0; k < n; ++k) {
    const size_t at = k * static_cast<size_t>(width);
    unsigned word = packed[at / 8];
    if (at % 8 + static_cast<size_t>(width) > 8)
      word |= static_cast<unsigned>(packed[at / 8 + 1]) << 8;
    const unsigned pattern = (word >> (at % 8)) & mask;
    codes[k] = bits == Bits::kTernary ? kTernaryCode[pattern] : static_cast<uint8_t>(pattern);
  }
}

}  // namespace

std::string_view Name(Bits b) {
  switch (b) {
    case Bits::kNone:
      return "none";
    case Bits::k2:
      return "2";
    case Bits::k3:
      return "3";
    case Bits::k4:
      return "4";
    case Bits::kTernary:
      return "1.58";
  }
  return "?";
}

Result<Bits> ParseBits(std::string_view text) {
  for (const Bits b : {Bits::k2, Bits::k3, Bits::k4, Bits::kTernary})
    if (text == Name(b)) return b;
  return Error(Code::kInvalidArgument,
               StrCat("there is no width of \"", text, "\" bits; the widths are 2, 3, 4 and 1.58"));
}

std::span<const float> Codebook(Bits bits, size_t group) {
  assert(group == kGroup || group == kKvGroup);
  const bool large = group == kGroup;
  switch (bits) {
    case Bits::k2:
      return large ? k2Of128 : k2Of64;
    case Bits::k3:
      return large ? std::span<const float>(k3Of128) : std::span<const float>(k3Of64);
    case Bits::k4:
      return large ? std::span<const float>(k4Of128) : std::span<const float>(k4Of64);
    case Bits::kTernary:
      assert(large);
      return kTernaryOf128;
    case Bits::kNone:
      break;
  }
  return {};
}

QuantizedMatrix Quantize(MatView<const float> w, Bits bits) {
  const std::span<const float> codebook = Codebook(bits, kGroup);
  QuantizedMatrix q;
  q.rows = w.rows();
  q.cols = w.cols();
  q.bits = bits;
  const size_t groups = q.padded_cols() / kGroup;
  q.codes.resize(q.rows * q.padded_cols());
  q.norms.resize(q.rows * groups);
  std::array<float, kGroup> values;
  for (size_t r = 0; r < q.rows; ++r)
    for (size_t g = 0; g < groups; ++g) {
      const size_t first = g * kGroup, n = std::min(kGroup, q.cols - first);
      values.fill(0.0f);
      std::copy_n(w.Row(r) + first, n, values.begin());
      q.norms[r * groups + g] =
          QuantizeGroup(values, codebook, &q.codes[r * q.padded_cols() + first]);
    }
  return q;
}

void Dequantize(const QuantizedMatrix& q, MatView<float> out) {
  assert(out.rows() == q.rows && out.cols() == q.cols);
  const std::span<const float> codebook = Codebook(q.bits, kGroup);
  const size_t groups = q.padded_cols() / kGroup;
  std::array<float, kGroup> values;
  for (size_t r = 0; r < q.rows; ++r)
    for (size_t g = 0; g < groups; ++g) {
      const size_t first = g * kGroup, n = std::min(kGroup, q.cols - first);
      DequantizeGroup(&q.codes[r * q.padded_cols() + first], q.norms[r * groups + g], codebook,
                      values);
      std::copy_n(values.begin(), n, out.Row(r) + first);
    }
}

void FakeQuantizeRow(std::span<const float> w, std::span<float> out, Bits bits, size_t group) {
  assert(out.size() == w.size());
  const std::span<const float> codebook = Codebook(bits, group);
  std::array<float, kGroup> storage;
  std::array<uint8_t, kGroup> codes;
  const std::span<float> values(storage.data(), group);
  for (size_t first = 0; first < w.size(); first += group) {
    const size_t n = std::min(group, w.size() - first);
    std::fill(values.begin(), values.end(), 0.0f);
    std::copy_n(w.begin() + static_cast<std::ptrdiff_t>(first), n, values.begin());
    const uint16_t norm = QuantizeGroup(values, codebook, codes.data());
    DequantizeGroup(codes.data(), norm, codebook, values);
    std::copy_n(values.begin(), n, out.begin() + static_cast<std::ptrdiff_t>(first));
  }
}

std::vector<uint8_t> PackCodes(const QuantizedMatrix& q) {
  const size_t row_bytes = PackedRowBytes(q.padded_cols(), q.bits);
  std::vector<uint8_t> out(q.rows * row_bytes);
  for (size_t r = 0; r < q.rows; ++r)
    PackRow(&q.codes[r * q.padded_cols()], q.padded_cols(), q.bits, &out[r * row_bytes]);
  return out;
}

Result<std::vector<uint8_t>> UnpackCodes(std::span<const uint8_t> packed, size_t rows,
                                         size_t padded_cols, Bits bits) {
  const size_t row_bytes = PackedRowBytes(padded_cols, bits);
  if (packed.size() != rows * row_bytes)
    return Error(Code::kCorruptFile,
                 StrCat("packed codes take ", packed.size(), " bytes; ", rows, " rows of ",
                        padded_cols, " codes of ", Name(bits), " bits take ", rows * row_bytes));
  std::vector<uint8_t> codes(rows * padded_cols);
  for (size_t r = 0; r < rows; ++r)
    UnpackRow(&packed[r * row_bytes], padded_cols, bits, &codes[r * padded_cols]);
  const auto bad = std::find(codes.begin(), codes.end(), kNoCode);
  if (bad != codes.end())
    return Error(Code::kCorruptFile,
                 StrCat("code ", bad - codes.begin(), " of a ternary tensor is the pattern 10, ",
                        "which stands for none of -1, 0 and +1"));
  return codes;
}

void FakeQuantizeActivations(std::span<float> x, int bits) {
  assert(bits >= 2 && bits <= 16);
  const auto top = static_cast<float>((1 << (bits - 1)) - 1);
  float largest = 0;
  for (const float v : x) largest = std::max(largest, std::abs(v));
  const float scale = largest == 0 ? 1.0f : largest / top;
  for (float& v : x) {
    const float level = std::clamp(std::nearbyint(v / scale), -top - 1, top);
    v += level * scale - v;
  }
}

}  // namespace needle
