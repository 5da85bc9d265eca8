// ops/linear.h    y = x W
// Backward: dx = dy W^T;  dW += x^T dy
// Shapes: x [T, I], W [I, O], y [T, O] and their gradients. Thread-safe on disjoint outputs.
#pragma once

#include "tensor/view.h"

namespace needle {

template <class N>
void LinearForward(MatView<const N> x, MatView<const N> w, MatView<N> y) {
  for (size_t t = 0; t < x.rows(); ++t) {
    for (size_t o = 0; o < w.cols(); ++o) y(t, o) = N{};
    for (size_t i = 0; i < w.rows(); ++i)
      for (size_t o = 0; o < w.cols(); ++o) y.Row(t)[o] += x.Row(t)[i] * w.Row(i)[o];
  }
}

/// Assigns dx.
template <class N>
void LinearBackwardInput(MatView<const N> w, MatView<const N> dy, MatView<N> dx) {
  for (size_t t = 0; t < dy.rows(); ++t)
    for (size_t i = 0; i < w.rows(); ++i) {
      N sum{};
      for (size_t o = 0; o < w.cols(); ++o) sum += dy.Row(t)[o] * w.Row(i)[o];
      dx.Row(t)[i] = sum;
    }
}

/// Adds to dw.
template <class N>
void LinearBackwardWeight(MatView<const N> x, MatView<const N> dy, MatView<N> dw) {
  for (size_t t = 0; t < x.rows(); ++t)
    for (size_t i = 0; i < dw.rows(); ++i)
      for (size_t o = 0; o < dw.cols(); ++o) dw.Row(i)[o] += x.Row(t)[i] * dy.Row(t)[o];
}

}  // namespace needle
