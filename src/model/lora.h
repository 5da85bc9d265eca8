// LoRA factors: upstream's initial values and their layout in one flat vector.
// Source: MODEL.md section 5; Hu et al. 2021. Thread-safety: values.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "model/params.h"

namespace needle {

struct LoraOptions {
  int rank = 16;        // R. 32 doubles what the adapter can hold; the file stays tiny.
  float alpha = 32.0f;  // The update is scaled by alpha / rank.
  uint64_t seed = 0;    // Draws A; B starts at zero.
};

/// A [L, in, R] = standard normal / R from JAX's key streams, in the order of `targets`; B zeros.
std::map<std::string, LoraPair> InitLora(const std::vector<ParamSpec>& targets, int rank,
                                         uint64_t seed);

}  // namespace needle
