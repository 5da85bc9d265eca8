// A table of kernels that tells the Profile of base/profile.h how long each call takes and how many
// FLOP (matrix products and attention) it is worth.
// Thread-safety: as Kernels.
#pragma once

#include "kernels/kernels.h"

namespace needle {

/// `kernels` with every call recorded. One table at a time: a second call changes the first.
const Kernels& ProfiledKernels(const Kernels& kernels);

}  // namespace needle
