// Scalar functions that hold for float, double and std::complex<double> alike, so that the same
// plain loops give the value and, by the complex step, the exact derivative. Thread-safe.
#pragma once

#include <cmath>
#include <complex>
#include <span>

namespace needle {

/// The real part: comparisons (maximum, nearest) go through it.
inline float Real(float x) { return x; }
inline double Real(double x) { return x; }
inline double Real(const std::complex<double>& x) { return x.real(); }

inline constexpr double kNormEpsilon = 1e-6;

template <class N>
N Sigmoid(N x) {
  using std::exp;
  return N(1) / (N(1) + exp(-x));
}

template <class N>
N Silu(N x) {
  return x * Sigmoid(x);
}

/// d Silu(x) / dx
template <class N>
N SiluSlope(N x) {
  const N s = Sigmoid(x);
  return s + x * s * (N(1) - s);
}

/// 1 / sqrt(mean(x^2) + epsilon)
template <class N, class M>
N InverseRms(const M* x, size_t n) {
  using std::sqrt;
  N sum{};
  for (size_t i = 0; i < n; ++i) sum += x[i] * x[i];
  return N(1) / sqrt(sum / N(static_cast<double>(n)) + N(kNormEpsilon));
}

}  // namespace needle
