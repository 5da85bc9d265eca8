// The model's operations as StableHLO values: what src/ops means, for any device. Gradients come
// from hlo/gradient.h; where the plain derivative would be wasteful (rotation, softmax, attention
// in blocks, Sinkhorn, low-rank factors) a piece carries its own. Shapes: N = G * T rows of a
// block, G groups, D, A = H*E, K, S lanes, C lane columns, R rank. Source: MODEL.md sections 4, 5,
// 7; src/ops. Thread-safety: as the graph.
#pragma once

#include "backend/pjrt/hlo/graph.h"
#include "quant/cq.h"

namespace needle::pjrt {

using hlo::Dims;
using hlo::Value;
using hlo::Values;

/// x [..., D] / sqrt(mean(x^2) + 1e-6) * (1 + scale), over the last axis.
Value RmsNorm(Value x, Value scale);
/// 1 / sqrt(mean(x^2) + 1e-6) over the last axis, of the values of all `xs` together. [N]
Value InverseRms(const Values& xs);
/// Along the last axis.
Value Softmax(Value x);
/// x [N, heads, E] rotated by cos, sin [N, E/2].
Value Rope(Value x, Value cos, Value sin);
/// The Walsh-Hadamard matrix over sqrt(n). [n, n]
Value HadamardMatrix(hlo::Graph& g, int64_t n, DType dtype = DType::kF32);
/// cut(d3 * (silu(d2 * ((d1 * pad(h)) H)) H)); h [N, D], d1, d2, d3 [M].
Value HadamardMlp(Value h, Value d1, Value d2, Value d3, Value hadamard);
/// 20 rounds over z [S, S, N] (rows, columns, rows of the block).
Value Sinkhorn(Value z, bool differentiable);

/// 0 where `sees`, else what hides a score.
Value AdditiveMask(Value sees, DType dtype = DType::kF32);
/// What attention may see: additive [G, T, T] for plain, subtree ends [G, T] for blocks of keys.
Value VisibilityMask(Value subtree_end, DType dtype = DType::kF32);
/// q [G, K, M, T, E], k and v [G, K, T, E], mask [G, T, T] -> [G, K, M, T, E]; q is scaled already.
Value PlainAttention(Value q, Value k, Value v, Value mask);
/// The same over blocks of `block` keys with a running softmax: nothing of size T x T is kept.
Value BlockedAttention(Value q, Value k, Value v, Value subtree_end, int64_t block);

/// x + (q - x), straight-through: one scale a vector of the last axis, 2^bits levels.
Value FakeQuantise(Value x, int bits);
/// The same with codebooks, in groups of 128 (64 for keys and values).
/// Vectors of the last axis (embeddings, keys, values).
Value CodebookRows(Value x, Bits bits, int64_t group, Value hadamard);
/// Vectors of the axis before the last ([..., in, out] kernels).
Value CodebookColumns(Value x, Bits bits, int64_t group, Value hadamard);

/// One adapted projection: columns [first, first + width) of the product.
struct LoraColumns {
  Value a, b;  // [in, R], [R, width]
  int64_t first = 0, width = 0;
};
/// x [N, in] times `merged` [in, out], in which scale * A B is already added. The gradient goes to
/// x, and to the factors by way of products of rank R.
Value LoraProduct(Value x, Value merged, const std::vector<LoraColumns>& lora, double scale);

/// sum_n weight_n * (logsumexp(logits_n) - logits_n[id_n]); logits [n, V].
Value CrossEntropy(Value logits, Value ids, Value weights);

}  // namespace needle::pjrt
