// ops/gate.h    o = a * sigmoid(g)      and      x1 = u1 + sigmoid(s) * n  (s a scalar)
// Backward: da = do sigmoid(g);  dg = do a sigmoid'(g);   dn = sigmoid(s) dx1;  ds += sigmoid'(s)
// <dx1, n> Shapes: all matrices [T, D]. Source: MODEL.md 4.5b, c. Thread-safe on disjoint rows.
#pragma once

#include "ops/scalar.h"
#include "tensor/view.h"

namespace needle {

template <class N>
void GateForward(MatView<const N> a, MatView<const N> g, MatView<N> o) {
  for (size_t t = 0; t < a.rows(); ++t)
    for (size_t d = 0; d < a.cols(); ++d) o.Row(t)[d] = a.Row(t)[d] * Sigmoid(g.Row(t)[d]);
}

/// Assigns da (da = d_o in place is allowed) and dg.
template <class N>
void GateBackward(MatView<const N> a, MatView<const N> g, MatView<const N> d_o, MatView<N> da,
                  MatView<N> dg) {
  for (size_t t = 0; t < a.rows(); ++t)
    for (size_t d = 0; d < a.cols(); ++d) {
      const N s = Sigmoid(g.Row(t)[d]), up = d_o.Row(t)[d];
      dg.Row(t)[d] = up * a.Row(t)[d] * s * (N(1) - s);
      da.Row(t)[d] = up * s;
    }
}

template <class N>
void ScalarGateForward(MatView<const N> u1, MatView<const N> n, N gate, MatView<N> x1) {
  const N s = Sigmoid(gate);
  for (size_t t = 0; t < n.rows(); ++t)
    for (size_t d = 0; d < n.cols(); ++d) x1.Row(t)[d] = u1.Row(t)[d] + s * n.Row(t)[d];
}

/// Assigns dn (in place of dx1 is allowed). Adds to *dgate when it is not null. The part of u1,
/// du1 += dx1, is the caller's.
template <class N>
void ScalarGateBackward(MatView<const N> n, N gate, MatView<const N> dx1, MatView<N> dn, N* dgate) {
  const N s = Sigmoid(gate);
  for (size_t t = 0; t < n.rows(); ++t)
    for (size_t d = 0; d < n.cols(); ++d) {
      const N up = dx1.Row(t)[d];
      if (dgate) *dgate += s * (N(1) - s) * up * n.Row(t)[d];
      dn.Row(t)[d] = s * up;
    }
}

}  // namespace needle
