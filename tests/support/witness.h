// Test support: two independent witnesses of a gradient, and what a gradient test needs around
// them. A loss is a generic callable on std::span<const N>: N = double and std::complex<double>.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "support/mismatch.h"
#include "tensor/view.h"

namespace needle::test {

/// Reproducible standard normal values.
inline std::vector<double> Normal(size_t n, uint32_t seed, double scale = 1) {
  std::mt19937_64 bits(seed);
  std::normal_distribution<double> normal;
  std::vector<double> out(n);
  for (double& x : out) x = scale * normal(bits);
  return out;
}

/// df/dx_i = Im f(x + i h e_i) / h: exact, since nothing is subtracted.
template <class F>
std::vector<double> ComplexStep(const F& f, const std::vector<double>& x) {
  using Complex = std::complex<double>;
  constexpr double kStep = 1e-40;
  std::vector<Complex> at(x.begin(), x.end());
  std::vector<double> gradient(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    at[i] = Complex(x[i], kStep);
    gradient[i] = f(std::span<const Complex>(at)).imag() / kStep;
    at[i] = x[i];
  }
  return gradient;
}

/// The five-point central difference: its error is of order h^4, and shares no code with a
/// backward.
template <class F>
std::vector<double> FiniteDifference(const F& f, const std::vector<double>& x, double h = 1e-3) {
  std::vector<double> at = x, gradient(x.size());
  const auto value = [&](size_t i, double by) {
    at[i] = x[i] + by;
    const double y = f(std::span<const double>(at));
    at[i] = x[i];
    return y;
  };
  for (size_t i = 0; i < x.size(); ++i)
    gradient[i] =
        (8 * (value(i, h) - value(i, -h)) - (value(i, 2 * h) - value(i, -2 * h))) / (12 * h);
  return gradient;
}

/// "" when `gradient` is the gradient of `loss` at `x` by both witnesses.
template <class F>
std::string Witnesses(const F& loss, const std::vector<double>& x,
                      const std::vector<double>& gradient) {
  // The complex step differs by the rounding of sums in another order, the difference by h^4.
  if (const std::string s = Mismatch(gradient, ComplexStep(loss, x), 1e-11, 1e-13); !s.empty())
    return "complex step: " + s;
  if (const std::string s = Mismatch(gradient, FiniteDifference(loss, x), 1e-7, 1e-8); !s.empty())
    return "finite difference: " + s;
  return "";
}

/// Cuts one flat vector of inputs into views, in order.
template <class N>
class Cursor {
 public:
  explicit Cursor(std::span<N> all) : rest_(all) {}
  MatView<N> Matrix(size_t rows, size_t cols) { return {Vector(rows * cols).data(), rows, cols}; }
  std::span<N> Vector(size_t n) {
    const std::span<N> out = rest_.first(n);
    rest_ = rest_.subspan(n);
    return out;
  }
  N& Scalar() { return Vector(1)[0]; }

 private:
  std::span<N> rest_;
};

/// Gradients laid out as the inputs are. What a backward assigns starts as rubbish, what it adds to
/// starts at 1 (taken off again at the end): a backward that mixes the two up is caught.
class Gradients {
 public:
  explicit Gradients(size_t n) : values_(n), start_(n), cursor_(values_) {}
  MatView<double> Assigned(size_t rows, size_t cols) {
    return {Start(rows * cols, 1e30, 0).data(), rows, cols};
  }
  MatView<double> Added(size_t rows, size_t cols) {
    return {Start(rows * cols, 1, 1).data(), rows, cols};
  }
  std::span<double> AssignedVector(size_t n) { return Start(n, 1e30, 0); }
  std::span<double> AddedVector(size_t n) { return Start(n, 1, 1); }
  double* AddedScalar() { return Start(1, 1, 1).data(); }
  std::vector<double> Finish() const {
    std::vector<double> out = values_;
    for (size_t i = 0; i < out.size(); ++i) out[i] -= start_[i];
    return out;
  }

 private:
  std::span<double> Start(size_t n, double value, double start) {
    const std::span<double> at = cursor_.Vector(n);
    std::fill(at.begin(), at.end(), value);
    const auto offset = at.data() - values_.data();
    std::fill_n(start_.begin() + offset, n, start);
    return at;
  }
  std::vector<double> values_, start_;
  Cursor<double> cursor_;
};

/// An output [rows, cols] and its product with a fixed direction: a loss.
template <class N>
struct Output {
  Output(size_t r, size_t c) : rows(r), cols(c), values(r * c) {}
  MatView<N> view() { return {values.data(), rows, cols}; }
  N Dot(const std::vector<double>& direction) const {
    N sum{};
    for (size_t i = 0; i < values.size(); ++i) sum += direction[i] * values[i];
    return sum;
  }
  size_t rows, cols;
  std::vector<N> values;
};

inline MatView<const double> View(const std::vector<double>& v, size_t rows, size_t cols) {
  return {v.data(), rows, cols};
}

}  // namespace needle::test
