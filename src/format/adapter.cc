#include "format/adapter.h"

#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include "base/file.h"
#include "base/parse_integer.h"
#include "base/str_cat.h"
#include "format/pickle.h"
#include "format/safetensors.h"
#include "format/sniff.h"
#include "json/json.h"

namespace needle {
namespace {

using pickle::Kind;
using pickle::Value;

Error Corrupt(const std::string& origin, const std::string& sentence) {
  return Error(Code::kCorruptFile, StrCat(origin, ": ", sentence));
}

bool IsFloating(DType t) {
  return t == DType::kF16 || t == DType::kBF16 || t == DType::kF32 || t == DType::kF64;
}

/// The plain fields as a file gives them; absent ones stay empty.
struct Fields {
  std::optional<double> scale;
  std::optional<int64_t> rank, qat_bits;
  std::optional<uint64_t> seed;
};

Error TooLarge(const char* key, uint64_t most, const std::string& origin) {
  return Corrupt(origin, StrCat("\"", key, "\" is too large; at most ", most, " is read"));
}

/// A seed from the number that a file holds: `small`, or its digits where it is too large for that.
/// One above 2^63 was once written as the negative number of the same bits.
Status SeedFrom(std::optional<int64_t> small, std::string_view digits, const std::string& origin,
                std::optional<uint64_t>& out) {
  out = small ? static_cast<uint64_t>(*small) : ParseInteger<uint64_t>(digits);
  return out ? Status() : Status(TooLarge("seed", std::numeric_limits<uint64_t>::max(), origin));
}

Status CheckPair(const std::string& path, const LoraPair& pair, const std::string& origin) {
  const Shape &a = pair.a.shape, &b = pair.b.shape;
  const auto bad = [&](const char* what) {
    return Corrupt(origin,
                   StrCat("\"", path, "\": A is ", ToText(a), " and B is ", ToText(b), "; ", what));
  };
  if (a.size() != 3 || b.size() != 3)
    return bad("[layers, in, rank] and [layers, rank, out] are wanted");
  if (a[0] != b[0]) return bad("both need the same number of layers");
  if (a[2] != b[1]) return bad("A's last size and B's middle size are the rank and must be equal");
  if (pair.a.size() == 0 || pair.b.size() == 0) return bad("neither may be empty");
  return {};
}

/// Converts to float32, checks the shapes against each other and fills the plain fields.
Result<Adapter> Assemble(Adapter adapter, const Fields& fields, const std::string& origin) {
  if (adapter.lora.empty())
    return Corrupt(origin, "the adapter holds no weights (\"lora\" is empty)");
  if (!fields.scale || !std::isfinite(*fields.scale))
    return Corrupt(origin, "has no finite number as \"scale\"; it is not a Needle adapter");
  adapter.scale = *fields.scale;
  const int64_t rank = fields.rank.value_or(adapter.lora.begin()->second.a.shape.empty()
                                                ? 0
                                                : adapter.lora.begin()->second.a.shape.back());
  for (auto& entry : adapter.lora) {
    for (Tensor* t : {&entry.second.a, &entry.second.b}) {
      if (!IsFloating(t->dtype))
        return Corrupt(origin, StrCat("\"", entry.first, "\" holds ", Name(t->dtype),
                                      " values; floats are wanted"));
      *t = t->As(DType::kF32);
    }
    NEEDLE_TRY(CheckPair(entry.first, entry.second, origin));
    if (entry.second.a.shape[2] != rank)
      return Corrupt(origin, StrCat("\"", entry.first, "\" has rank ", entry.second.a.shape[2],
                                    ", but the adapter says ", rank));
  }
  if (rank > std::numeric_limits<int>::max())
    return TooLarge("rank", std::numeric_limits<int>::max(), origin);
  if (rank < 1) return Corrupt(origin, StrCat("\"rank\" is ", rank, "; at least 1 is wanted"));
  adapter.rank = static_cast<int>(rank);
  const int64_t bits = fields.qat_bits.value_or(0);
  if (bits != 0 && bits != 2 && bits != 4)
    return Corrupt(origin, StrCat("\"qat_bits\" is ", bits, "; 2, 4 or None is wanted"));
  adapter.qat_bits = static_cast<int>(bits);
  adapter.seed = fields.seed.value_or(0);
  return adapter;
}

// ---- pickle ------------------------------------------------------------------------------------
class PickleFields {
 public:
  PickleFields(const Value& root, const std::string& origin) : root_(root), origin_(origin) {}

