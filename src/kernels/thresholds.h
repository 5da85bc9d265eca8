// A codebook as thresholds: the nearest entry of u is entry[number of thresholds below u].
// threshold[k] is the largest float for which NearestCode (quant/group.h) still takes entry k or a
// lower one, found by bisection over the floats; so comparing with thresholds is exact, ties and
// rounded differences included. Thread-safe: the tables are made once.
#pragma once

#include <array>
#include <cstddef>

#include "quant/cq.h"

namespace needle {

struct CodebookThresholds {
  size_t entries = 0;
  std::array<float, 16> entry{}, threshold{};
};

/// group: kGroup or kKvGroup (ternary has kGroup only).
const CodebookThresholds& ThresholdsOf(Bits bits, size_t group);

}  // namespace needle
