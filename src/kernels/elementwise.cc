// Sums and products of flat arrays, exp and its kin, the optimiser's update.
#include "kernels/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>

#include "kernels/math-inl.h"
#include "kernels/reduce-inl.h"
#include "kernels/tables-inl.h"

HWY_BEFORE_NAMESPACE();
namespace needle {
namespace HWY_NAMESPACE {
namespace {

float DotOf(const float* a, const float* b, size_t n) { return DotFloats(a, b, n); }

double SumSquaresOf(const float* x, size_t n) { return static_cast<double>(DotFloats(x, x, n)); }

void Axpy(float a, const float* x, float* y, size_t n) {
  const Vec factor = Splat(a);
  for (size_t i = 0; i < n; i += kLanes)
    StoreUpTo(hn::MulAdd(factor, LoadUpTo(x + i, n - i), LoadUpTo(y + i, n - i)), y + i, n - i);
}

void ExpOf(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) StoreUpTo(Exp(LoadUpTo(x + i, n - i)), y + i, n - i);
}

void SigmoidOf(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) StoreUpTo(Sigmoid(LoadUpTo(x + i, n - i)), y + i, n - i);
}

void SiluOf(const float* x, float* y, size_t n) {
  for (size_t i = 0; i < n; i += kLanes) StoreUpTo(Silu(LoadUpTo(x + i, n - i)), y + i, n - i);
}

// The operations of ops/adamw.h in the same order, none fused: the bits are the same.
void AdamW(const AdamWOptions& o, const UpdateScalars& s, float norm, std::span<const float> g,
           std::span<float> p, std::span<float> m, std::span<float> v) {
  const bool clips = !(norm < o.clip);
  const Vec norm_v = Splat(norm), clip = Splat(o.clip);
  const Vec b1 = Splat(o.b1), b2 = Splat(o.b2), rest1 = Splat(1.0f - o.b1);
  const Vec rest2 = Splat(1.0f - o.b2), c1 = Splat(s.c1), c2 = Splat(s.c2), eps = Splat(o.eps);
  const Vec decay = Splat(o.weight_decay), step = Splat(-s.lr);
  const size_t n = p.size();
  for (size_t i = 0; i < n; i += kLanes) {
    const size_t left = n - i;
    Vec grad = LoadUpTo(g.data() + i, left);
    if (clips) grad = hn::Mul(hn::Div(grad, norm_v), clip);
    const Vec m1 = hn::Add(hn::Mul(rest1, grad), hn::Mul(b1, LoadUpTo(m.data() + i, left)));
    const Vec v1 =
        hn::Add(hn::Mul(rest2, hn::Mul(grad, grad)), hn::Mul(b2, LoadUpTo(v.data() + i, left)));
    const Vec p0 = LoadUpTo(p.data() + i, left);
    const Vec root = hn::Add(hn::Sqrt(hn::Div(v1, c2)), eps);
    const Vec u = hn::Add(hn::Div(hn::Div(m1, c1), root), hn::Mul(decay, p0));
    StoreUpTo(m1, m.data() + i, left);
    StoreUpTo(v1, v.data() + i, left);
    StoreUpTo(hn::Add(p0, hn::Mul(step, u)), p.data() + i, left);
  }
}

}  // namespace

void FillElementwise(Kernels& table) {
  table.dot = &DotOf;
  table.sum_squares = &SumSquaresOf;
  table.axpy = &Axpy;
  table.exp = &ExpOf;
  table.sigmoid = &SigmoidOf;
  table.silu = &SiluOf;
  table.adamw = &AdamW;
}

}  // namespace HWY_NAMESPACE
}  // namespace needle
HWY_AFTER_NAMESPACE();
