#include <algorithm>

#include "backend/pjrt/client_core.h"
#include "base/str_cat.h"

namespace needle::pjrt {
namespace {

struct TypeRow {
  DType dtype;
  int abi;
  std::string_view name;
  size_t bytes;
};
constexpr TypeRow kTypes[] = {
    {DType::kF32, abi::kTypeF32, "f32", 4},  {DType::kS32, abi::kTypeS32, "i32", 4},
    {DType::kU32, abi::kTypeU32, "ui32", 4}, {DType::kPred, abi::kTypePred, "i1", 1},
    {DType::kF64, abi::kTypeF64, "f64", 8},  {DType::kBf16, abi::kTypeBf16, "bf16", 2},
    {DType::kF16, abi::kTypeF16, "f16", 2},
};

const TypeRow& RowOf(DType dtype) {
  for (const TypeRow& row : kTypes)
    if (row.dtype == dtype) return row;
  return kTypes[0];
}

std::string List(const std::vector<int64_t>& numbers) {
  std::string out;
  for (const int64_t n : numbers) out += StrCat(out.empty() ? "" : ",", n);
  return StrCat("[", out, "]");
}

struct ValueText {
  std::string operator()(const std::string& v) const { return v; }
  std::string operator()(int64_t v) const { return StrCat(v); }
  std::string operator()(const std::vector<int64_t>& v) const { return List(v); }
  std::string operator()(float v) const { return StrCat(v); }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
};

struct FillAbi {
  abi::NamedValue& to;
  void operator()(const std::string& v) const {
    to.type = abi::kNamedString;
    to.string_value = v.data();
    to.value_size = v.size();
  }
  void operator()(int64_t v) const {
    to.type = abi::kNamedInt64;
    to.int64_value = v;
  }
  void operator()(const std::vector<int64_t>& v) const {
    to.type = abi::kNamedInt64List;
    to.int64_list = v.data();
    to.value_size = v.size();
  }
  void operator()(float v) const {
    to.type = abi::kNamedFloat;
    to.float_value = v;
  }
  void operator()(bool v) const {
    to.type = abi::kNamedBool;
    to.bool_value = v;
  }
};

}  // namespace

size_t SizeOf(DType dtype) { return RowOf(dtype).bytes; }
std::string_view Name(DType dtype) { return RowOf(dtype).name; }
int TypeOf(DType dtype) { return RowOf(dtype).abi; }

int64_t ArraySpec::elements() const {
  int64_t n = 1;
  for (const int64_t size : shape) n *= size;
  return n;
}

size_t ArraySpec::bytes() const { return static_cast<size_t>(elements()) * SizeOf(dtype); }

std::string Describe(const ArraySpec& spec) { return StrCat(Name(spec.dtype), List(spec.shape)); }

std::string Describe(const NamedValue& value) { return std::visit(ValueText{}, value.value); }

NamedValue FromAbi(const abi::NamedValue& from) {
  NamedValue to{{from.name, from.name_size}, {}};
  switch (from.type) {
    case abi::kNamedInt64:
      to.value = from.int64_value;
      break;
    case abi::kNamedInt64List:
      to.value = std::vector<int64_t>(from.int64_list, from.int64_list + from.value_size);
      break;
    case abi::kNamedFloat:
      to.value = from.float_value;
      break;
    case abi::kNamedBool:
      to.value = from.bool_value;
      break;
    case abi::kNamedString:
      to.value = std::string(from.string_value, from.value_size);
      break;
    default:
      to.value = std::string("(a value of a kind that is not known here)");
  }
  return to;
}

abi::NamedValue ToAbi(const NamedValue& from) {
  abi::NamedValue to = abi::Args<abi::NamedValue>();
  to.name = from.name.data();
  to.name_size = from.name.size();
  to.value_size = 1;
  std::visit(FillAbi{to}, from.value);
  return to;
}

}  // namespace needle::pjrt
