#include "format/checkpoint.h"

#include <limits>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/file.h"
#include "base/parse_integer.h"
#include "base/str_cat.h"
#include "format/config_fields.h"
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

std::string Found(const Value& value) {
  return StrCat(pickle::Describe(value.kind()), " at byte ", value.offset());
}

// ---- config from a pickle: each returns false when the value has another type ------------------
bool FromPickle(const Value& v, int& out) {
  const std::optional<int64_t> n = v.AsInt();
  if (!n || *n < std::numeric_limits<int>::min() || *n > std::numeric_limits<int>::max())
    return false;
  out = static_cast<int>(*n);
  return true;
}
bool FromPickle(const Value& v, bool& out) {
  if (v.is(Kind::kBool)) out = v.as_bool();
  return v.is(Kind::kBool);
}
bool FromPickle(const Value& v, double& out) {
  const std::optional<double> d = v.AsDouble();
  if (d) out = *d;
  return d.has_value();
}
bool FromPickle(const Value& v, std::string& out) {
  if (v.is(Kind::kString)) out = v.text();
  return v.is(Kind::kString);
}
bool FromPickle(const Value& v, std::vector<int>& out) {
  if (!v.is(Kind::kTuple) && !v.is(Kind::kList)) return false;
  out.clear();
  for (const Value* item : v.items())
    if (!FromPickle(*item, out.emplace_back())) return false;
  return true;
}

/// Why a value is none for a field of this type.
template <class Field>
std::string WhyNot(const Value& v, const Field&) {
  if (std::is_same_v<Field, int> && v.is(Kind::kInt))
    return BeyondInt(v.AsInt() ? *v.AsInt() < 0 : v.text().starts_with('-'));
  return StrCat("is ", Found(v), ", which is of another type");
}

Result<ModelConfig> ConfigFromPickle(const Value* value, const std::string& origin) {
  if (!value) return Corrupt(origin, "has no \"config\"; it is not a Needle checkpoint");
  if (!value->is(Kind::kDict) && !value->is(Kind::kObject))
    return Corrupt(origin, StrCat("\"config\" is ", Found(*value), "; a dict was expected"));
  ModelConfig config;
  std::optional<Error> error;
  VisitConfigFields(config, [&](const char* name, auto& field) {
    const Value* found = value->Find(name);
    if (error || !found || FromPickle(*found, field)) return;
    error = Corrupt(origin, StrCat("config field \"", name, "\" ", WhyNot(*found, field)));
  });
  if (error) return *error;
  return config;
}

/// Adds the leaves of nested dicts under "a/b/c" names. The reader bounds the depth.
Status Flatten(const Value& node, const std::string& path, const std::string& origin,
               TensorMap& out) {
  if (!node.is(Kind::kDict)) {
    NEEDLE_ASSIGN(Tensor tensor, pickle::ToTensor(node, origin, path));
    out.emplace(path, std::move(tensor));
    return {};
  }
  for (const auto& entry : node.entries()) {
    if (!entry.first->is(Kind::kString) || entry.first->text().find('/') != std::string_view::npos)
      return Corrupt(origin, StrCat("a key of the parameter tree is ", Found(*entry.first),
                                    "; plain names without \"/\" are wanted"));
    const std::string name(entry.first->text());
    NEEDLE_TRY(Flatten(*entry.second, path.empty() ? name : StrCat(path, "/", name), origin, out));
  }
  return {};
}

Status CheckVersion(std::optional<int64_t> version, const std::string& origin) {
  if (version == kCheckpointVersion) return {};
  return Corrupt(origin, version ? StrCat("format_version is ", *version, "; version ",
                                          kCheckpointVersion, " is read (Needle 2)")
                                 : "has no whole number as \"format_version\"; it is not a "
                                   "Needle 2 checkpoint");
}

Status NotAnAdapter(bool has_params, bool has_lora, const std::string& origin) {
  if (has_params) return {};
  return Corrupt(origin, has_lora ? "is an adapter, not a checkpoint; give it with --lora and the "
                                    "base it was trained on as the checkpoint"
                                  : "has no \"params\"; it is not a Needle checkpoint");
}

Status Check(const Checkpoint& checkpoint, const std::string& origin) {
  const Status status = CheckParams(checkpoint.config, checkpoint.params);
  if (status.ok()) return {};
  return Corrupt(origin, status.error().message());
}

Result<Checkpoint> FromPickleBytes(std::span<const uint8_t> bytes, const std::string& origin) {
  NEEDLE_ASSIGN(const pickle::Document document, pickle::Document::Parse(bytes, origin));
  const Value& root = document.root();
  if (!root.is(Kind::kDict))
    return Corrupt(origin, StrCat("holds ", Found(root), "; a checkpoint is a dict"));
  const Value* const params = root.Find("params");
  NEEDLE_TRY(NotAnAdapter(params != nullptr, root.Find("lora") != nullptr, origin));
  const Value* const version = root.Find("format_version");
  NEEDLE_TRY(CheckVersion(version ? version->AsInt() : std::nullopt, origin));
  Checkpoint out;
  NEEDLE_ASSIGN(out.config, ConfigFromPickle(root.Find("config"), origin));
  if (!params->is(Kind::kDict))
    return Corrupt(origin, StrCat("\"params\" is ", Found(*params), "; a dict was expected"));
  NEEDLE_TRY(Flatten(*params, "", origin, out.params));
  if (const Value* step = root.Find("step"); step && !step->is(Kind::kNone)) {
    if (!step->AsInt())
      return Corrupt(origin, StrCat("\"step\" is ", Found(*step), "; a whole number is wanted"));
    out.step = *step->AsInt();
  }
  const Value* const run = root.Find("run");
  const Value* const stage = run ? run->Find("stage") : nullptr;
  if (stage && stage->is(Kind::kString)) out.run_stage = stage->text();
  NEEDLE_TRY(Check(out, origin));
  return out;
}

