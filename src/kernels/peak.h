// What the machine's multiply-add units give, to read other speeds by.
#pragma once

#include "base/parallel.h"
#include "kernels/kernels.h"

namespace needle {

/// FLOP a second of all threads of the pool together in `kernels`' instruction set: the best of a
/// few short runs (well under a second). A busy machine gives less.
double MeasuredPeak(const Kernels& kernels, ThreadPool& pool);

}  // namespace needle
