#include "format/pickle.h"

#include <array>
#include <cstring>

#include "base/str_cat.h"
#include "format/pickle_types.h"

namespace needle::pickle {
namespace {

constexpr std::array<ElementType, 13> kElementTypes = {{
    {"f2", 2, DType::kF16},
    {"f4", 4, DType::kF32},
    {"f8", 8, DType::kF64},
    {"bfloat16", 2, DType::kBF16},
    {"b1", 1, DType::kBool},
    {"u1", 1, DType::kU8},
    {"u2", 2, DType::kI32},
    {"u4", 4, DType::kU32},
    {"u8", 8, DType::kI64},
    {"i1", 1, DType::kI32},
    {"i2", 2, DType::kI32},
    {"i4", 4, DType::kI32},
    {"i8", 8, DType::kI64},
}};

int64_t IntegerAt(const uint8_t* at, const ElementType& type) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, type.size);
  if (type.code[0] != 'i') return static_cast<int64_t>(bits);
  const int unused = static_cast<int>(64 - 8 * type.size);
  return static_cast<int64_t>(bits << unused) >> unused;
}

}  // namespace

const ElementType* FindElementType(std::string_view code) {
  for (const ElementType& type : kElementTypes)
    if (type.code == code) return &type;
  return nullptr;
}

const ElementType& ElementTypeOf(DType type) {
  for (const ElementType& candidate : kElementTypes)  // types that are widened come out larger
    if (candidate.tensor == type && candidate.size == SizeOf(type) && candidate.code != "u8")
      return candidate;
  return kElementTypes[0];  // not reached: every DType is in the table
}

std::string_view Describe(Kind kind) {
  constexpr std::string_view kNames[] = {"None",          "a bool",
                                         "an integer",    "a float",
                                         "text",          "bytes",
                                         "a tuple",       "a list",
                                         "a dict",        "an array",
                                         "an object",     "a name",
                                         "a number type", "an unfinished array"};
  return kNames[static_cast<size_t>(kind)];
}

Shape Array::shape() const {
  if (axes.empty()) return stored_shape;
  Shape out;
  for (const size_t axis : axes) out.push_back(stored_shape[axis]);
  return out;
}

std::optional<int64_t> Value::AsInt() const {
  if (kind_ == Kind::kInt) return integer_;
  if (kind_ != Kind::kArray || !array_.stored_shape.empty()) return std::nullopt;
  const char family = array_.type->code[0];
  if (family != 'i' && family != 'u') return std::nullopt;
  const int64_t value = IntegerAt(array_.bytes.data(), *array_.type);
  if (array_.type->code == "u8" && value < 0) return std::nullopt;
  return value;
}

std::optional<double> Value::AsDouble() const {
  if (kind_ == Kind::kFloat) return number_;
  if (const std::optional<int64_t> integer = AsInt()) return static_cast<double>(*integer);
  if (kind_ != Kind::kArray || !array_.stored_shape.empty()) return std::nullopt;
  const uint8_t* at = array_.bytes.data();
  switch (array_.type->tensor) {
    case DType::kF64: {
      double d;
      std::memcpy(&d, at, 8);
      return d;
    }
    case DType::kF32: {
      float f;
      std::memcpy(&f, at, 4);
      return double{f};
    }
    case DType::kF16:
    case DType::kBF16: {
      uint16_t h;
      std::memcpy(&h, at, 2);
      return double{array_.type->tensor == DType::kF16 ? F16ToF32(h) : BF16ToF32(h)};
    }
    default:
      return std::nullopt;
  }
}

const Value* Value::Find(std::string_view key) const {
  for (const auto& entry : entries_)
    if (entry.first->is(Kind::kString) && entry.first->text() == key) return entry.second;
  return nullptr;
}

namespace {

/// Copies elements of `array` in row-major order of its own axes: put(position, source bytes).
template <class Put>
void ForEachElement(const Array& array, Put put) {
  const Shape shape = array.shape();
  const size_t dims = shape.size(), size = array.type->size;
  const size_t count = static_cast<size_t>(ElementCount(shape));
  std::vector<size_t> stored_stride(dims, size), stride(dims), index(dims);
  for (size_t i = dims; i-- > 1;)
    stored_stride[i - 1] = stored_stride[i] * static_cast<size_t>(array.stored_shape[i]);
  for (size_t i = 0; i < dims; ++i)
    stride[i] = stored_stride[array.axes.empty() ? i : array.axes[i]];
  size_t offset = 0;
  for (size_t n = 0; n < count; ++n) {
    put(n, array.bytes.data() + offset);
    for (size_t i = dims; i-- > 0;) {  // the odometer
      offset += stride[i];
      if (++index[i] < static_cast<size_t>(shape[i])) break;
      offset -= stride[i] * index[i];
      index[i] = 0;
    }
  }
}

}  // namespace

Result<Tensor> ToTensor(const Value& value, const std::string& origin, std::string_view name) {
  if (!value.is(Kind::kArray))
    return Error(Code::kCorruptFile,
                 StrCat(origin, ": \"", name, "\" at byte ", value.offset(), " is ",
                        Describe(value.kind()), "; an array was expected"));
  const Array& array = value.array();
  const ElementType& type = *array.type;
  Tensor out(type.tensor, array.shape());
  const size_t to_size = SizeOf(type.tensor);
  if (type.size == to_size && array.axes.empty()) {
    if (!out.bytes.empty()) std::memcpy(out.bytes.data(), array.bytes.data(), out.bytes.size());
  } else if (type.size == to_size) {
    ForEachElement(array, [&](size_t n, const uint8_t* from) {
      std::memcpy(&out.bytes[n * to_size], from, to_size);
    });
  } else {
    ForEachElement(array, [&](size_t n, const uint8_t* from) {
      const int32_t wide = static_cast<int32_t>(IntegerAt(from, type));
      std::memcpy(&out.bytes[n * to_size], &wide, to_size);
    });
  }
  if (type.code == "u8")
    for (size_t i = 7; i < out.bytes.size(); i += 8)
      if (out.bytes[i] & 0x80)
        return Error(Code::kCorruptFile,
                     StrCat(origin, ": \"", name, "\" holds an unsigned number above 2^63"));
  return out;
}

}  // namespace needle::pickle
