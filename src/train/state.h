// The state of an interrupted run on disk: trained values, moments, step, and what the run was: a
// digest of the base and a fingerprint of data and settings. A safetensors file (docs/formats.md
// "Training state"), written whole or not at all. Errors: kCorruptFile, kNotFound, kIo.
// Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "base/result.h"
#include "base/sha256.h"
#include "data/examples.h"
#include "model/params.h"

namespace needle {

/// Where a run with this output keeps its state, and where a state is set aside for a new run.
inline std::string StatePathOf(const std::string& out) { return out + ".state"; }
inline std::string SetAsidePathOf(const std::string& state_path) { return state_path + ".old"; }

struct SavedRun {
  TrainState state;
  int64_t step = 0;      // updates done
  double last_loss = 0;  // of that update
  std::string base;      // DigestOf the base that the run began from; "" when there is none
  std::string fingerprint;
};

/// Values that are not finite are an error (kInternal), and nothing is written.
Status SaveTrainState(const std::string& path, const SavedRun& run);
Result<SavedRun> LoadTrainState(const std::string& path);

/// The step at which the run in this file stopped; nullopt where there is no file.
/// Error: kInvalidArgument when the file is something else, which must not be written over.
Result<std::optional<int64_t>> StepOfSavedRun(const std::string& path);

/// SHA-256 over config and parameters, 64 hex digits.
std::string DigestOf(const Checkpoint& base);

/// SHA-256 over examples and settings.
class RunFingerprint {
 public:
  void Add(const EncodedExample& example);
  void Add(const std::string& text);
  std::string Finish();  // 64 hex digits

 private:
  Sha256 hash_;
};

}  // namespace needle
