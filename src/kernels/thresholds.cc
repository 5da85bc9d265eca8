#include "kernels/thresholds.h"

#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>

#include "quant/group.h"

namespace needle {
namespace {

/// Floats as integers in the same order.
int64_t Rank(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const int64_t magnitude = bits & 0x7FFFFFFFu;
  return bits >> 31 ? -magnitude : magnitude;
}
float FromRank(int64_t rank) {
  const auto magnitude = static_cast<uint32_t>(rank < 0 ? -rank : rank);
  return std::bit_cast<float>(rank < 0 ? magnitude | 0x80000000u : magnitude);
}

/// The largest float in [entry k, entry k + 1] whose nearest entry is k: rounded distances to the
/// two are monotone in u, so the choice changes once.
float Threshold(std::span<const float> codebook, size_t k) {
  int64_t low = Rank(codebook[k]), high = Rank(codebook[k + 1]);  // low takes k, high does not
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (NearestCode(FromRank(middle), codebook) <= k ? low : high) = middle;
  }
  return FromRank(low);
}

CodebookThresholds Make(Bits bits, size_t group) {
  const std::span<const float> codebook = Codebook(bits, group);
  CodebookThresholds t;
  t.entries = codebook.size();
  for (size_t k = 0; k < codebook.size(); ++k) {
    t.entry[k] = codebook[k];
    if (k + 1 < codebook.size()) t.threshold[k] = Threshold(codebook, k);
  }
  return t;
}

}  // namespace

const CodebookThresholds& ThresholdsOf(Bits bits, size_t group) {
  assert(group == kGroup || group == kKvGroup);
  static const std::array<CodebookThresholds, 4> of_weights = {
      Make(Bits::k2, kGroup), Make(Bits::k3, kGroup), Make(Bits::k4, kGroup),
      Make(Bits::kTernary, kGroup)};
  static const std::array<CodebookThresholds, 3> of_keys = {
      Make(Bits::k2, kKvGroup), Make(Bits::k3, kKvGroup), Make(Bits::k4, kKvGroup)};
  const size_t at = static_cast<size_t>(bits) - static_cast<size_t>(Bits::k2);
  return group == kGroup ? of_weights.at(at) : of_keys.at(at);
}

}  // namespace needle
