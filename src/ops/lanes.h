// ops/lanes.h    manifold hyper-connections: S residual lanes mixed before and after a block
//   r    = unit(X) [phi_pre | phi_post | phi_res]             (unit norm over all S*D values)
//   pre  = sigmoid(a_pre r_pre + b_pre + own(+4, -4))          u  = sum_i pre_i X_i
//   post = 2 sigmoid(a_post r_post + b_post + own(0, -4))
//   R    = sinkhorn(a_res r_res + b_res)                       X'_i = sum_j R_ij X_j + post_i y
// Shapes: X, X' [T, S*D] lane by lane; u, y [T, D]; r, c [T, C] with C = 2S + S*S, laid out
// pre | post | R row major; phi_* [S*D, S | S | S*S]. Source: MODEL.md 4.4.
// Thread-safe on disjoint rows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "ops/scalar.h"
#include "ops/sinkhorn.h"
#include "tensor/view.h"

namespace needle {

constexpr size_t LaneColumns(size_t S) { return 2 * S + S * S; }

/// The scalars of one layer. `own`: the layer's lane, layer mod S.
template <class N>
struct LaneScalars {
  N a_pre{}, a_post{}, a_res{};
  std::span<const N> b_pre, b_post;  // [S]
  std::span<const N> b_res;          // [S*S]
  size_t own = 0;
};

/// Where their gradients go (each is added to); all empty / null means not wanted.
template <class N>
struct LaneScalarGrads {
  N *a_pre = nullptr, *a_post = nullptr, *a_res = nullptr;
  std::span<N> b_pre, b_post, b_res;
};

/// r [T, C] -> c [T, C].
template <class N>
void LaneCoefficientsForward(MatView<const N> r, const LaneScalars<N>& p, MatView<N> c) {
  const size_t S = p.b_pre.size();
  std::vector<N> z(S * S);
  for (size_t t = 0; t < r.rows(); ++t) {
    const N* in = r.Row(t);
    N* out = c.Row(t);
    for (size_t i = 0; i < S; ++i) {
      const N off = N(i == p.own ? 4 : -4), off2 = N(i == p.own ? 0 : -4);
      out[i] = Sigmoid(p.a_pre * in[i] + p.b_pre[i] + off);
      out[S + i] = N(2) * Sigmoid(p.a_post * in[S + i] + p.b_post[i] + off2);
    }
    for (size_t e = 0; e < S * S; ++e) z[e] = p.a_res * in[2 * S + e] + p.b_res[e];
    SinkhornForward<N>(z, S, {out + 2 * S, S * S});
  }
}

/// dc -> dr (assigned; dr = dc in place is allowed). Adds to the grads that are there.
template <class N>
void LaneCoefficientsBackward(MatView<const N> r, MatView<const N> c, const LaneScalars<N>& p,
                              MatView<const N> dc, MatView<N> dr, const LaneScalarGrads<N>& grads) {
  const size_t S = p.b_pre.size();
  std::vector<N> z(S * S), dz(S * S);
  for (size_t t = 0; t < r.rows(); ++t) {
    const N *in = r.Row(t), *out = c.Row(t), *d = dc.Row(t);
    N* g = dr.Row(t);
    for (size_t e = 0; e < S * S; ++e) z[e] = p.a_res * in[2 * S + e] + p.b_res[e];
    SinkhornBackward<N>(z, S, {d + 2 * S, S * S}, dz);
    for (size_t i = 0; i < S; ++i) {
      const N pre = d[i] * out[i] * (N(1) - out[i]);
      const N half = out[S + i] / N(2);
      const N post = d[S + i] * N(2) * half * (N(1) - half);
      if (grads.a_pre) {
        *grads.a_pre += pre * in[i];
        *grads.a_post += post * in[S + i];
        grads.b_pre[i] += pre;
        grads.b_post[i] += post;
      }
      g[i] = p.a_pre * pre;
      g[S + i] = p.a_post * post;
    }
    for (size_t e = 0; e < S * S; ++e) {
      if (grads.a_pre) {
        *grads.a_res += dz[e] * in[2 * S + e];
        grads.b_res[e] += dz[e];
      }
      g[2 * S + e] = p.a_res * dz[e];
    }
  }
}

/// u = sum_i pre_i X_i
template <class N>
void LanesInForward(MatView<const N> x, MatView<const N> c, MatView<N> u) {
  const size_t D = u.cols(), S = x.cols() / D;
  for (size_t t = 0; t < x.rows(); ++t)
    for (size_t d = 0; d < D; ++d) {
      N sum{};
      for (size_t i = 0; i < S; ++i) sum += c.Row(t)[i] * x.Row(t)[i * D + d];
      u.Row(t)[d] = sum;
    }
}

/// Adds pre_i du to dx; assigns the pre part of dc: <du, X_i>.
template <class N>
void LanesInBackward(MatView<const N> x, MatView<const N> c, MatView<const N> du, MatView<N> dx,
                     MatView<N> dc) {
  const size_t D = du.cols(), S = x.cols() / D;
  for (size_t t = 0; t < x.rows(); ++t)
    for (size_t i = 0; i < S; ++i) {
      N sum{};
      for (size_t d = 0; d < D; ++d) {
        sum += du.Row(t)[d] * x.Row(t)[i * D + d];
        dx.Row(t)[i * D + d] += c.Row(t)[i] * du.Row(t)[d];
      }
      dc.Row(t)[i] = sum;
    }
}

/// X'_i = sum_j R_ij X_j + post_i y
template <class N>
void LanesOutForward(MatView<const N> x, MatView<const N> c, MatView<const N> y, MatView<N> next) {
  const size_t D = y.cols(), S = x.cols() / D;
  for (size_t t = 0; t < x.rows(); ++t)
    for (size_t i = 0; i < S; ++i)
      for (size_t d = 0; d < D; ++d) {
        N sum{};
        for (size_t j = 0; j < S; ++j) sum += c.Row(t)[2 * S + i * S + j] * x.Row(t)[j * D + d];
        next.Row(t)[i * D + d] = sum + c.Row(t)[S + i] * y.Row(t)[d];
      }
}

/// Assigns dx = R^T dX', dy = sum_i post_i dX'_i, and the post and R parts of dc. dx may be empty
/// (the lowest layer of a LoRA run needs none).
template <class N>
void LanesOutBackward(MatView<const N> x, MatView<const N> c, MatView<const N> y,
                      MatView<const N> dnext, MatView<N> dx, MatView<N> dy, MatView<N> dc) {
  const size_t D = y.cols(), S = x.cols() / D;
  for (size_t t = 0; t < x.rows(); ++t) {
    const N *coef = c.Row(t), *g = dnext.Row(t), *lanes = x.Row(t);
    for (size_t i = 0; i < S; ++i) {
      N post{};
      for (size_t d = 0; d < D; ++d) post += g[i * D + d] * y.Row(t)[d];
      dc.Row(t)[S + i] = post;
      for (size_t j = 0; j < S; ++j) {
        N mix{};
        for (size_t d = 0; d < D; ++d) mix += g[i * D + d] * lanes[j * D + d];
        dc.Row(t)[2 * S + i * S + j] = mix;
      }
    }
    for (size_t d = 0; d < D; ++d) {
      N sum{};
      for (size_t i = 0; i < S; ++i) sum += coef[S + i] * g[i * D + d];
      dy.Row(t)[d] = sum;
    }
    if (dx.empty()) continue;
    for (size_t j = 0; j < S; ++j)
      for (size_t d = 0; d < D; ++d) {
        N sum{};
        for (size_t i = 0; i < S; ++i) sum += coef[2 * S + i * S + j] * g[i * D + d];
        dx.Row(t)[j * D + d] = sum;
      }
  }
}

/// r *= 1/rms(X row): turns X phi into unit(X) phi.
template <class N>
void UnitScaleForward(MatView<const N> x, MatView<N> r) {
  for (size_t t = 0; t < x.rows(); ++t) {
    const N inverse = InverseRms<N>(x.Row(t), x.cols());
    for (size_t j = 0; j < r.cols(); ++j) r.Row(t)[j] *= inverse;
  }
}

/// Given dr and r (scaled): dr *= 1/rms, so that dx += dr phi^T completes the input gradient; and
/// adds the norm's own part, dx -= X <dr, r> / (rms^2 S D).
template <class N>
void UnitScaleBackward(MatView<const N> x, MatView<const N> r, MatView<N> dr, MatView<N> dx) {
  for (size_t t = 0; t < x.rows(); ++t) {
    const N inverse = InverseRms<N>(x.Row(t), x.cols());
    N along{};
    for (size_t j = 0; j < r.cols(); ++j) {
      along += dr.Row(t)[j] * r.Row(t)[j];
      dr.Row(t)[j] *= inverse;
    }
    const N c = along * inverse * inverse / N(static_cast<double>(x.cols()));
    if (!dx.empty())
      for (size_t d = 0; d < x.cols(); ++d) dx.Row(t)[d] -= c * x.Row(t)[d];
  }
}

}  // namespace needle
