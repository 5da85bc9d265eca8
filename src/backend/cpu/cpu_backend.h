// The native CPU backend: the executor plus AdamW. Bit-identical on any number of threads.
// Thread-safety: one backend, one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"

namespace needle {

struct CpuBackendOptions : TrainingSetup {
  int threads = 0;                              // 0: all that the process may use
  size_t activation_bytes = size_t{440} << 20;  // saved activations at any time, about
};

/// Errors: a base without a LoRA target that is not all zero; an instruction set that NEEDLE_ISA
/// names and the machine lacks.
Result<std::unique_ptr<Backend>> MakeCpuBackend(const Checkpoint& base,
                                                const CpuBackendOptions& options);

}  // namespace needle
