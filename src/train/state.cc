#include "train/state.h"

#include <charconv>
#include <cstring>

#include "base/file.h"
#include "base/str_cat.h"
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
constexpr char kKind[] = "needle training state 2";

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

}  // namespace

Status SaveTrainState(const std::string& path, const SavedRun& run) {
  SafeTensors file;
  for (const Part& part : kParts)
    for (const auto& [name, values] : run.state.*part.values)
      file.tensors[part.prefix + name] =
          Tensor::FromFloats({static_cast<int64_t>(values.size())}, values);
  file.metadata = {{"kind", kKind},
                   {"step", std::to_string(run.step)},
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
  const auto text = [&](const char* key) {
    const auto found = file.metadata.find(key);
    return found == file.metadata.end() ? std::string() : found->second;
  };
  SavedRun run;
  run.fingerprint = text("fingerprint");
  const std::string step = text("step");
  const auto parsed = std::from_chars(step.data(), step.data() + step.size(), run.step);
  if (text("kind") != kKind || parsed.ec != std::errc() || run.step < 0)
    return Error(Code::kCorruptFile,
                 StrCat(path,
                        ": not a training state; `--resume` wants the file that an "
                        "interrupted run of this program left"));
  if (text("sha256") != Checksum(file))
    return Error(Code::kCorruptFile,
                 StrCat(path,
                        ": the values are not those that were saved (their SHA-256 differs); "
                        "the file is damaged, start anew without --resume"));
  for (const auto& [name, tensor] : file.tensors) {
    if (tensor.dtype != DType::kF32)
      return Error(Code::kCorruptFile, StrCat(path, ": ", name, " is not float32"));
    for (const Part& part : kParts)
      if (name.rfind(part.prefix, 0) == 0)
        (run.state.*part.values)[name.substr(std::strlen(part.prefix))] = tensor.ToFloats();
  }
  return run;
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
