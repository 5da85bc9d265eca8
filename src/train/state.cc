#include "train/state.h"

#include <bit>
#include <cstring>

#include "base/file.h"
#include "base/parse_integer.h"
#include "base/str_cat.h"
#include "format/config_fields.h"
#include "format/safetensors.h"

namespace needle {
namespace {

struct Part {
  const char* prefix;
  std::map<std::string, std::vector<float>> TrainState::*values;
};
constexpr Part kParts[] = {{"values/", &TrainState::values},
                           {"first_moment/", &TrainState::first_moment},
                           {"second_moment/", &TrainState::second_moment}};
constexpr std::string_view kAnyKind = "needle training state ";
constexpr char kKind[] = "needle training state 3";

/// SHA-256 over the names and bytes of all tensors: a run must not go on from damaged values.
std::string Checksum(const SafeTensors& file) {
  Sha256 hash;
  for (const auto& [name, tensor] : file.tensors) {
    hash.Update(name);
    const std::vector<float> values = tensor.ToFloats();
    hash.Update({reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)});
  }
  return hash.HexDigest();
}

std::string TextOf(const SafeTensors& file, const char* key) {
  const auto found = file.metadata.find(key);
  return found == file.metadata.end() ? std::string() : found->second;
}

/// The updates done; nothing when the file does not say.
std::optional<int64_t> StepOf(const SafeTensors& file) {
  const auto step = ParseInteger<int64_t>(TextOf(file, "step"));
  return step && *step >= 0 ? step : std::nullopt;
}

Error NotAState(const std::string& path, const std::string& what) {
  return Error(Code::kCorruptFile, StrCat(path, ": ", what,
                                          "; `--resume` wants the file that an interrupted run of "
                                          "this program left"));
}

}  // namespace

Status SaveTrainState(const std::string& path, const SavedRun& run) {
  SafeTensors file;
  for (const Part& part : kParts)
    for (const auto& [name, values] : run.state.*part.values) {
      Tensor tensor = Tensor::FromFloats({static_cast<int64_t>(values.size())}, values);
      if (!AllFinite(tensor))
        return Error(Code::kInternal,
                     StrCat(path, ": not written, because ", part.prefix, name,
                            " holds a value that is not a finite number; try a smaller --lr"));
      file.tensors[part.prefix + name] = std::move(tensor);
    }
  file.metadata = {{"kind", kKind},
                   {"step", std::to_string(run.step)},
                   {"loss_bits", std::to_string(std::bit_cast<uint64_t>(run.last_loss))},
                   {"base", run.base},
                   {"fingerprint", run.fingerprint},
                   {"sha256", Checksum(file)}};
  return WriteFileAtomically(path, WriteSafeTensors(file));
}

Result<SavedRun> LoadTrainState(const std::string& path) {
  if (!FileExists(path))
    return Error(Code::kNotFound,
                 StrCat(path, ": there is no stopped run to go on with; leave --resume out"));
  NEEDLE_ASSIGN(const std::vector<uint8_t> bytes, ReadFile(path));
  NEEDLE_ASSIGN(const SafeTensors file, ParseSafeTensors(bytes, path));
  SavedRun run;
  const std::optional<int64_t> step = StepOf(file);
  run.base = TextOf(file, "base");
  run.fingerprint = TextOf(file, "fingerprint");
  const std::optional<uint64_t> loss = ParseInteger<uint64_t>(TextOf(file, "loss_bits"));
  const std::string kind = TextOf(file, "kind");
  if (kind != kKind && kind.rfind(kAnyKind, 0) == 0)
    return NotAState(path, "a training state of another version of this program");
  if (kind != kKind || !step || !loss) return NotAState(path, "not a training state");
  for (const auto& [name, tensor] : file.tensors)
    if (tensor.dtype != DType::kF32)
      return Error(Code::kCorruptFile, StrCat(path, ": ", name, " is not float32"));
  run.step = *step;
  run.last_loss = std::bit_cast<double>(*loss);
  if (TextOf(file, "sha256") != Checksum(file))
    return Error(Code::kCorruptFile,
                 StrCat(path,
                        ": the values are not those that were saved (their SHA-256 differs); "
                        "the file is damaged, start anew without --resume"));
  for (const auto& [name, tensor] : file.tensors) {
    for (const Part& part : kParts)
      if (name.rfind(part.prefix, 0) == 0)
        (run.state.*part.values)[name.substr(std::strlen(part.prefix))] = tensor.ToFloats();
  }
  return run;
}

Result<std::optional<int64_t>> StepOfSavedRun(const std::string& path) {
  if (!FileExists(path)) return std::optional<int64_t>();
  const auto other = [&] {
    return Error(Code::kInvalidArgument,
                 StrCat(path,
                        ": this is where a stopped run is kept, but the file there is none; "
                        "move it away, or give --out another name"));
  };
  const Result<std::vector<uint8_t>> bytes = ReadFile(path);
  if (!bytes.ok()) return other();
  const Result<SafeTensors> file = ParseSafeTensors(*bytes, path);
  if (!file.ok() || TextOf(*file, "kind").rfind(kAnyKind, 0) != 0) return other();
  const std::optional<int64_t> step = StepOf(*file);
  if (!step) return other();
  return step;
}

std::string DigestOf(const Checkpoint& base) {
  Sha256 hash;
  VisitConfigFields(base.config, [&](const char* name, const auto& field) {
    hash.Update(name);
    if constexpr (requires { field.begin(); }) {
      for (const auto& item : field) hash.Update(StrCat(" ", item));
    } else {
      hash.Update(StrCat(" ", field));
    }
  });
  for (const auto& [name, tensor] : base.params) {
    hash.Update(StrCat(name, " ", Name(tensor.dtype), " ", ToText(tensor.shape)));
    hash.Update(tensor.bytes);
  }
  return hash.HexDigest();
}

void RunFingerprint::Add(const EncodedExample& e) {
  const auto bytes = [](const auto& v) {
    return std::span<const uint8_t>(reinterpret_cast<const uint8_t*>(v.data()),
                                    v.size() * sizeof(v[0]));
  };
  hash_.Update(std::to_string(e.ids.size()));
  hash_.Update(bytes(e.ids));
  hash_.Update(bytes(e.weights));
}

void RunFingerprint::Add(const std::string& text) { hash_.Update(text); }

std::string RunFingerprint::Finish() { return hash_.HexDigest(); }

}  // namespace needle
