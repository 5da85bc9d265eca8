#include "format/inspect.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <span>
#include <utility>

#include "base/file.h"
#include "base/str_cat.h"
#include "format/adapter.h"
#include "format/cact.h"
#include "format/checkpoint.h"
#include "format/config_fields.h"
#include "format/safetensors.h"
#include "format/sniff.h"
#include "text/tokenizer.h"

namespace needle {
namespace {

using Bytes = std::span<const uint8_t>;

bool IsFloating(DType t) {
  return t == DType::kF16 || t == DType::kBF16 || t == DType::kF32 || t == DType::kF64;
}

template <class At>
ValueStats StatsOf(size_t count, At at) {
  ValueStats s;
  double sum = 0;
  size_t finite = 0;
  for (size_t i = 0; i < count; ++i) {
    const double v = at(i);
    if (!std::isfinite(v)) continue;
    s.min = finite ? std::min(s.min, v) : v;
    s.max = finite ? std::max(s.max, v) : v;
    sum += std::abs(v);
    ++finite;
  }
  s.not_finite = count - finite;
  if (finite) s.mean_abs = sum / static_cast<double>(finite);
  return s;
}

void AddTensor(const std::string& name, const Tensor& tensor, FileDescription& out) {
  TensorDescription d{name, std::string(Name(tensor.dtype)), tensor.shape, tensor.bytes.size(), {}};
  if (IsFloating(tensor.dtype))
    d.stats = StatsOf(tensor.size(), [&](size_t i) { return tensor.At(i); });
  out.values += tensor.size();
  out.tensors.push_back(std::move(d));
}

json::Value TextOrNull(const std::string& text) {
  return text.empty() ? json::Value::Null() : json::Value::String(text);
}

FileDescription Describe(const Checkpoint& checkpoint) {
  FileDescription out;
  out.kind = "checkpoint";
  out.config = ConfigToJson(checkpoint.config);
  out.metadata.Set("format_version", json::Value::Int(kCheckpointVersion));
  out.metadata.Set("step", json::Value::Int(checkpoint.step));
  out.metadata.Set("run_stage", TextOrNull(checkpoint.run_stage));
  for (const auto& named : checkpoint.params) AddTensor(named.first, named.second, out);
  return out;
}

FileDescription Describe(const Adapter& adapter) {
  FileDescription out;
  out.kind = "adapter";
  out.metadata.Set("scale", json::Value::Float(adapter.scale));
  out.metadata.Set("base", json::Value::String(adapter.base));
  out.metadata.Set("rank", json::Value::Int(adapter.rank));
  out.metadata.Set("qat_bits",
                   adapter.qat_bits ? json::Value::Int(adapter.qat_bits) : json::Value::Null());
  out.metadata.Set("qat_bits_map", TextOrNull(adapter.qat_bits_map));
  out.metadata.Set("seed", json::Value::Number(std::to_string(adapter.seed)));
  for (const auto& entry : adapter.lora) {
    AddTensor(entry.first + "/A", entry.second.a, out);
    AddTensor(entry.first + "/B", entry.second.b, out);
  }
  return out;
}

FileDescription Describe(const SafeTensors& file) {
  FileDescription out;
  out.kind = "arrays";
  for (const auto& entry : file.metadata)  // a map: no key comes twice
    out.metadata.members().emplace_back(entry.first, json::Value::String(entry.second));
  for (const auto& named : file.tensors) AddTensor(named.first, named.second, out);
  return out;
}

FileDescription Describe(const Tokenizer& tokenizer) {
  constexpr std::array<const char*, 5> kTypes = {"normal", "unknown", "control", "user_defined",
                                                 "byte"};
  std::array<int64_t, 5> counts{};
  for (size_t id = 0; id < tokenizer.size(); ++id)
    ++counts[static_cast<size_t>(tokenizer.piece(static_cast<int32_t>(id)).type)];
  FileDescription out;
  out.kind = "tokenizer";
  out.metadata.Set("pieces", json::Value::Int(static_cast<int64_t>(tokenizer.size())));
  for (size_t t = 0; t < counts.size(); ++t)
    out.metadata.Set(kTypes[t], json::Value::Int(counts[t]));
  return out;
}

TensorDescription Describe(const CactTensor& tensor) {
  TensorDescription d{
      tensor.name, std::string(Name(tensor.type)), tensor.shape, tensor.bytes.size(), {}};
  if (tensor.type == CactType::kCodes) d.type = StrCat("codes ", Name(tensor.bits), " bit");
  if (tensor.type != CactType::kRaw) {
    const std::vector<float> values = ToFloats(tensor);
    d.stats = StatsOf(values.size(), [&](size_t i) { return values[i]; });
  }
  return d;
}

Result<FileDescription> Describe(const CactModel& model, const std::string& origin) {
  FileDescription out;
  out.kind = "archive";
  out.config = ConfigToJson(model.config);
  out.metadata.Set("kv_window", json::Value::Int(model.kv_window));
  out.metadata.Set("contrastive_head", json::Value::Bool(model.heads.contrastive));
  out.metadata.Set("confidence_head", json::Value::Bool(model.heads.confidence));
  std::map<std::string, int64_t> widths;  // how many tensors of codes have each width
  for (const CactTensor& tensor : model.tensors) {
    out.tensors.push_back(Describe(tensor));
    if (tensor.type == CactType::kCodes) ++widths[std::string(Name(tensor.bits))];
    if (tensor.type != CactType::kRaw)
      out.values += static_cast<uint64_t>(ElementCount(tensor.shape));
  }
  json::Value bits = json::Value::Object();
  for (const auto& width : widths) bits.Set(width.first, json::Value::Int(width.second));
  out.metadata.Set("tensors_by_bits", std::move(bits));
  NEEDLE_ASSIGN(const Tokenizer tokenizer, Tokenizer::FromBlob(model.tokenizer_blob(), origin));
  out.metadata.Set("tokenizer", Describe(tokenizer).metadata);
  return out;
}

/// A pickle is a checkpoint or an adapter: the one reader says when it is the other.
Result<FileDescription> DescribePickle(Bytes bytes, const std::string& path) {
  const Result<Adapter> adapter = ParseAdapter(bytes, path);
  if (adapter.ok()) return Describe(*adapter);
  const Result<Checkpoint> checkpoint = ParseCheckpoint(bytes, path);
  if (checkpoint.ok()) return Describe(*checkpoint);
  // Both failed: the checkpoint reader's sentence, unless it is that the file is an adapter.
  const bool is_adapter = checkpoint.error().message().find("is an adapter") != std::string::npos;
  return is_adapter ? adapter.error() : checkpoint.error();
}

Result<FileDescription> DescribeSafeTensors(Bytes bytes, const std::string& path) {
  NEEDLE_ASSIGN(const SafeTensors file, ParseSafeTensors(bytes, path));
  if (file.metadata.count("config")) {
    NEEDLE_ASSIGN(const Checkpoint checkpoint, ParseCheckpoint(bytes, path));
    return Describe(checkpoint);
  }
  if (file.metadata.count("scale")) {
    NEEDLE_ASSIGN(const Adapter adapter, ParseAdapter(bytes, path));
    return Describe(adapter);
  }
  return Describe(file);
}

/// Without a tag of their own: SentencePiece's protobuf begins with field 1, a tokenizer blob with
/// its number of pieces (never as few as that byte would mean).
constexpr uint8_t kProtobufField1 = 0x0A;

Result<FileDescription> DescribeTokenizer(Bytes bytes, const std::string& path) {
  const bool proto = !bytes.empty() && bytes[0] == kProtobufField1;
  const Result<Tokenizer> tokenizer =
      proto ? Tokenizer::FromModelProto(bytes, path) : Tokenizer::FromBlob(bytes, path);
  if (!tokenizer.ok() && proto) return tokenizer.error();
  if (!tokenizer.ok())
    return Error(Code::kCorruptFile,
                 StrCat(path,
                        ": is no checkpoint, adapter, safetensors file, archive or tokenizer "
                        "that can be read; as a tokenizer: ",
                        tokenizer.error().message()));
  FileDescription out = Describe(*tokenizer);
  out.format = proto ? "SentencePiece model" : "tokenizer blob";
  return out;
}

Result<FileDescription> DescribeBytes(Bytes bytes, const std::string& path) {
  if (bytes.empty()) return Error(Code::kCorruptFile, StrCat(path, ": the file is empty"));
  switch (KindOfBytes(bytes)) {
    case FileKind::kPickle: {
      NEEDLE_ASSIGN(FileDescription out, DescribePickle(bytes, path));
      out.format = "pickle";
      return out;
    }
    case FileKind::kSafeTensors: {
      NEEDLE_ASSIGN(FileDescription out, DescribeSafeTensors(bytes, path));
      out.format = "safetensors";
      return out;
    }
    case FileKind::kCact:
    case FileKind::kCact3: {  // the archive reader refuses Needle 3 by name
      NEEDLE_ASSIGN(const CactModel model, CactModel::Open(path));
      NEEDLE_ASSIGN(FileDescription out, Describe(model, path));
      out.format = "cact";
      return out;
    }
    case FileKind::kZip:
      return NotTheKindWanted(bytes, path, "a checkpoint or adapter");
    case FileKind::kOther:
      break;
  }
  return DescribeTokenizer(bytes, path);
}

// ---- text --------------------------------------------------------------------------------------
std::string Padded(std::string text, size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

std::string Number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", v);
  return text;
}

std::string Plain(const json::Value& v) {
  const bool nothing = v.is_null() || (v.is_string() && v.as_string().empty());
  if (nothing) return "(none)";
  return v.is_string() ? v.as_string() : json::Dump(v);
}

void AddFields(const json::Value& object, const char* title, std::string& out) {
  if (object.members().empty()) return;
  size_t width = 0;
  for (const auto& member : object.members()) width = std::max(width, member.first.size());
  out += StrCat(title, "\n");
  for (const auto& member : object.members())
    out += StrCat("  ", Padded(member.first, width + 2), Plain(member.second), "\n");
}

using Row = std::array<std::string, 6>;

Row RowOf(const TensorDescription& t) {
  Row row = {t.name, t.type, ToText(t.shape), "", "", ""};
  if (!t.stats) return row;
  row[3] = Number(t.stats->min);
  row[4] = Number(t.stats->max);
  row[5] = Number(t.stats->mean_abs);
  if (t.stats->not_finite) row[5] += StrCat("  (", t.stats->not_finite, " not finite)");
  return row;
}

void AddTable(const std::vector<TensorDescription>& tensors, std::string& out) {
  if (tensors.empty()) return;
  std::vector<Row> rows = {{"tensor", "type", "shape", "min", "max", "mean |x|"}};
  for (const TensorDescription& t : tensors) rows.push_back(RowOf(t));
  std::array<size_t, 6> width{};
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  for (const Row& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) line += Padded(row[i], width[i] + 2);
    out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
}

json::Value Unsigned(uint64_t v) { return json::Value::Int(static_cast<int64_t>(v)); }

json::Value ToJson(const TensorDescription& t) {
  json::Value out = json::Value::Object();
  out.Set("name", json::Value::String(t.name));
  out.Set("type", json::Value::String(t.type));
  std::vector<json::Value> shape;
  for (const int64_t n : t.shape) shape.push_back(json::Value::Int(n));
  out.Set("shape", json::Value::Array(std::move(shape)));
  out.Set("bytes", Unsigned(t.bytes));
  if (!t.stats) return out;
  out.Set("min", json::Value::Float(t.stats->min));
  out.Set("max", json::Value::Float(t.stats->max));
  out.Set("mean_abs", json::Value::Float(t.stats->mean_abs));
  out.Set("not_finite", Unsigned(t.stats->not_finite));
  return out;
}

}  // namespace

Result<FileDescription> DescribeFile(const std::string& path) {
  NEEDLE_ASSIGN(const MappedFile file, MappedFile::Open(path));
  NEEDLE_ASSIGN(FileDescription out, DescribeBytes(file.bytes(), path));
  out.path = path;
  out.bytes = file.bytes().size();
  return out;
}

json::Value ToJson(const FileDescription& d) {
  std::vector<json::Value> tensors;
  for (const TensorDescription& t : d.tensors) tensors.push_back(ToJson(t));
  return json::Value::Object({{"path", json::Value::String(d.path)},
                              {"kind", json::Value::String(d.kind)},
                              {"format", json::Value::String(d.format)},
                              {"bytes", Unsigned(d.bytes)},
                              {"values", Unsigned(d.values)},
                              {"config", d.config},
                              {"metadata", d.metadata},
                              {"tensors", json::Value::Array(std::move(tensors))}});
}

std::string ToText(const FileDescription& d) {
  std::string out = StrCat(d.path, "\n  ", d.kind, " (", d.format, "), ", d.bytes, " bytes");
  if (!d.tensors.empty()) out += StrCat(", ", d.tensors.size(), " tensors, ", d.values, " values");
  out += "\n";
  AddFields(d.config, "config", out);
  AddFields(d.metadata, "metadata", out);
  AddTable(d.tensors, out);
  return out;
}

}  // namespace needle
