// Test support of the kernels: random arrays, and matrices that exist as float (for the kernel) and
// as double (for the plain loops), with rows wider than their columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "support/mismatch.h"
#include "tensor/view.h"

namespace needle::test {

inline constexpr size_t kMaxLanes = 16;

inline std::vector<float> NormalFloats(size_t n, uint32_t seed, float scale = 1.0f) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = scale * normal(bits);
  return x;
}

inline std::vector<double> Doubles(const std::vector<float>& x) { return {x.begin(), x.end()}; }

/// A matrix of float values and the same in double; `slack` unused floats after each float row.
struct Pair {
  size_t rows, cols, slack;
  std::vector<float> f;
  std::vector<double> d;

  Pair(size_t rows_in, size_t cols_in, uint32_t seed, float scale = 1.0f, size_t slack_in = 3)
      : rows(rows_in), cols(cols_in), slack(slack_in), f(rows * (cols + slack), kSlack) {
    const auto values = NormalFloats(rows * cols, seed, scale);
    d = Doubles(values);
    for (size_t r = 0; r < rows; ++r)
      for (size_t c = 0; c < cols; ++c) f[r * (cols + slack) + c] = values[r * cols + c];
  }
  MatView<float> F() { return {f.data(), rows, cols, cols + slack}; }
  MatView<double> D() { return {d.data(), rows, cols}; }
  MatView<const float> CF() { return F(); }
  MatView<const double> CD() { return D(); }

  /// "" when float and double agree within rtol * largest + atol and the slack is untouched.
  std::string Differ(double rtol, double atol = 0) const {
    std::vector<float> got;
    for (size_t r = 0; r < rows; ++r) {
      const auto row = f.begin() + static_cast<long>(r * (cols + slack));
      got.insert(got.end(), row, row + static_cast<long>(cols));
      for (size_t c = cols; c < cols + slack; ++c)
        if (row[static_cast<long>(c)] != kSlack) return "wrote past row " + std::to_string(r);
    }
    return Mismatch(got, d, rtol, atol);
  }

 private:
  static constexpr float kSlack = -7.0f;
};

/// A vector as float and double.
struct PairVector {
  std::vector<float> f;
  std::vector<double> d;
  PairVector(size_t n, uint32_t seed, float scale = 1.0f)
      : f(NormalFloats(n, seed, scale)), d(Doubles(f)) {}
  std::span<const float> CF() const { return f; }
  std::span<const double> CD() const { return d; }
  std::string Differ(double rtol, double atol = 0) const { return Mismatch(f, d, rtol, atol); }
};

}  // namespace needle::test
