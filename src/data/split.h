// Which examples validate, and in which order the others are trained on: upstream's choice from the
// same generator, bit for bit. Source: MODEL.md section 6, points 2 and 4 (docs/numerics.md).
// Thread-safety: one generator, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"

namespace needle {

struct DataSplit {
  std::vector<int32_t> train;       // indices of examples, in permuted order (all, in order, when
  std::vector<int32_t> validation;  // there is no validation)
};

/// The first min(int(n * val_split), n - 1) of a permutation validate; val_split in [0, 1]
/// (assert). When that is none, nothing is drawn from the generator.
DataSplit Split(size_t n, double val_split, NumpyGenerator& generator);

/// The order of one epoch: positions in DataSplit::train.
std::vector<int32_t> EpochOrder(size_t n, NumpyGenerator& generator);

/// Consecutive slices of `order`, `batch` (> 0) each; the last may be short. They live as long as
/// `order`.
std::vector<std::span<const int32_t>> Batches(std::span<const int32_t> order, size_t batch);

}  // namespace needle
