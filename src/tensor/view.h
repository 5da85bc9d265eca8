// Views: a row-major matrix somewhere else. `MatView<const float>` reads, `MatView<float>` writes.
// Thread-safety: as the memory behind it.
#pragma once

#include <cassert>
#include <cstddef>
#include <span>
#include <type_traits>

namespace needle {

template <class N>
class MatView {
 public:
  MatView() = default;
  MatView(N* data, size_t rows, size_t cols) : MatView(data, rows, cols, cols) {}
  /// `stride`: elements from one row to the next, >= cols.
  MatView(N* data, size_t rows, size_t cols, size_t stride)
      : data_(data), rows_(rows), cols_(cols), stride_(stride) {
    assert(stride >= cols);
  }
  template <class M>
  requires(std::is_same_v<const M, N>) MatView(MatView<M> other)  // NOLINT: a writer is a reader
      : data_(other.data()), rows_(other.rows()), cols_(other.cols()), stride_(other.stride()) {}

  N* data() const { return data_; }
  size_t rows() const { return rows_; }
  size_t cols() const { return cols_; }
  size_t stride() const { return stride_; }
  bool empty() const { return data_ == nullptr; }
  N* Row(size_t r) const {
    assert(r < rows_);
    return data_ + r * stride_;
  }
  std::span<N> RowSpan(size_t r) const { return {Row(r), cols_}; }
  N& operator()(size_t r, size_t c) const {
    assert(c < cols_);
    return Row(r)[c];
  }
  /// Rows [first, first + count).
  MatView Rows(size_t first, size_t count) const {
    assert(first + count <= rows_);
    return MatView(data_ + first * stride_, count, cols_, stride_);
  }
  /// Columns [first, first + count) of every row.
  MatView Cols(size_t first, size_t count) const {
    assert(first + count <= cols_);
    return MatView(data_ + first, rows_, count, stride_);
  }

 private:
  N* data_ = nullptr;
  size_t rows_ = 0, cols_ = 0, stride_ = 0;
};

}  // namespace needle
