// The probe heads from the executor's cells: an example's embedding and its confidence logit.
//   score_c = <cell_c, probe_p> / sqrt(D);  pooled_p = sum softmax(score)_c cell_c;  out = pooled
//   proj (+ bias)
// Shapes: cells [C, D] as Executor::Forward fills them, of one example, all of its rows; keep [C]
// (false: a cell of padding) or empty (all are kept). What each means: ops/probe.h.
// Source: MODEL.md 4.7. Thread-safe.
#pragma once

#include <span>
#include <vector>

#include "exec/weights.h"

namespace needle {

/// [contrastive_dim], of length 1. `weights.view().has_contrastive` must hold.
std::vector<float> ContrastiveEmbedding(const Weights& weights, MatView<const float> cells,
                                        std::span<const bool> keep = {});

/// One raw logit: upstream applies no sigmoid. `weights.view().has_confidence` must hold.
float ConfidenceLogit(const Weights& weights, MatView<const float> cells,
                      std::span<const bool> keep = {});

}  // namespace needle
