// Test support: Mismatch(got, want, rtol, atol) is "" when arrays agree elementwise
// (|got - want| <= atol + rtol * max|want|), else a sentence about the worst element.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace needle::test {

template <class A, class B>
std::string Mismatch(const A& got, const B& want, double rtol, double atol) {
  std::ostringstream out;
  out.precision(9);
  if (std::size(got) != std::size(want)) {
    out << "lengths differ: got " << std::size(got) << ", want " << std::size(want);
    return out.str();
  }
  double largest = 0;
  for (const auto& w : want) largest = std::max(largest, std::abs(static_cast<double>(w)));
  const double allowed = atol + rtol * largest;
  double worst = -1;
  size_t at = 0;
  for (size_t i = 0; i < std::size(got); ++i) {
    const double d = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    if (!(d <= worst)) worst = d, at = i;  // a NaN counts as the worst and sticks
    if (std::isnan(d)) break;
  }
  if (std::size(got) == 0 || worst <= allowed) return "";
  out << "element " << at << ": got " << got[at] << ", want " << want[at] << ", difference "
      << worst << " > " << allowed;
  return out.str();
}

/// ||got - want|| / ||want|| (L2); infinity for different lengths or NaN.
template <class A, class B>
double RelativeL2(const A& got, const B& want) {
  if (std::size(got) != std::size(want)) return INFINITY;
  double d = 0, w = 0;
  for (size_t i = 0; i < std::size(got); ++i) {
    const double e = static_cast<double>(got[i]) - static_cast<double>(want[i]);
    d += e * e;
    w += static_cast<double>(want[i]) * static_cast<double>(want[i]);
  }
  if (std::isnan(d)) return INFINITY;
  if (w == 0) return d == 0 ? 0 : INFINITY;
  return std::sqrt(d / w);
}

/// max|got - want| / max|want|; infinity for different lengths or NaN.
template <class A, class B>
double RelativeMax(const A& got, const B& want) {
  if (std::size(got) != std::size(want)) return INFINITY;
  double d = 0, w = 0;
  for (size_t i = 0; i < std::size(got); ++i) {
    const double e = std::abs(static_cast<double>(got[i]) - static_cast<double>(want[i]));
    if (std::isnan(e)) return INFINITY;
    d = std::max(d, e);
    w = std::max(w, std::abs(static_cast<double>(want[i])));
  }
  if (w == 0) return d == 0 ? 0 : INFINITY;
  return d / w;
}

}  // namespace needle::test
