// ops/adamw.h    clip by global norm, then AdamW (optax's order)
//   g' = g if |g| < clip else g / |g| * clip
//   m = (1-b1) g' + b1 m;  v = (1-b2) g'^2 + b2 v;  u = (m/c1) / (sqrt(v/c2) + eps) + decay p;  p
//   -= lr u
// c1 = 1 - b1^t, c2 = 1 - b2^t in float32 (MODEL.md 6.6-6.8, 12.10). Shapes: all [n], one leaf or a
// run of leaves. Thread-safe on disjoint spans.
#pragma once

#include <cmath>
#include <span>

namespace needle {

struct AdamWOptions {
  float b1 = 0.9f, b2 = 0.999f, eps = 1e-8f;
  float weight_decay = 1e-4f;  // optax's default, applied to every trained value
  float clip = 1.0f;           // global norm
};

/// What `train` computes for one update. t counts from 1.
struct UpdateScalars {
  float lr = 0;
  float c1 = 1, c2 = 1;
};

inline UpdateScalars ScalarsOf(const AdamWOptions& o, float lr, int t) {
  return {lr, 1.0f - std::pow(o.b1, static_cast<float>(t)),
          1.0f - std::pow(o.b2, static_cast<float>(t))};
}

/// `norm`: of the whole gradient. Updates p, m, v in place.
inline void AdamWUpdate(const AdamWOptions& o, const UpdateScalars& s, float norm,
                        std::span<const float> g, std::span<float> p, std::span<float> m,
                        std::span<float> v) {
  for (size_t i = 0; i < p.size(); ++i) {
    const float clipped = norm < o.clip ? g[i] : g[i] / norm * o.clip;
    m[i] = (1.0f - o.b1) * clipped + o.b1 * m[i];
    v[i] = (1.0f - o.b2) * (clipped * clipped) + o.b2 * v[i];
    const float u = (m[i] / s.c1) / (std::sqrt(v[i] / s.c2) + o.eps) + o.weight_decay * p[i];
    p[i] += -s.lr * u;
  }
}

}  // namespace needle
