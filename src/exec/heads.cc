#include "exec/heads.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "ops/probe.h"

namespace needle {
namespace {

constexpr size_t kCells = 512;  // cells of one product: bounds its packed copy

/// scores [C, P], then in place their softmax over the kept cells of each probe.
void Softmax(MatView<float> scores, std::span<const bool> keep) {
  for (size_t p = 0; p < scores.cols(); ++p) {
    float largest = -INFINITY;
    for (size_t c = 0; c < scores.rows(); ++c)
      if (keep.empty() || keep[c]) largest = std::max(largest, scores.Row(c)[p]);
    double sum = 0;
    for (size_t c = 0; c < scores.rows(); ++c) {
      float& w = scores.Row(c)[p];
      w = keep.empty() || keep[c] ? std::exp(w - largest) : 0.0f;
      sum += double{w};
    }
    const auto scale = static_cast<float>(1 / sum);
    for (size_t c = 0; c < scores.rows(); ++c) scores.Row(c)[p] *= scale;
  }
}

/// pooled [P * D], probe-major: ops/probe.h with the executor's products.
std::vector<float> Pool(const Kernels& k, MatView<const float> cells, std::span<const bool> keep,
                        MatView<const float> probes) {
  const size_t C = cells.rows(), P = probes.rows(), D = probes.cols();
  assert(cells.cols() == D && (keep.empty() || keep.size() == C));
  std::vector<float> panels(k.PackedSize(D, P)), weights(C * P), scaled(P * D), pooled(P * D);
  for (size_t i = 0; i < scaled.size(); ++i)
    scaled[i] = probes.Row(i / D)[i % D] / std::sqrt(static_cast<float>(D));
  k.PackB(scaled.data(), 1, D, D, P, panels.data());
  k.gemm(C, P, D, cells.data(), cells.stride(), 1, panels.data(), weights.data(), P, false);
  Softmax({weights.data(), C, P}, keep);
  std::vector<float> scratch(k.PackedSize(kCells, D));
  for (size_t c = 0; c < C; c += kCells)
    k.gemm_tn(P, D, std::min(kCells, C - c), weights.data() + c * P, P, cells.Row(c),
              cells.stride(), pooled.data(), D, scratch.data());
  return pooled;
}

/// pooled [I] proj [I, O]
std::vector<float> Project(std::span<const float> pooled, MatView<const float> proj) {
  std::vector<float> out(proj.cols());
  for (size_t i = 0; i < pooled.size(); ++i)
    for (size_t o = 0; o < out.size(); ++o) out[o] += pooled[i] * proj.Row(i)[o];
  return out;
}

}  // namespace

std::vector<float> ContrastiveEmbedding(const Weights& weights, MatView<const float> cells,
                                        std::span<const bool> keep) {
  const ModelView<const float>& w = weights.view();
  assert(w.has_contrastive);
  std::vector<float> out =
      Project(Pool(weights.kernels(), cells, keep, w.contrastive_probes), w.contrastive_proj);
  UnitVectorForward<float>(out, out);
  return out;
}

float ConfidenceLogit(const Weights& weights, MatView<const float> cells,
                      std::span<const bool> keep) {
  const ModelView<const float>& w = weights.view();
  assert(w.has_confidence);
  const std::vector<float> out =
      Project(Pool(weights.kernels(), cells, keep, w.confidence_probes), w.confidence_proj);
  return out[0] + *w.confidence_bias;
}

}  // namespace needle
