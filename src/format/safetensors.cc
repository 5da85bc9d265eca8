#include "format/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>
#include <string_view>

#include "base/str_cat.h"
#include "json/json.h"

namespace needle {
namespace {

constexpr uint64_t kMaxHeader = 100'000'000;  // the reference implementation's own limit
constexpr int64_t kMaxElements = int64_t{1} << 46;

struct NamedType {
  std::string_view name;
  DType type;
};
constexpr std::array<NamedType, 9> kTypes = {{{"F16", DType::kF16},
                                              {"BF16", DType::kBF16},
                                              {"F32", DType::kF32},
                                              {"F64", DType::kF64},
                                              {"I32", DType::kI32},
                                              {"I64", DType::kI64},
                                              {"U8", DType::kU8},
                                              {"U32", DType::kU32},
                                              {"BOOL", DType::kBool}}};

std::optional<DType> TypeNamed(std::string_view name) {
  for (const NamedType& t : kTypes)
    if (t.name == name) return t.type;
  return std::nullopt;
}

std::string_view NameOf(DType type) {
  for (const NamedType& t : kTypes)
    if (t.type == type) return t.name;
  return "?";
}

uint64_t HeaderLength(std::span<const uint8_t> bytes) {
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | bytes[i];
  return length;
}

/// A key that comes twice in one object of valid JSON text, as written there; "" if there is none.
/// (The parser keeps the last value, as Python does, and so cannot tell.)
std::string RepeatedKey(std::string_view text) {
  std::vector<std::set<std::string_view>> keys;  // of the objects and arrays that are open
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' || text[i] == '[') keys.emplace_back();
    if (text[i] == '}' || text[i] == ']') keys.pop_back();
    if (text[i] != '"') continue;
    const size_t begin = ++i;
    while (text[i] != '"') i += text[i] == '\\' ? 2 : 1;
    const std::string_view key = text.substr(begin, i - begin);
    const size_t next = text.find_first_not_of(" \t\r\n", i + 1);
    if (next == text.npos || text[next] != ':') continue;
    if (!keys.back().insert(key).second) return std::string(key);
  }
  return "";
}

/// Members counted in the text, to compare with the members that were kept.
size_t CountMembers(const json::Value& v) {
  size_t count = v.members().size();
  for (const auto& member : v.members()) count += CountMembers(member.second);
  for (const json::Value& item : v.items()) count += CountMembers(item);
  return count;
}
size_t CountColons(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ':') ++count;
    if (text[i] != '"') continue;
    for (++i; text[i] != '"';) i += text[i] == '\\' ? 2 : 1;
  }
  return count;
}

struct Extent {
  uint64_t begin = 0, end = 0;
  std::string name;
};

class Reader {
 public:
  Reader(std::span<const uint8_t> bytes, const std::string& origin)
      : bytes_(bytes), origin_(origin) {}

  Result<SafeTensors> Run() {
    NEEDLE_ASSIGN(const json::Value header, Header());
    for (const auto& member : header.members()) {
      if (member.first == "__metadata__") {
        NEEDLE_TRY(Metadata(member.second));
      } else {
        NEEDLE_TRY(ReadTensor(member.first, member.second));
      }
    }
    NEEDLE_TRY(CheckCover());
    for (const Extent& e : extents_) {  // only now that no two share bytes is anything allocated
      const auto from = data_.subspan(static_cast<size_t>(e.begin), e.end - e.begin);
      out_.tensors.at(e.name).bytes.assign(from.begin(), from.end());
    }
    return std::move(out_);
  }

 private:
  template <class... Pieces>
  Error Fail(const Pieces&... pieces) const {
    return Error(Code::kCorruptFile, StrCat(origin_, ": ", pieces...));
  }
  template <class... Pieces>
  Error FailTensor(const std::string& name, const Pieces&... pieces) const {
    return Fail("tensor \"", name, "\": ", pieces...);
  }