Result<Checkpoint> FromSafeTensorsBytes(std::span<const uint8_t> bytes, const std::string& origin) {
  NEEDLE_ASSIGN(SafeTensors file, ParseSafeTensors(bytes, origin));
  const auto text = [&](const char* key) -> const std::string* {
    const auto at = file.metadata.find(key);
    return at == file.metadata.end() ? nullptr : &at->second;
  };
  const auto number = [&](const char* key) -> std::optional<int64_t> {
    const std::string* digits = text(key);
    return digits ? ParseInteger<int64_t>(*digits) : std::nullopt;
  };
  NEEDLE_TRY(NotAnAdapter(text("config") != nullptr, text("scale") != nullptr, origin));
  NEEDLE_TRY(CheckVersion(number("format_version"), origin));
  const Result<json::Value> config = json::Parse(*text("config"));
  if (!config.ok())
    return Corrupt(origin, StrCat("metadata \"config\": ", config.error().message()));
  Checkpoint out;
  NEEDLE_ASSIGN(out.config, ConfigFromJson(*config, origin));
  if (text("step")) {
    if (!number("step")) return Corrupt(origin, "metadata \"step\" is not a whole number");
    out.step = *number("step");
  }
  if (text("run")) {
    const Result<json::Value> run = json::Parse(*text("run"));
    if (!run.ok()) return Corrupt(origin, StrCat("metadata \"run\": ", run.error().message()));
    const json::Value* const stage = run->Find("stage");
    if (stage && stage->is_string()) out.run_stage = stage->as_string();
  }
  out.params = std::move(file.tensors);
  NEEDLE_TRY(Check(out, origin));
  return out;
}

// ---- writing -----------------------------------------------------------------------------------
void Write(pickle::Writer& w, int v) { w.Int(v); }
void Write(pickle::Writer& w, bool v) { w.Bool(v); }
void Write(pickle::Writer& w, double v) { w.Float(v); }
void Write(pickle::Writer& w, const std::string& v) { w.String(v); }
void Write(pickle::Writer& w, const std::vector<int>& v) { w.Ints(v); }

/// Writes the leaves from `it` on whose names begin with `prefix` as one dict, nested at each "/".
void WriteTree(pickle::Writer& w, const std::string& prefix, TensorMap::const_iterator& it,
               TensorMap::const_iterator end) {
  w.BeginDict();
  while (it != end && it->first.starts_with(prefix)) {
    const size_t slash = it->first.find('/', prefix.size());
    if (slash == std::string::npos) {
      w.String(std::string_view(it->first).substr(prefix.size()));
      w.Array(it->second);
      ++it;
    } else {
      w.String(std::string_view(it->first).substr(prefix.size(), slash - prefix.size()));
      WriteTree(w, it->first.substr(0, slash + 1), it, end);
    }
  }
  w.EndDict();
}

}  // namespace

Result<Checkpoint> ParseCheckpoint(std::span<const uint8_t> bytes, const std::string& origin) {
  switch (KindOfBytes(bytes)) {
    case FileKind::kPickle:
      return FromPickleBytes(bytes, origin);
    case FileKind::kSafeTensors:
      return FromSafeTensorsBytes(bytes, origin);
    default:
      return NotTheKindWanted(bytes, origin, "a checkpoint");
  }
}

Result<Checkpoint> LoadCheckpoint(const std::string& path) {
  NEEDLE_ASSIGN(const MappedFile file, MappedFile::Open(path));
  return ParseCheckpoint(file.bytes(), path);
}

std::vector<uint8_t> CheckpointToPickle(const Checkpoint& checkpoint) {
  pickle::Writer w;
  w.BeginDict();
  w.String("format_version");
  w.Int(kCheckpointVersion);
  w.String("params");
  auto it = checkpoint.params.begin();
  WriteTree(w, "", it, checkpoint.params.end());
  w.String("config");
  w.BeginDict();
  VisitConfigFields(checkpoint.config, [&](const char* name, const auto& field) {
    w.String(name);
    Write(w, field);
  });
  w.EndDict();
  w.String("step");
  w.Int(checkpoint.step);
  w.String("run");
  if (checkpoint.run_stage.empty()) {
    w.None();
  } else {
    w.BeginDict();
    w.String("stage");
    w.String(checkpoint.run_stage);
    w.EndDict();
  }
  w.EndDict();
  return w.Finish();
}

std::vector<uint8_t> CheckpointToSafeTensors(const Checkpoint& checkpoint) {
  SafeTensors file;
  file.tensors = checkpoint.params;
  file.metadata["format_version"] = std::to_string(kCheckpointVersion);
  file.metadata["config"] = json::Dump(ConfigToJson(checkpoint.config));
  file.metadata["step"] = std::to_string(checkpoint.step);
  if (!checkpoint.run_stage.empty())
    file.metadata["run"] =
        json::Dump(json::Value::Object({{"stage", json::Value::String(checkpoint.run_stage)}}));
  return WriteSafeTensors(file);
}

Status SaveCheckpoint(const std::string& path, const Checkpoint& checkpoint) {
  NEEDLE_ASSIGN(const WriteAs format, WriteFormatOf(path));
  return WriteFileAtomically(
      path,
      std::span<const uint8_t>(format == WriteAs::kPickle ? CheckpointToPickle(checkpoint)
                                                          : CheckpointToSafeTensors(checkpoint)));
}

}  // namespace needle