  /// None and a missing key are both "nothing".
  const Value* Find(const char* key) const {
    const Value* const value = root_.Find(key);
    return value && !value->is(Kind::kNone) ? value : nullptr;
  }
  Status Read(const char* key, std::optional<int64_t>& out) const {
    const Value* const value = Find(key);
    if (!value) return {};
    out = value->AsInt();
    if (!out && value->is(Kind::kInt))
      return TooLarge(key, std::numeric_limits<int>::max(), origin_);
    return out ? Status() : Status(Wrong(key, *value, "a whole number"));
  }
  Status ReadSeed(std::optional<uint64_t>& out) const {
    const Value* const value = Find("seed");
    if (!value) return {};
    const std::optional<int64_t> small = value->AsInt();
    if (!small && !value->is(Kind::kInt)) return Wrong("seed", *value, "a whole number");
    return SeedFrom(small, value->text(), origin_, out);
  }
  Status Read(const char* key, std::optional<double>& out) const {
    const Value* const value = Find(key);
    if (!value) return {};
    out = value->AsDouble();
    return out ? Status() : Status(Wrong(key, *value, "a number"));
  }
  Status Read(const char* key, std::string& out) const {
    const Value* const value = Find(key);
    if (!value) return {};
    out = value->text();
    return value->is(Kind::kString) ? Status() : Status(Wrong(key, *value, "text"));
  }
  Error Wrong(const char* key, const Value& value, const char* wanted) const {
    return Corrupt(origin_, StrCat("\"", key, "\" is ", pickle::Describe(value.kind()), " at byte ",
                                   value.offset(), "; ", wanted, " is wanted"));
  }