  Result<json::Value> Header() {
    if (bytes_.size() < 8)
      return Fail("only ", bytes_.size(), " bytes; a safetensors file has at least 8");
    const uint64_t length = HeaderLength(bytes_);
    if (length > kMaxHeader || length > bytes_.size() - 8)
      return Fail("the header length at byte 0 is ", length, ", but only ", bytes_.size() - 8,
                  " bytes follow; the file is cut short or is no safetensors file");
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + 8,
                                static_cast<size_t>(length));
    data_ = bytes_.subspan(8 + static_cast<size_t>(length));
    if (text.empty() || text[0] != '{') return Fail("the header at byte 8 does not begin with {");
    Result<json::Value> header = json::Parse(text);
    if (!header.ok()) return Fail("header (from byte 8 on): ", header.error().message());
    if (const std::string key = RepeatedKey(text); !key.empty())
      return Fail("the name \"", key, "\" comes twice in the header");
    if (CountColons(text) != CountMembers(*header))
      return Fail("a name comes twice in the header, in two spellings");
    return header;
  }

  Status Metadata(const json::Value& value) {
    if (!value.is_object()) return Fail("__metadata__ is not an object of texts");
    for (const auto& member : value.members()) {
      if (!member.second.is_string())
        return Fail("__metadata__ entry \"", member.first, "\" is not text");
      out_.metadata[member.first] = member.second.as_string();
    }
    return {};
  }

  Result<Shape> ReadShape(const std::string& name, const json::Value* value) const {
    if (!value || !value->is_array()) return FailTensor(name, "has no \"shape\" list");
    Shape shape;
    int64_t elements = 1;  // of the dimensions that are not 0, so that a 0 hides no overflow
    for (const json::Value& item : value->items()) {
      const std::optional<int64_t> n = item.is_int() ? item.as_int64() : std::nullopt;
      if (!n || *n < 0 || *n > kMaxElements / elements)
        return FailTensor(name, "shape ", json::Dump(*value), " is not a list of sizes");
      elements *= std::max<int64_t>(*n, 1);
      shape.push_back(*n);
    }
    return shape;
  }

  static std::optional<uint64_t> Offset(const json::Value& v) {
    const std::optional<int64_t> n = v.is_int() ? v.as_int64() : std::nullopt;
    if (!n || *n < 0) return std::nullopt;
    return static_cast<uint64_t>(*n);
  }

  Status ReadTensor(const std::string& name, const json::Value& value) {
    const json::Value* const dtype = value.Find("dtype");
    const json::Value* const offsets = value.Find("data_offsets");
    if (!dtype || !dtype->is_string()) return FailTensor(name, "has no \"dtype\" text");
    const std::optional<DType> type = TypeNamed(dtype->as_string());
    if (!type)
      return FailTensor(name, "type \"", dtype->as_string(),
                        "\" is not read; F16, BF16, F32, F64, I32, I64, U8, U32 and BOOL are");
    Tensor tensor;
    tensor.dtype = *type;
    NEEDLE_ASSIGN(tensor.shape, ReadShape(name, value.Find("shape")));
    if (!offsets || !offsets->is_array() || offsets->items().size() != 2)
      return FailTensor(name, "has no \"data_offsets\" pair");
    const auto begin = Offset(offsets->items()[0]), end = Offset(offsets->items()[1]);
    if (!begin || !end || *begin > *end || *end > data_.size())
      return FailTensor(name, "data_offsets ", json::Dump(*offsets), " lie outside the ",
                        data_.size(), " data bytes; the file is cut short or damaged");
    const uint64_t wanted = tensor.size() * SizeOf(*type);
    if (*end - *begin != wanted)
      return FailTensor(name, "shape ", ToText(tensor.shape), " of ", Name(*type), " needs ",
                        wanted, " bytes, data_offsets hold ", *end - *begin);
    extents_.push_back({*begin, *end, name});
    out_.tensors.emplace(name, std::move(tensor));
    return {};
  }

  /// The tensors cover the data bytes once each.
  Status CheckCover() {
    std::sort(extents_.begin(), extents_.end(), [](const Extent& a, const Extent& b) {
      return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
    });
    uint64_t at = 0;
    for (const Extent& e : extents_) {
      if (e.begin != at)
        return FailTensor(e.name, "begins at data byte ", e.begin,
                          e.begin < at ? ", inside the tensor before it, which ends at "
                                       : ", leaving a hole behind the tensor that ends at ",
                          at);
      at = e.end;
    }
    if (at != data_.size())
      return Fail(data_.size() - at, " bytes from data byte ", at, " on belong to no tensor");
    return {};
  }

  const std::span<const uint8_t> bytes_;
  const std::string& origin_;
  std::span<const uint8_t> data_;
  std::vector<Extent> extents_;
  SafeTensors out_;
};

json::Value HeaderEntry(const Tensor& tensor, uint64_t begin) {
  std::vector<json::Value> shape;
  for (const int64_t n : tensor.shape) shape.push_back(json::Value::Int(n));
  const auto offset = [](uint64_t at) { return json::Value::Int(static_cast<int64_t>(at)); };
  return json::Value::Object(
      {{"dtype", json::Value::String(std::string(NameOf(tensor.dtype)))},
       {"shape", json::Value::Array(std::move(shape))},
       {"data_offsets", json::Value::Array({offset(begin), offset(begin + tensor.bytes.size())})}});
}

}  // namespace

Result<SafeTensors> ParseSafeTensors(std::span<const uint8_t> bytes, const std::string& origin) {
  return Reader(bytes, origin).Run();
}

std::vector<uint8_t> WriteSafeTensors(const SafeTensors& file) {
  std::vector<const TensorMap::value_type*> order;
  for (const auto& named : file.tensors) order.push_back(&named);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return SizeOf(a->second.dtype) > SizeOf(b->second.dtype);
  });
  json::Value header = json::Value::Object();
  if (!file.metadata.empty()) {
    json::Value metadata = json::Value::Object();
    for (const auto& entry : file.metadata)
      metadata.Set(entry.first, json::Value::String(entry.second));
    header.Set("__metadata__", std::move(metadata));
  }
  uint64_t at = 0;
  for (const auto* named : order) {
    header.Set(named->first, HeaderEntry(named->second, at));
    at += named->second.bytes.size();
  }
  std::string text = json::Dump(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::vector<uint8_t> out;
  out.reserve(8 + text.size() + at);
  for (int i = 0; i < 8; ++i)
    out.push_back(static_cast<uint8_t>(static_cast<uint64_t>(text.size()) >> (8 * i)));
  out.insert(out.end(), text.begin(), text.end());
  for (const auto* named : order)
    out.insert(out.end(), named->second.bytes.begin(), named->second.bytes.end());
  return out;
}

bool LooksLikeSafeTensors(std::span<const uint8_t> bytes) {
  return bytes.size() >= 9 && bytes[8] == '{' && HeaderLength(bytes) <= kMaxHeader;
}

}  // namespace needle
