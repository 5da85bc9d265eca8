// The state of an interrupted run on disk: trained values, moments, step, and a fingerprint of data
// and settings. A safetensors file (docs/formats.md "Training state"), written whole or not at all.
// Errors: kCorruptFile, kNotFound, kIo. Thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "backend/backend.h"
#include "base/result.h"
#include "base/sha256.h"
#include "data/examples.h"

namespace needle {

struct SavedRun {
  TrainState state;
  int64_t step = 0;  // updates done
  std::string fingerprint;
};

Status SaveTrainState(const std::string& path, const SavedRun& run);
Result<SavedRun> LoadTrainState(const std::string& path);

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
