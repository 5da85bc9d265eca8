// ops/engram.h    hashed n-gram memory
//   e[t] = concatenation over tables j of table_j[slot_j(t)], zero where the n-gram does not fit
//   val'[t] = sum_{k=0..3} taps[k] * val[ancestor(t, k * dilation)], ancestors before the root drop
//   out alpha = sigmoid(<unit(u), unit(key)> / sqrt(D));  u1 = u + alpha * val'
// Shapes: e [T, tables*sub]; table [tables*slots, sub]; val, val', key, u [T, D]; taps [4, D];
// slots [T, tables] (-1: does not fit). Source: MODEL.md 4.3, 4.5a. Thread-safe on disjoint
// outputs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/scalar.h"
#include "tensor/view.h"

namespace needle {

/// The row `steps` above row t, or -1. `parent[t]` is a row number or -1.
inline int32_t Ancestor(std::span<const int32_t> parent, int32_t t, int steps) {
  while (steps-- > 0 && t >= 0) t = parent[static_cast<size_t>(t)];
  return t;
}

/// Slots of row t: one per table, order-major (j = order * heads + head); -1 where the farthest
/// token of the n-gram lies before the root.
void EngramSlots(std::span<const int32_t> tokens, std::span<const int32_t> parent, int32_t t,
                 std::span<const int> orders, int heads, uint32_t slots, std::span<int32_t> out);

/// e rows from `slots` [T, tables] (row major).
template <class N>
void EngramGatherForward(MatView<const N> table, std::span<const int32_t> slots, size_t tables,
                         MatView<N> e) {
  const size_t sub = table.cols(), per_table = table.rows() / tables;
  for (size_t t = 0; t < e.rows(); ++t)
    for (size_t j = 0; j < tables; ++j) {
      const int32_t slot = slots[t * tables + j];
      for (size_t i = 0; i < sub; ++i)
        e.Row(t)[j * sub + i] =
            slot < 0 ? N{} : table.Row(j * per_table + static_cast<size_t>(slot))[i];
    }
}

/// Adds to dtable.
template <class N>
void EngramGatherBackward(std::span<const int32_t> slots, size_t tables, MatView<const N> de,
                          MatView<N> dtable) {
  const size_t sub = dtable.cols(), per_table = dtable.rows() / tables;
  for (size_t t = 0; t < de.rows(); ++t)
    for (size_t j = 0; j < tables; ++j) {
      const int32_t slot = slots[t * tables + j];
      if (slot < 0) continue;
      for (size_t i = 0; i < sub; ++i)
        dtable.Row(j * per_table + static_cast<size_t>(slot))[i] += de.Row(t)[j * sub + i];
    }
}

/// Rows [first, first + out.rows()) of val'. `val` holds all rows that ancestors may name.
template <class N>
void EngramConvForward(MatView<const N> val, std::span<const int32_t> parent, MatView<const N> taps,
                       int dilation, size_t first, MatView<N> out) {
  for (size_t i = 0; i < out.rows(); ++i) {
    int32_t row = static_cast<int32_t>(first + i);
    for (size_t d = 0; d < out.cols(); ++d)
      out.Row(i)[d] = taps.Row(0)[d] * val.Row(static_cast<size_t>(row))[d];
    for (size_t k = 1; k < taps.rows(); ++k) {
      row = Ancestor(parent, row, dilation);
      if (row < 0) break;
      for (size_t d = 0; d < out.cols(); ++d)
        out.Row(i)[d] += taps.Row(k)[d] * val.Row(static_cast<size_t>(row))[d];
    }
  }
}

/// The gradient of rows [first, first + dout.rows()): adds to dval (all rows) and, when not empty,
/// to dtaps.
template <class N>
void EngramConvBackward(MatView<const N> val, std::span<const int32_t> parent,
                        MatView<const N> taps, int dilation, size_t first, MatView<const N> dout,
                        MatView<N> dval, MatView<N> dtaps) {
  for (size_t t = 0; t < dout.rows(); ++t) {
    int32_t row = static_cast<int32_t>(first + t);
    for (size_t k = 0; k < taps.rows(); ++k) {
      if (k > 0) row = Ancestor(parent, row, dilation);
      if (row < 0) break;
      const size_t a = static_cast<size_t>(row);
      for (size_t d = 0; d < dout.cols(); ++d) {
        dval.Row(a)[d] += taps.Row(k)[d] * dout.Row(t)[d];
        if (!dtaps.empty()) dtaps.Row(k)[d] += dout.Row(t)[d] * val.Row(a)[d];
      }
    }
  }
}

/// u1 = u + alpha * val'. In place (u1 = u) is allowed.
template <class N>
void EngramMixForward(MatView<const N> u, MatView<const N> key, MatView<const N> val,
                      MatView<N> u1) {
  using std::sqrt;
  const size_t D = u.cols();
  const N root = sqrt(N(static_cast<double>(D)));
  for (size_t t = 0; t < u.rows(); ++t) {
    N dot{};
    for (size_t d = 0; d < D; ++d) dot += u.Row(t)[d] * key.Row(t)[d];
    const N unit = InverseRms<N>(u.Row(t), D) * InverseRms<N>(key.Row(t), D);
    const N alpha = Sigmoid(dot * unit / root);
    for (size_t d = 0; d < D; ++d) u1.Row(t)[d] = u.Row(t)[d] + alpha * val.Row(t)[d];
  }
}

/// Adds the mixing's part to du (the identity part, du += du1, is the caller's). Adds to dkey and
/// dval when they are not empty.
template <class N>
void EngramMixBackward(MatView<const N> u, MatView<const N> key, MatView<const N> val,
                       MatView<const N> du1, MatView<N> du, MatView<N> dkey, MatView<N> dval) {
  using std::sqrt;
  const size_t D = u.cols();
  const N count = N(static_cast<double>(D)), root = sqrt(count);
  for (size_t t = 0; t < u.rows(); ++t) {
    const N *a = u.Row(t), *b = key.Row(t), *g = du1.Row(t);
    N dot{}, dalpha{};
    for (size_t d = 0; d < D; ++d) {
      dot += a[d] * b[d];
      dalpha += g[d] * val.Row(t)[d];
    }
    const N ra = InverseRms<N>(a, D), rb = InverseRms<N>(b, D);
    const N alpha = Sigmoid(dot * ra * rb / root);
    const N slope = dalpha * alpha * (N(1) - alpha) / root;  // d of <unit u, unit key>
    for (size_t d = 0; d < D; ++d) {
      du.Row(t)[d] += slope * ra * rb * (b[d] - a[d] * ra * ra * dot / count);
      if (!dkey.empty()) dkey.Row(t)[d] += slope * ra * rb * (a[d] - b[d] * rb * rb * dot / count);
      if (!dval.empty()) dval.Row(t)[d] += alpha * g[d];
    }
  }
}

}  // namespace needle
