// Tensor: an owned row-major array with a number type, as files hold it.
// Thread-safety: a value.
#pragma once

#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/str_cat.h"
#include "tensor/dtype.h"

namespace needle {

using Shape = std::vector<int64_t>;

inline int64_t ElementCount(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

/// "[27, 512, 4]"; a scalar is "[]".
inline std::string ToText(const Shape& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += StrCat(i ? ", " : "", shape[i]);
  return out + "]";
}

struct Tensor {
  DType dtype = DType::kF32;
  Shape shape;                 // [] is a scalar
  std::vector<uint8_t> bytes;  // row major, little endian

  Tensor() = default;
  Tensor(DType t, Shape s) : dtype(t), shape(std::move(s)), bytes(size() * SizeOf(t)) {}
  static Tensor FromFloats(Shape s, const std::vector<float>& values) {
    Tensor t(DType::kF32, std::move(s));
    assert(values.size() == t.size());
    if (!values.empty()) std::memcpy(t.bytes.data(), values.data(), t.bytes.size());
    return t;
  }

  size_t size() const { return static_cast<size_t>(ElementCount(shape)); }

  /// Element i of a floating type, as float (float64 rounds).
  float At(size_t i) const {
    switch (dtype) {
      case DType::kF16: {
        uint16_t h;
        std::memcpy(&h, &bytes[i * 2], 2);
        return F16ToF32(h);
      }
      case DType::kBF16: {
        uint16_t h;
        std::memcpy(&h, &bytes[i * 2], 2);
        return BF16ToF32(h);
      }
      case DType::kF64: {
        double d;
        std::memcpy(&d, &bytes[i * 8], 8);
        return static_cast<float>(d);
      }
      default: {
        assert(dtype == DType::kF32);
        float f;
        std::memcpy(&f, &bytes[i * 4], 4);
        return f;
      }
    }
  }
  std::vector<float> ToFloats() const {
    std::vector<float> out(size());
    for (size_t i = 0; i < out.size(); ++i) out[i] = At(i);
    return out;
  }
  /// The same values in a floating dtype (rounded to nearest even from float).
  Tensor As(DType t) const {
    if (t == dtype) return *this;
    Tensor out(t, shape);
    for (size_t i = 0; i < size(); ++i) out.Put(i, At(i));
    return out;
  }
  void Put(size_t i, float f) {
    switch (dtype) {
      case DType::kF16: {
        const uint16_t h = F32ToF16(f);
        std::memcpy(&bytes[i * 2], &h, 2);
        return;
      }
      case DType::kBF16: {
        const uint16_t h = F32ToBF16(f);
        std::memcpy(&bytes[i * 2], &h, 2);
        return;
      }
      case DType::kF64: {
        const double d = f;
        std::memcpy(&bytes[i * 8], &d, 8);
        return;
      }
      default:
        assert(dtype == DType::kF32);
        std::memcpy(&bytes[i * 4], &f, 4);
    }
  }
};

/// Whether no element of a floating type is NaN or infinite.
inline bool AllFinite(const Tensor& tensor) {
  for (size_t i = 0; i < tensor.size(); ++i)
    if (!std::isfinite(tensor.At(i))) return false;
  return true;
}

}  // namespace needle
