// Buffer: uninitialised, grow-only scratch, aligned to cache lines. Contents are lost when it
// grows. Thread-safety: one object, one owner; the memory may be shared by disjoint rows.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include "base/array_memory.h"
#include "tensor/view.h"

namespace needle {

template <class T>
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t n) { Reserve(n); }

  /// At least n elements; existing contents are kept only when no growth is needed.
  T* Reserve(size_t n) {
    if (n > size_) {
      // What grows once may grow again, and each time the system clears the pages that are used.
      if (size_ > 0) n += n / 4;
      data_.reset();
      data_ = {static_cast<T*>(AllocateArray(n * sizeof(T))), Free{n * sizeof(T)}};
      size_ = n;
    }
    return data_.get();
  }
  /// The same, but the first `keep` elements survive growth (which doubles when there are any).
  T* Grow(size_t n, size_t keep) {
    if (n > size_) {
      Buffer larger;
      if (keep == 0) *this = Buffer();  // first free, then take
      larger.Reserve(keep == 0 || n > 2 * size_ ? n : 2 * size_);
      for (size_t i = 0; i < keep; ++i) larger.data_.get()[i] = data_.get()[i];
      *this = std::move(larger);
    }
    return data_.get();
  }
  MatView<T> Matrix(size_t rows, size_t cols) { return {Reserve(rows * cols), rows, cols}; }
  T* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    size_t bytes = 0;
    void operator()(T* p) const { FreeArray(p, bytes); }
  };
  std::unique_ptr<T, Free> data_;
  size_t size_ = 0;
};

}  // namespace needle
