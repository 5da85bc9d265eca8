// Row-block kernels of the operations in src/ops that are not products: norms, rotation, gates, the
// Hadamard MLP, engram mixing, the mean of lanes and the cross-entropy.
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "kernels/hadamard-inl.h"
#include "kernels/math-inl.h"
#include "kernels/reduce-inl.h"
#include "kernels/tables-inl.h"
#include "ops/hadamard_mlp.h"

HWY_BEFORE_NAMESPACE();
namespace needle {
namespace HWY_NAMESPACE {
namespace {

using Matrix = MatView<float>;
using ConstMatrix = MatView<const float>;
using Floats = std::span<float>;
using ConstFloats = std::span<const float>;

// --- ops/norm.h ---------------------------------------------------------------------------------

void RmsNorm(ConstMatrix x, ConstFloats scale, Matrix y) {
  const size_t E = scale.size();
  const Vec one = Splat(1.0f);
  for (size_t t = 0; t < x.rows(); ++t)
    for (size_t h = 0; h + E <= x.cols(); h += E) {
      const float* a = x.Row(t) + h;
      float* b = y.Row(t) + h;
      const Vec r = Splat(InverseRmsOf(a, E));
      for (size_t i = 0; i < E; i += kLanes) {
        const Vec s = hn::Add(one, LoadUpTo(scale.data() + i, E - i));
        StoreUpTo(hn::Mul(hn::Mul(s, LoadUpTo(a + i, E - i)), r), b + i, E - i);
      }
    }
}

void RmsNormGrad(ConstMatrix x, ConstFloats scale, ConstMatrix dy, Matrix dx, Floats dscale) {
  const size_t E = scale.size();
  const Vec one = Splat(1.0f);
  for (size_t t = 0; t < x.rows(); ++t)
    for (size_t h = 0; h + E <= x.cols(); h += E) {
      const float *a = x.Row(t) + h, *g = dy.Row(t) + h;
      float* d = dx.Row(t) + h;
      Vec squares[2] = {ZeroVec(), ZeroVec()}, along[2] = {ZeroVec(), ZeroVec()};
      const auto add = [&](size_t i, size_t chain) HWY_ATTR {
        const Vec a_i = LoadUpTo(a + i, E - i), g_i = LoadUpTo(g + i, E - i);
        const Vec s = hn::Add(one, LoadUpTo(scale.data() + i, E - i));
        squares[chain] = hn::MulAdd(a_i, a_i, squares[chain]);
        along[chain] = hn::MulAdd(hn::Mul(s, g_i), a_i, along[chain]);
      };
      size_t first = 0;
      for (; first + kLanes < E; first += 2 * kLanes) {
        add(first, 0);
        add(first + kLanes, 1);
      }
      if (first < E) add(first, 0);
      const float count = static_cast<float>(E);
      const float mean = Sum(hn::Add(squares[0], squares[1])) / count;
      const float r = 1.0f / std::sqrt(mean + static_cast<float>(kNormEpsilon));
      const Vec r_v = Splat(r);
      const Vec c = Splat(Sum(hn::Add(along[0], along[1])) * r * r * r / count);
      for (size_t i = 0; i < E; i += kLanes) {
        const Vec a_i = LoadUpTo(a + i, E - i), g_i = LoadUpTo(g + i, E - i);
        if (!dscale.empty())
          StoreUpTo(hn::MulAdd(hn::Mul(g_i, a_i), r_v, LoadUpTo(dscale.data() + i, E - i)),
                    dscale.data() + i, E - i);
        const Vec s = hn::Mul(hn::Add(one, LoadUpTo(scale.data() + i, E - i)), r_v);
        StoreUpTo(hn::Sub(hn::Mul(s, g_i), hn::Mul(a_i, c)), d + i, E - i);
      }
    }
}

// --- ops/rope.h ---------------------------------------------------------------------------------

void Rope(Matrix x, std::span<const int32_t> position, const RopeTable<float>& table,
          int direction) {
  const size_t half = table.half;
  const Vec sign = Splat(direction > 0 ? 1.0f : -1.0f);
  for (size_t t = 0; t < x.rows(); ++t) {
    const float* c = table.cos.data() + static_cast<size_t>(position[t]) * half;
    const float* s = table.sin.data() + static_cast<size_t>(position[t]) * half;
    for (size_t h = 0; h + 2 * half <= x.cols(); h += 2 * half) {
      float *a = x.Row(t) + h, *b = a + half;
      for (size_t i = 0; i < half; i += kLanes) {
        const size_t left = half - i;
        const Vec cosine = LoadUpTo(c + i, left), sine = hn::Mul(sign, LoadUpTo(s + i, left));
        const Vec first = LoadUpTo(a + i, left), second = LoadUpTo(b + i, left);
        StoreUpTo(hn::Sub(hn::Mul(first, cosine), hn::Mul(second, sine)), a + i, left);
        StoreUpTo(hn::Add(hn::Mul(second, cosine), hn::Mul(first, sine)), b + i, left);
      }
    }
  }
}

// --- ops/gate.h ---------------------------------------------------------------------------------

void Gate(ConstMatrix a, ConstMatrix g, Matrix o) {
  const size_t D = a.cols();
  for (size_t t = 0; t < a.rows(); ++t)
    for (size_t d = 0; d < D; d += kLanes)
      StoreUpTo(hn::Mul(LoadUpTo(a.Row(t) + d, D - d), Sigmoid(LoadUpTo(g.Row(t) + d, D - d))),
                o.Row(t) + d, D - d);
}

void GateGrad(ConstMatrix a, ConstMatrix g, ConstMatrix d_o, Matrix da, Matrix dg) {
  const size_t D = a.cols();
  const Vec one = Splat(1.0f);
  for (size_t t = 0; t < a.rows(); ++t)
    for (size_t d = 0; d < D; d += kLanes) {
      const size_t left = D - d;
      const Vec s = Sigmoid(LoadUpTo(g.Row(t) + d, left)), up = LoadUpTo(d_o.Row(t) + d, left);
      const Vec slope = hn::Mul(s, hn::Sub(one, s));
      const Vec a_d = LoadUpTo(a.Row(t) + d, left);
      StoreUpTo(hn::Mul(hn::Mul(up, a_d), slope), dg.Row(t) + d, left);
      StoreUpTo(hn::Mul(up, s), da.Row(t) + d, left);
    }
}

void ScalarGate(ConstMatrix u1, ConstMatrix n, float gate, Matrix x1) {
  const Vec s = Splat(needle::Sigmoid(gate));
  const size_t D = n.cols();
  for (size_t t = 0; t < n.rows(); ++t)
    for (size_t d = 0; d < D; d += kLanes)
      StoreUpTo(hn::MulAdd(s, LoadUpTo(n.Row(t) + d, D - d), LoadUpTo(u1.Row(t) + d, D - d)),
                x1.Row(t) + d, D - d);
}

void ScalarGateGrad(ConstMatrix n, float gate, ConstMatrix dx1, Matrix dn, float* dgate) {
  const float s = needle::Sigmoid(gate);
  const Vec s_v = Splat(s);
  const size_t D = n.cols();
  Vec along = ZeroVec();
  for (size_t t = 0; t < n.rows(); ++t)
    for (size_t d = 0; d < D; d += kLanes) {
      const Vec up = LoadUpTo(dx1.Row(t) + d, D - d);
      if (dgate) along = hn::MulAdd(up, LoadUpTo(n.Row(t) + d, D - d), along);
      StoreUpTo(hn::Mul(s_v, up), dn.Row(t) + d, D - d);
    }
  if (dgate) *dgate += s * (1.0f - s) * Sum(along);
}

// --- ops/hadamard_mlp.h -------------------------------------------------------------------------

constexpr size_t kMaxHadamard =
    4096;  // of the buffers on the stack; wider models take the plain loops

/// z [M] = (d * x padded with 0) H / sqrt(M), x of D values.
HWY_INLINE void ScaleAndTransform(const float* x, const float* d, size_t D, size_t M, float* z) {
  for (size_t i = 0; i < D; i += kLanes)
    StoreUpTo(hn::Mul(LoadUpTo(d + i, D - i), LoadUpTo(x + i, D - i)), z + i, D - i);
  for (size_t i = D; i < M; ++i) z[i] = 0.0f;
  Transform(z, M);
}

void HadamardMlp(ConstMatrix x, ConstFloats d1, ConstFloats d2, ConstFloats d3, Matrix y) {
  const size_t M = d1.size(), D = x.cols();
  if (M > kMaxHadamard) return HadamardMlpForward<float>(x, d1, d2, d3, y);
  alignas(64) float z[kMaxHadamard];
  for (size_t t = 0; t < x.rows(); ++t) {
    ScaleAndTransform(x.Row(t), d1.data(), D, M, z);
    for (size_t i = 0; i < M; i += kLanes)
      StoreUpTo(Silu(hn::Mul(LoadUpTo(d2.data() + i, M - i), LoadUpTo(z + i, M - i))), z + i,
                M - i);
    Transform(z, M);
    for (size_t i = 0; i < D; i += kLanes)
      StoreUpTo(hn::Mul(LoadUpTo(d3.data() + i, D - i), LoadUpTo(z + i, D - i)), y.Row(t) + i,
                D - i);
  }
}

/// sum += a * b
HWY_INLINE void AddProduct(const float* a, const float* b, size_t n, float* sum) {
  for (size_t i = 0; i < n; i += kLanes)
    StoreUpTo(hn::MulAdd(LoadUpTo(a + i, n - i), LoadUpTo(b + i, n - i), LoadUpTo(sum + i, n - i)),
              sum + i, n - i);
}

void HadamardMlpGrad(ConstMatrix x, ConstFloats d1, ConstFloats d2, ConstFloats d3, ConstMatrix dy,
                     Matrix dx, Floats dd1, Floats dd2, Floats dd3) {
  const size_t M = d1.size(), D = x.cols();
  if (M > kMaxHadamard) return HadamardMlpBackward<float>(x, d1, d2, d3, dy, dx, dd1, dd2, dd3);
  alignas(64) float a[kMaxHadamard], b[kMaxHadamard], g[kMaxHadamard];
  const Vec one = Splat(1.0f);
  for (size_t t = 0; t < x.rows(); ++t) {
    ScaleAndTransform(x.Row(t), d1.data(), D, M, a);
    ScaleAndTransform(dy.Row(t), d3.data(), D, M, g);
    for (size_t i = 0; i < M; i += kLanes) {
      const size_t left = M - i;
      const Vec d = LoadUpTo(d2.data() + i, left), a_i = LoadUpTo(a + i, left);
      const Vec q = hn::Mul(d, a_i), s = Sigmoid(q), value = hn::Mul(q, s);
      const Vec slope = hn::Add(s, hn::Mul(value, hn::Sub(one, s)));
      const Vec up = hn::Mul(LoadUpTo(g + i, left), slope);
      StoreUpTo(value, b + i, left);
      if (!dd2.empty())
        StoreUpTo(hn::MulAdd(up, a_i, LoadUpTo(dd2.data() + i, left)), dd2.data() + i, left);
      StoreUpTo(hn::Mul(up, d), g + i, left);
    }
    if (!dd3.empty()) {
      Transform(b, M);
      AddProduct(dy.Row(t), b, D, dd3.data());
    }
    Transform(g, M);
    if (!dd1.empty()) AddProduct(g, x.Row(t), D, dd1.data());
    for (size_t i = 0; i < D; i += kLanes)
      StoreUpTo(hn::Mul(LoadUpTo(d1.data() + i, D - i), LoadUpTo(g + i, D - i)), dx.Row(t) + i,
                D - i);
  }
}

void Residual(ConstMatrix x1, ConstMatrix u, Matrix y) {
  const size_t D = y.cols();
  for (size_t t = 0; t < y.rows(); ++t)
    for (size_t d = 0; d < D; d += kLanes) {
      const size_t left = D - d;
      const Vec sum = hn::Add(LoadUpTo(x1.Row(t) + d, left), LoadUpTo(y.Row(t) + d, left));
      StoreUpTo(hn::Sub(sum, LoadUpTo(u.Row(t) + d, left)), y.Row(t) + d, left);
    }
}

void WalshHadamardRows(Matrix x) {
  for (size_t t = 0; t < x.rows(); ++t) Transform(x.Row(t), x.cols());
}

// --- ops/engram.h -------------------------------------------------------------------------------

void EngramMix(ConstMatrix u, ConstMatrix key, ConstMatrix val, Matrix u1) {
  const size_t D = u.cols();
  const float root = std::sqrt(static_cast<float>(D));
  for (size_t t = 0; t < u.rows(); ++t) {
    const float *a = u.Row(t), *b = key.Row(t), *v = val.Row(t);
    const float unit = InverseRmsOf(a, D) * InverseRmsOf(b, D);
    const Vec alpha = Splat(needle::Sigmoid(DotFloats(a, b, D) * unit / root));
    for (size_t d = 0; d < D; d += kLanes)
      StoreUpTo(hn::MulAdd(alpha, LoadUpTo(v + d, D - d), LoadUpTo(a + d, D - d)), u1.Row(t) + d,
                D - d);
  }
}

/// sum += p a + q b
HWY_INLINE void AddTwo(float p, const float* a, float q, const float* b, size_t n, float* sum) {
  const Vec p_v = Splat(p), q_v = Splat(q);
  for (size_t i = 0; i < n; i += kLanes) {
    const Vec more = hn::MulAdd(p_v, LoadUpTo(a + i, n - i), LoadUpTo(sum + i, n - i));
    StoreUpTo(hn::MulAdd(q_v, LoadUpTo(b + i, n - i), more), sum + i, n - i);
  }
}

void EngramMixGrad(ConstMatrix u, ConstMatrix key, ConstMatrix val, ConstMatrix du1, Matrix du,
                   Matrix dkey, Matrix dval) {
  const size_t D = u.cols();
  const float count = static_cast<float>(D), root = std::sqrt(count);
  for (size_t t = 0; t < u.rows(); ++t) {
    const float *a = u.Row(t), *b = key.Row(t), *g = du1.Row(t);
    const float dot = DotFloats(a, b, D), dalpha = DotFloats(g, val.Row(t), D);
    const float ra = InverseRmsOf(a, D), rb = InverseRmsOf(b, D);
    const float alpha = needle::Sigmoid(dot * ra * rb / root);
    const float slope = dalpha * alpha * (1.0f - alpha) / root * ra * rb;
    AddTwo(slope, b, -slope * ra * ra * dot / count, a, D, du.Row(t));
    if (!dkey.empty()) AddTwo(slope, a, -slope * rb * rb * dot / count, b, D, dkey.Row(t));
    if (!dval.empty()) AddTwo(alpha, g, 0.0f, g, D, dval.Row(t));
  }
}

// --- ops/head.h ---------------------------------------------------------------------------------

void LaneMean(ConstMatrix x, Matrix h) {
  const size_t D = h.cols(), S = x.cols() / D;
  const Vec count = Splat(static_cast<float>(S));
  for (size_t t = 0; t < h.rows(); ++t)
    for (size_t d = 0; d < D; d += kLanes) {
      Vec sum = LoadUpTo(x.Row(t) + d, D - d);
      for (size_t i = 1; i < S; ++i) sum = hn::Add(sum, LoadUpTo(x.Row(t) + i * D + d, D - d));
      StoreUpTo(hn::Div(sum, count), h.Row(t) + d, D - d);
    }
}

void LaneMeanGrad(ConstMatrix dh, Matrix dx) {
  const size_t D = dh.cols(), S = dx.cols() / D;
  const Vec count = Splat(static_cast<float>(S));
  for (size_t t = 0; t < dh.rows(); ++t)
    for (size_t d = 0; d < D; d += kLanes) {
      const Vec part = hn::Div(LoadUpTo(dh.Row(t) + d, D - d), count);
      for (size_t i = 0; i < S; ++i) StoreUpTo(part, dx.Row(t) + i * D + d, D - d);
    }
}

double CrossEntropy(Floats logits, std::span<const int32_t> ids, ConstFloats weights) {
  const size_t V = logits.size();
  float* x = logits.data();
  Vec largest = Splat(x[0]);
  size_t i = 0;
  for (; i + kLanes <= V; i += kLanes) largest = hn::Max(largest, Load(x + i));
  float max = Largest(largest);
  for (; i < V; ++i) max = x[i] > max ? x[i] : max;
  double loss = 0, total = 0;
  for (size_t n = 0; n < ids.size(); ++n) {
    loss +=
        static_cast<double>(weights[n]) * static_cast<double>(max - x[static_cast<size_t>(ids[n])]);
    total += static_cast<double>(weights[n]);
  }
  const Vec shift = Splat(max);
  Vec sums = ZeroVec();
  for (i = 0; i + kLanes <= V; i += kLanes) {
    const Vec e = Exp(hn::Sub(Load(x + i), shift));
    Store(e, x + i);
    sums = hn::Add(sums, e);
  }
  float sum = Sum(sums);
  if (i < V) {
    const Vec e = Exp(hn::Sub(LoadN(x + i, V - i), shift));
    StoreN(e, x + i, V - i);
    for (; i < V; ++i) sum += x[i];
  }
  const Vec factor = Splat(static_cast<float>(total) / sum);
  for (i = 0; i < V; i += kLanes) StoreUpTo(hn::Mul(LoadUpTo(x + i, V - i), factor), x + i, V - i);
  for (size_t n = 0; n < ids.size(); ++n) x[static_cast<size_t>(ids[n])] -= weights[n];
  return loss + total * std::log(static_cast<double>(sum));
}

}  // namespace

void FillRows(Kernels& table) {
  table.rms_norm_forward = &RmsNorm;
  table.rms_norm_backward = &RmsNormGrad;
  table.rope = &Rope;
  table.gate_forward = &Gate;
  table.gate_backward = &GateGrad;
  table.scalar_gate_forward = &ScalarGate;
  table.scalar_gate_backward = &ScalarGateGrad;
  table.hadamard_mlp_forward = &HadamardMlp;
  table.hadamard_mlp_backward = &HadamardMlpGrad;
  table.residual = &Residual;
  table.walsh_hadamard = &WalshHadamardRows;
  table.engram_mix_forward = &EngramMix;
  table.engram_mix_backward = &EngramMixGrad;
  table.lane_mean_forward = &LaneMean;
  table.lane_mean_backward = &LaneMeanGrad;
  table.cross_entropy_row = &CrossEntropy;
}

}  // namespace HWY_NAMESPACE
}  // namespace needle
HWY_AFTER_NAMESPACE();
