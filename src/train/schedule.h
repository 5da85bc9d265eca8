// The learning rate: linear warm-up from 0, then a cosine to 0 (optax's schedule, float32).
// Source: MODEL.md section 6, points 3 and 8. Thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace needle {

/// Steps of warm-up of a run of `total` (> 0) updates; 0 when there is only one.
inline int64_t WarmupSteps(int64_t total) {
  return std::min(std::max<int64_t>(1, total / 20), total - 1);
}

/// Learning rate of update k = 0, 1, ...; the first is 0 whenever there is a warm-up.
inline float LearningRate(float peak, int64_t k, int64_t warmup, int64_t total) {
  if (k < warmup)
    return (0.0f - peak) * (1.0f - static_cast<float>(k) / static_cast<float>(warmup)) + peak;
  const auto n = static_cast<float>(total - warmup);
  const auto c = std::min(static_cast<float>(k - warmup), n);
  return peak * (0.5f * (1.0f + std::cos(std::numbers::pi_v<float> * c / n)));
}

}  // namespace needle
