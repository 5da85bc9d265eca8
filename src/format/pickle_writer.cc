// The writing half of format/pickle.h.
#include <bit>
#include <limits>

#include "base/str_cat.h"
#include "format/pickle.h"
#include "format/pickle_types.h"

namespace needle::pickle {

Writer::Writer() : out_{0x80, 4} {}

void Writer::PutBytes(const void* data, size_t size) {
  if (size == 0) return;
  const uint8_t* bytes = static_cast<const uint8_t*>(data);
  out_.insert(out_.end(), bytes, bytes + size);
}

void Writer::PutLittle(uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) Put(static_cast<uint8_t>(value >> (8 * i)));
}

void Writer::None() { Put('N'); }
void Writer::Bool(bool value) { Put(value ? 0x88 : 0x89); }

void Writer::Int(int64_t value) {
  if (value >= 0 && value <= 0xFF) {
    Put('K');
    PutLittle(static_cast<uint64_t>(value), 1);
  } else if (value >= 0 && value <= 0xFFFF) {
    Put('M');
    PutLittle(static_cast<uint64_t>(value), 2);
  } else if (value >= std::numeric_limits<int32_t>::min() &&
             value <= std::numeric_limits<int32_t>::max()) {
    Put('J');
    PutLittle(static_cast<uint64_t>(value), 4);
  } else {
    Put(0x8A);
    Put(8);
    PutLittle(static_cast<uint64_t>(value), 8);
  }
}

void Writer::UnsignedInt(uint64_t value) {
  if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
    return Int(static_cast<int64_t>(value));
  Put(0x8A);
  Put(9);  // the ninth byte is the sign
  PutLittle(value, 8);
  Put(0);
}

void Writer::Float(double value) {
  Put('G');
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  for (int i = 7; i >= 0; --i) Put(static_cast<uint8_t>(bits >> (8 * i)));
}

void Writer::String(std::string_view utf8) {
  const bool is_short = utf8.size() <= 0xFF;
  Put(is_short ? 0x8C : 'X');
  PutLittle(utf8.size(), is_short ? 1 : 4);
  PutBytes(utf8.data(), utf8.size());
}

void Writer::Dims(const Shape& shape) {
  Put('(');
  for (const int64_t n : shape) Int(n);
  Put('t');
}

void Writer::Ints(const std::vector<int>& values) { Dims(Shape(values.begin(), values.end())); }

void Writer::BeginDict() {
  Put('}');
  Put('(');
}
void Writer::EndDict() { Put('u'); }

bool Writer::Recall(const std::string& key) {
  for (const auto& entry : memo_) {
    if (entry.first != key) continue;
    Put('j');
    PutLittle(entry.second, 4);
    return true;
  }
  return false;
}

void Writer::Memoize(const std::string& key) {
  Put(0x94);
  memo_.emplace_back(key, static_cast<uint32_t>(memo_.size()));
}

void Writer::Global(std::string_view module, std::string_view name) {
  const std::string key = StrCat(module, " ", name);
  if (Recall(key)) return;
  String(module);
  String(name);
  Put(0x93);
  Memoize(key);
}

void Writer::NumberType(DType type) {
  const ElementType& element = ElementTypeOf(type);
  const std::string key = StrCat("dtype ", element.code);
  if (Recall(key)) return;
  const bool bf16 = type == DType::kBF16;
  Global("numpy", "dtype");
  if (bf16) {
    Global("ml_dtypes", "bfloat16");
  } else {
    String(element.code);
  }
  Bool(false);
  Bool(true);
  Put(0x87);
  Put('R');
  Put('(');
  Int(3);
  String(element.size == 1 ? "|" : "<");
  for (int i = 0; i < 3; ++i) None();
  Int(bf16 ? 2 : -1);  // item size and alignment: -1 for NumPy's own types
  Int(bf16 ? 2 : -1);
  Int(bf16 ? 64 : 0);  // flags, as ml_dtypes sets them
  Put('t');
  Put('b');
  Memoize(key);
}

void Writer::Array(const Tensor& tensor) {
  Global("numpy._core.multiarray", "_reconstruct");
  Global("numpy", "ndarray");
  Dims({0});
  Put('C');
  Put(1);
  Put('b');
  Put(0x87);
  Put('R');
  Put('(');
  Int(1);
  Dims(tensor.shape);
  NumberType(tensor.dtype);
  Bool(false);
  Put(0x8E);
  PutLittle(tensor.bytes.size(), 8);
  PutBytes(tensor.bytes.data(), tensor.bytes.size());
  Put('t');
  Put('b');
}

std::vector<uint8_t> Writer::Finish() {
  Put('.');
  return std::move(out_);
}

}  // namespace needle::pickle
