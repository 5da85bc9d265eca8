// The next token from logits. Thread-safe.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "grammar/token_trie.h"

namespace needle {

/// The first logit that is NaN or infinite; -1 when there is none.
inline int32_t FirstNotFinite(std::span<const float> logits) {
  for (size_t i = 0; i < logits.size(); ++i)
    if (!std::isfinite(logits[i])) return static_cast<int32_t>(i);
  return -1;
}

/// The id of the largest logit among the allowed ones (`mask` nullptr: all), the lowest id on ties;
/// -1 if none is allowed or every one is NaN.
inline int32_t Greedy(std::span<const float> logits, const grammar::TokenMask* mask) {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<int32_t>(i);
    if (mask != nullptr && !mask->Test(id)) continue;
    if (std::isnan(logits[i])) continue;
    if (best < 0 || logits[i] > logits[static_cast<size_t>(best)]) best = id;
  }
  return best;
}

/// softmax(logits)[id], over all logits, which must be finite.
inline double Probability(std::span<const float> logits, int32_t id) {
  const double own = logits[static_cast<size_t>(id)];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - own);
  return 1.0 / sum;
}

}  // namespace needle