 private:
  const Value& root_;
  const std::string& origin_;
};

Result<Adapter> FromPickleBytes(std::span<const uint8_t> bytes, const std::string& origin) {
  NEEDLE_ASSIGN(const pickle::Document document, pickle::Document::Parse(bytes, origin));
  const PickleFields root(document.root(), origin);
  const Value* const lora = root.Find("lora");
  if (!lora)
    return Corrupt(origin, root.Find("params")
                               ? "is a checkpoint, not an adapter; give it as the base checkpoint"
                               : "has no \"lora\"; it is not a Needle adapter");
  if (!lora->is(Kind::kDict)) return root.Wrong("lora", *lora, "a dict");
  Adapter out;
  for (const auto& entry : lora->entries()) {
    if (!entry.first->is(Kind::kString))
      return root.Wrong("lora", *entry.first, "a parameter path");
    const std::string path(entry.first->text());
    const Value *a = entry.second->Find("A"), *b = entry.second->Find("B");
    if (!a || !b) return Corrupt(origin, StrCat("\"", path, "\" has no \"A\" and \"B\" arrays"));
    LoraPair& pair = out.lora[path];
    NEEDLE_ASSIGN(pair.a, pickle::ToTensor(*a, origin, path + "/A"));
    NEEDLE_ASSIGN(pair.b, pickle::ToTensor(*b, origin, path + "/B"));
  }
  Fields fields;
  NEEDLE_TRY(root.Read("scale", fields.scale));
  NEEDLE_TRY(root.Read("base", out.base));
  NEEDLE_TRY(root.Read("rank", fields.rank));
  NEEDLE_TRY(root.Read("qat_bits", fields.qat_bits));
  NEEDLE_TRY(root.Read("qat_bits_map", out.qat_bits_map));
  NEEDLE_TRY(root.ReadSeed(fields.seed));
  return Assemble(std::move(out), fields, origin);
}

// ---- safetensors -------------------------------------------------------------------------------
constexpr std::string_view kPrefix = "lora/";

/// A metadata text that is a JSON number or null; nothing when absent or null.
Result<json::Value> NumberOf(const SafeTensors& file, const char* key, const std::string& origin) {
  const auto at = file.metadata.find(key);
  if (at == file.metadata.end()) return json::Value::Null();
  Result<json::Value> value = json::Parse(at->second);
  if (!value.ok() || (!value->is_number() && !value->is_null()))
    return Corrupt(origin, StrCat("metadata \"", key, "\" is not a number"));
  return value;
}

Error NotWhole(const char* key, const std::string& origin) {
  return Corrupt(origin, StrCat("metadata \"", key, "\" is not a whole number"));
}

Status ReadInt(const SafeTensors& file, const char* key, const std::string& origin,
               std::optional<int64_t>& out) {
  NEEDLE_ASSIGN(const json::Value value, NumberOf(file, key, origin));
  if (value.is_null()) return {};
  if (!value.is_int()) return NotWhole(key, origin);
  out = value.as_int64();
  return out ? Status() : Status(TooLarge(key, std::numeric_limits<int>::max(), origin));
}

Status ReadSeed(const SafeTensors& file, const std::string& origin, std::optional<uint64_t>& out) {
  NEEDLE_ASSIGN(const json::Value value, NumberOf(file, "seed", origin));
  if (value.is_null()) return {};
  if (!value.is_int()) return NotWhole("seed", origin);
  return SeedFrom(value.as_int64(), json::Dump(value), origin, out);
}

Result<Adapter> FromSafeTensorsBytes(std::span<const uint8_t> bytes, const std::string& origin) {
  NEEDLE_ASSIGN(SafeTensors file, ParseSafeTensors(bytes, origin));
  if (file.metadata.count("config"))
    return Corrupt(origin, "is a checkpoint, not an adapter; give it as the base checkpoint");
  Adapter out;
  for (auto& entry : file.tensors) {
    const std::string_view name = entry.first;
    const bool is_a = name.ends_with("/A"), is_b = name.ends_with("/B");
    if (!name.starts_with(kPrefix) || (!is_a && !is_b) || name.size() < kPrefix.size() + 3)
      return Corrupt(origin, StrCat("tensor \"", name,
                                    "\" is not lora/<path>/A or B; the file is "
                                    "not a Needle adapter"));
    LoraPair& pair =
        out.lora[std::string(name.substr(kPrefix.size(), name.size() - kPrefix.size() - 2))];
    (is_a ? pair.a : pair.b) = std::move(entry.second);
  }
  for (const auto& entry : out.lora)
    if (entry.second.a.bytes.empty() || entry.second.b.bytes.empty())
      return Corrupt(origin, StrCat("\"", entry.first, "\" has no \"A\" and \"B\" arrays"));
  Fields fields;
  NEEDLE_ASSIGN(const json::Value scale, NumberOf(file, "scale", origin));
  if (!scale.is_null()) fields.scale = scale.as_double();
  NEEDLE_TRY(ReadInt(file, "rank", origin, fields.rank));
  NEEDLE_TRY(ReadSeed(file, origin, fields.seed));
  NEEDLE_TRY(ReadInt(file, "qat_bits", origin, fields.qat_bits));
  if (file.metadata.count("base")) out.base = file.metadata["base"];
  if (file.metadata.count("qat_bits_map")) out.qat_bits_map = file.metadata["qat_bits_map"];
  return Assemble(std::move(out), fields, origin);
}

}  // namespace

Result<Adapter> ParseAdapter(std::span<const uint8_t> bytes, const std::string& origin) {
  switch (KindOfBytes(bytes)) {
    case FileKind::kPickle:
      return FromPickleBytes(bytes, origin);
    case FileKind::kSafeTensors:
      return FromSafeTensorsBytes(bytes, origin);
    default:
      return NotTheKindWanted(bytes, origin, "an adapter");
  }
}

Result<Adapter> LoadAdapter(const std::string& path) {
  NEEDLE_ASSIGN(const MappedFile file, MappedFile::Open(path));
  return ParseAdapter(file.bytes(), path);
}

std::vector<uint8_t> AdapterToPickle(const Adapter& adapter) {
  pickle::Writer w;
  w.BeginDict();
  w.String("lora");
  w.BeginDict();
  for (const auto& entry : adapter.lora) {
    w.String(entry.first);
    w.BeginDict();
    w.String("A");
    w.Array(entry.second.a);
    w.String("B");
    w.Array(entry.second.b);
    w.EndDict();
  }
  w.EndDict();
  w.String("scale");
  w.Float(adapter.scale);
  w.String("base");
  w.String(adapter.base);
  w.String("rank");
  w.Int(adapter.rank);
  w.String("qat_bits");
  adapter.qat_bits ? w.Int(adapter.qat_bits) : w.None();
  w.String("qat_bits_map");
  adapter.qat_bits_map.empty() ? w.None() : w.String(adapter.qat_bits_map);
  w.String("seed");
  w.UnsignedInt(adapter.seed);
  w.EndDict();
  return w.Finish();
}

std::vector<uint8_t> AdapterToSafeTensors(const Adapter& adapter) {
  SafeTensors file;
  for (const auto& entry : adapter.lora) {
    file.tensors[StrCat(kPrefix, entry.first, "/A")] = entry.second.a;
    file.tensors[StrCat(kPrefix, entry.first, "/B")] = entry.second.b;
  }
  file.metadata["scale"] = json::PythonFloat(adapter.scale);
  file.metadata["base"] = adapter.base;
  file.metadata["rank"] = std::to_string(adapter.rank);
  file.metadata["seed"] = std::to_string(adapter.seed);
  if (adapter.qat_bits) file.metadata["qat_bits"] = std::to_string(adapter.qat_bits);
  if (!adapter.qat_bits_map.empty()) file.metadata["qat_bits_map"] = adapter.qat_bits_map;
  return WriteSafeTensors(file);
}

Status SaveAdapter(const std::string& path, const Adapter& adapter) {
  NEEDLE_ASSIGN(const WriteAs format, WriteFormatOf(path));
  return WriteFileAtomically(
      path, std::span<const uint8_t>(format == WriteAs::kPickle ? AdapterToPickle(adapter)
                                                                : AdapterToSafeTensors(adapter)));
}

}  // namespace needle
