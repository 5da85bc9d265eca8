// The training step on the devices of a PJRT client: programs.h compiled, one array a name kept on
// each device. Between steps the state stays there; a step sends its rows and gets back the loss
// and the gradient's norm. Several devices: each holds everything and works on its share of the
// groups; gradients are summed on the devices. Errors: the plugin's, as sentences. Thread-safety:
// one backend, one thread.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "backend/pjrt/client.h"
#include "backend/pjrt/programs.h"
#include "model/params.h"

namespace needle {

struct PjrtBackendOptions : pjrt::ProgramOptions {
  pjrt::BlockLimits limits;  // shapes of the programs
};

/// What a step did, for tests and for people.
struct PjrtBackendStats {
  size_t programs = 0;         // compiled or loaded so far
  double compile_seconds = 0;  // of them together
  int64_t temp_bytes = 0;      // the largest that a program plans for, where the plugin says
  int64_t rows = 0;            // computed in the last step, free ones included
};

class PjrtBackend : public Backend {
 public:
  virtual PjrtBackendStats Stats() const = 0;
  /// Logits [targets, V] of a forest's target rows, in the order of its targets.
  virtual Result<std::vector<float>> TargetLogits(const Forest& forest) = 0;
  /// The gradients of one batch by name (programs.h), not clipped; changes nothing.
  virtual Result<std::map<std::string, std::vector<float>>> GradientsOf(const Forest& forest) = 0;
};

/// Errors: a base without a LoRA target that is not all zero; more devices than the client has;
/// what the plugin says when it compiles or has no memory.
Result<std::unique_ptr<PjrtBackend>> MakePjrtBackend(std::shared_ptr<pjrt::Client> client,
                                                     const Checkpoint& base,
                                                     const PjrtBackendOptions& options);

}  // namespace needle
