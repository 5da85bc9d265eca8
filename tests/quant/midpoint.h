// Test support: two quantisers may choose different codes only where the exact value sits on the
// midpoint between them within float32 rounding. WhyNotOnMidpoint says "" there, else what is
// wrong.
#pragma once

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "base/str_cat.h"
#include "quant/group.h"

namespace needle::test {

/// A group's rotated values over their norm, and the norm, in double.
struct ExactGroup {
  std::vector<double> u;
  double norm = 0;
};

inline ExactGroup RotateExactly(std::span<const float> w, size_t group) {
  ExactGroup out;
  out.u.assign(w.begin(), w.end());
  out.u.resize(group, 0.0);
  WalshInPlace(std::span<double>(out.u));
  for (double& v : out.u) v /= std::sqrt(static_cast<double>(group));
  for (const double v : out.u) out.norm += v * v;
  out.norm = std::sqrt(out.norm);
  for (double& v : out.u) v /= std::max(out.norm, 1e-12);
  return out;
}

/// Rounding of one rotated value relative to the group's norm: a sum of 128 products in float32
/// strays by a few units of 2^-24 (and by at most 128 of them).
inline constexpr double kCodeRounding = 8 * 0x1p-24;
/// The same for the norm, relative.
inline constexpr double kNormRounding = 8 * 0x1p-24;

inline std::string WhyNotOnMidpoint(double u, int got, int want, std::span<const float> codebook) {
  if (got == want) return "";
  if (std::abs(got - want) != 1) return StrCat("codes ", got, " and ", want, " are not neighbours");
  const double middle =
      (double{codebook[static_cast<size_t>(got)]} + double{codebook[static_cast<size_t>(want)]}) /
      2;
  if (std::abs(u - middle) <= kCodeRounding) return "";
  return StrCat("code ", got, " instead of ", want, ": value ", u, " is ", std::abs(u - middle),
                " from the midpoint");
}

inline std::string WhyNormDiffers(double norm, uint16_t got, uint16_t want) {
  if (got == want) return "";
  if (std::abs(got - want) != 1) return StrCat("norms ", got, " and ", want, " are not neighbours");
  const double middle = (double{F16ToF32(got)} + double{F16ToF32(want)}) / 2;
  if (std::abs(norm - middle) <= kNormRounding * norm) return "";
  return StrCat("norm bits ", got, " instead of ", want, ": ", norm, " is ",
                std::abs(norm - middle), " from the midpoint");
}

}  // namespace needle::test
