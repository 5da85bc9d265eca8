// The table of fast CPU code: one function pointer an operation, one table an instruction set.
//
// Every kernel runs on the calling thread, takes plain pointers and strides (in floats), never
// allocates (scratch is passed in; 64-byte alignment is best, not needed) and gives the same bits
// for the same input, whatever the other threads do. Rows of A, queries and row operations do not
// depend on the block that they are computed in.
// Errors: none; sizes are the caller's promise. Thread-safety: tables are constant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/isa.h"
#include "ops/adamw.h"
#include "ops/lanes.h"
#include "ops/rope.h"
#include "quant/cq.h"
#include "tensor/view.h"

namespace needle {

/// Key rows [begin, end), of which some query of a block sees some. Those in [begin, all_end) are
/// seen by every query.
struct KeySpan {
  int32_t begin = 0, all_end = 0, end = 0;
  /// Place of row floor(begin / panel_width) * panel_width in a row of scores: a multiple of 16.
  size_t column = 0;
};

/// One block of queries against spans of keys, for one key/value head.
/// Query i (row first_row + i) sees key row j iff key_first[j] <= row && row < key_end[j]; rows
/// outside of the spans are seen by none. One query reads the rows of k and v; several read panels
/// (see pack) over all rows.
struct AttentionBlock {
  size_t m = 0;              // queries
  size_t group = 1;          // query heads that share this key/value head
  size_t E = 0;              // head size
  size_t first_row = 0;      // row of query 0
  const float* q = nullptr;  // query i of head g at q + i * q_stride + g * E
  size_t q_stride = 0;
  const KeySpan* spans = nullptr;  // [span_count] ascending; rounded to panels, none overlap
  size_t span_count = 0;
  size_t columns = 0;                  // floats of a row of scores that the spans take
  const int32_t* key_first = nullptr;  // [rows]
  const int32_t* key_end = nullptr;    // [rows]
  float scale = 1;                     // logit = scale * (q . k); above 0

  const float* k = nullptr;  // key of row r at k + r * k_stride (m == 1)
  size_t k_stride = 0;
  const float* v = nullptr;  // value of row r at v + r * v_stride (m == 1)
  size_t v_stride = 0;

  size_t rows = 0;                       // of the panels
  const float* key_columns = nullptr;    // panels of K^T [E, rows]
  const float* value_rows = nullptr;     // panels of V [rows, E]
  const float* value_columns = nullptr;  // panels of V^T [E, rows] (backward)
  const float* key_rows = nullptr;       // panels of K [rows, E] (backward)
};

/// Gradients of AttentionBlock; rows as in q, k, v.
struct AttentionGradients {
  const float* d_o = nullptr;  // [m, group * E] at d_o + i * d_o_stride + g * E
  size_t d_o_stride = 0;
  float* dq = nullptr;  // assigned
  size_t dq_stride = 0;
  float* dk = nullptr;  // added: row r at dk + r * dk_stride
  size_t dk_stride = 0;
  float* dv = nullptr;  // added
  size_t dv_stride = 0;
};

/// Rows quantised to 8 bits: x(i, k) = scale[i] * level[i * stride + k].
struct Int8Rows {
  int8_t* level = nullptr;
  size_t stride = 0;  // bytes; at least K rounded up to 4, the rest of a row 0
  float* scale = nullptr;
  int32_t* sum = nullptr;  // of the row's levels
};

struct Kernels {
  Isa isa = Isa::kGeneric;

  // --- GEMM over packed panels --------------------------------------------------------------
  // B [K, N] is packed into ceil(N / panel_width) panels, each [K, panel_width].

  size_t panel_width = 0;

  /// Packs b(k, n) = b[k * stride_k + n * stride_n], k < K, n < N, as columns [n0, n0 + N) and
  /// rows [k0, k0 + K) of packed panels that have `panels_k` rows. Other columns are not touched:
  /// a padding column of the last panel may hold anything.
  void (*pack)(const float* b, size_t stride_k, size_t stride_n, size_t K, size_t N, float* panels,
               size_t panels_k, size_t k0, size_t n0) = nullptr;

  /// C [M, N] = A B, or C += A B, with A(i, k) = a[i * a_row_stride + k * a_k_stride] and B the
  /// panels (K rows). C rows are ldc apart. `panels` may point at a later panel.
  void (*gemm)(size_t M, size_t N, size_t K, const float* a, size_t a_row_stride, size_t a_k_stride,
               const float* panels, float* c, size_t ldc, bool accumulate) = nullptr;

  /// C [M, N] += A^T B with A [T, M] (rows lda apart) and B [T, N] (rows ldb apart): the gradient
  /// of a weight. `scratch` holds PackedSize(T, N) floats.
  void (*gemm_tn)(size_t M, size_t N, size_t T, const float* a, size_t lda, const float* b,
                  size_t ldb, float* c, size_t ldc, float* scratch) = nullptr;

  size_t PackedSize(size_t K, size_t N) const {
    return (N + panel_width - 1) / panel_width * panel_width * K;
  }
  /// The whole of B: PackedSize(K, N) floats.
  void PackB(const float* b, size_t stride_k, size_t stride_n, size_t K, size_t N,
             float* panels) const {
    pack(b, stride_k, stride_n, K, N, panels, K, 0, 0);
  }
  /// Columns [n0, n0 + N) of a wider packed matrix with the same K.
  void PackColumns(const float* b, size_t stride_k, size_t stride_n, size_t K, size_t N,
                   float* panels, size_t n0) const {
    pack(b, stride_k, stride_n, K, N, panels, K, 0, n0);
  }

  // --- Products of integers -------------------------------------------------------------------
  // x B with x quantised to 8 bits and each column of B to 24: faster than floats, with exact sums.
  // A result is within 2^-21 * (sum of |x|) * (largest magnitude of the column) of x B. All three
  // are nullptr where the instruction set has no such products.

  /// FakeQuantizeActivations of each row, as levels. A row that is not finite gets a scale of NaN.
  void (*quantise_int8)(MatView<const float> x, int bits, const Int8Rows& rows) = nullptr;

  /// Packs `rows` [N, K] as columns [n0, n0 + N) of B [K, ...]: panels of kInt24Panel columns, each
  /// Int24PanelBytes(K). A column that is not finite gives NaN; one below 1e-30 counts as 0.
  void (*pack_int24)(const float* rows, size_t K, size_t N, uint8_t* panels, size_t n0) = nullptr;

  /// C [M, N] = x B, rows ldc apart. `panels` may point at a later panel.
  void (*gemm_int24)(size_t M, size_t N, size_t K, const Int8Rows& x, const uint8_t* panels,
                     float* c, size_t ldc) = nullptr;

  static constexpr size_t kInt24Panel = 16;
  static size_t Int24PanelBytes(size_t K) { return (K + 3) / 4 * 4 * 3 * kInt24Panel + 64; }

  // --- Attention ----------------------------------------------------------------------------

  /// o [m, group * E] (query i, head g at o + i * o_stride + g * E) = softmax(scale q k) v and
  /// lse [m, group] = log of the sum of exp(logits). A query that sees no key: o = 0, lse = -inf.
  void (*attention_forward)(const AttentionBlock& block, float* o, size_t o_stride, float* lse,
                            float* scratch) = nullptr;

  /// The gradient, from o and lse of the forward. Reads the panels also of one query.
  void (*attention_backward)(const AttentionBlock& block, const float* o, size_t o_stride,
                             const float* lse, const AttentionGradients& gradients,
                             float* scratch) = nullptr;

  /// Queries of one block at which the kernels work best (any number is right).
  size_t query_block = 0;

  /// Floats of scratch for the forward and the backward. Grows with each argument.
  size_t (*attention_scratch)(size_t m, size_t columns, size_t group, size_t E) = nullptr;

  // --- Operations of src/ops for float, on row blocks -----------------------------------------
  // Signatures, shapes, what is assigned and what is added: as the function of that name there.

  void (*rms_norm_forward)(MatView<const float> x, std::span<const float> scale,
                           MatView<float> y) = nullptr;
  void (*rms_norm_backward)(MatView<const float> x, std::span<const float> scale,
                            MatView<const float> dy, MatView<float> dx,
                            std::span<float> dscale) = nullptr;
  void (*rope)(MatView<float> x, std::span<const int32_t> position, const RopeTable<float>& table,
               int direction) = nullptr;
  void (*gate_forward)(MatView<const float> a, MatView<const float> g, MatView<float> o) = nullptr;
  void (*gate_backward)(MatView<const float> a, MatView<const float> g, MatView<const float> d_o,
                        MatView<float> da, MatView<float> dg) = nullptr;
  void (*scalar_gate_forward)(MatView<const float> u1, MatView<const float> n, float gate,
                              MatView<float> x1) = nullptr;
  void (*scalar_gate_backward)(MatView<const float> n, float gate, MatView<const float> dx1,
                               MatView<float> dn, float* dgate) = nullptr;
  void (*hadamard_mlp_forward)(MatView<const float> x, std::span<const float> d1,
                               std::span<const float> d2, std::span<const float> d3,
                               MatView<float> y) = nullptr;
  void (*hadamard_mlp_backward)(MatView<const float> x, std::span<const float> d1,
                                std::span<const float> d2, std::span<const float> d3,
                                MatView<const float> dy, MatView<float> dx, std::span<float> dd1,
                                std::span<float> dd2, std::span<float> dd3) = nullptr;
  void (*lane_coefficients_forward)(MatView<const float> r, const LaneScalars<float>& p,
                                    MatView<float> c) = nullptr;
  void (*lane_coefficients_backward)(MatView<const float> r, MatView<const float> c,
                                     const LaneScalars<float>& p, MatView<const float> dc,
                                     MatView<float> dr,
                                     const LaneScalarGrads<float>& grads) = nullptr;
  void (*lanes_in_forward)(MatView<const float> x, MatView<const float> c,
                           MatView<float> u) = nullptr;
  void (*lanes_in_backward)(MatView<const float> x, MatView<const float> c, MatView<const float> du,
                            MatView<float> dx, MatView<float> dc) = nullptr;
  void (*lanes_out_forward)(MatView<const float> x, MatView<const float> c, MatView<const float> y,
                            MatView<float> next) = nullptr;
  void (*lanes_out_backward)(MatView<const float> x, MatView<const float> c, MatView<const float> y,
                             MatView<const float> dnext, MatView<float> dx, MatView<float> dy,
                             MatView<float> dc) = nullptr;
  void (*unit_scale_forward)(MatView<const float> x, MatView<float> r) = nullptr;
  void (*unit_scale_backward)(MatView<const float> x, MatView<const float> r, MatView<float> dr,
                              MatView<float> dx) = nullptr;
  void (*engram_mix_forward)(MatView<const float> u, MatView<const float> key,
                             MatView<const float> val, MatView<float> u1) = nullptr;
  void (*engram_mix_backward)(MatView<const float> u, MatView<const float> key,
                              MatView<const float> val, MatView<const float> du1, MatView<float> du,
                              MatView<float> dkey, MatView<float> dval) = nullptr;
  void (*lane_mean_forward)(MatView<const float> x, MatView<float> h) = nullptr;
  void (*lane_mean_backward)(MatView<const float> dh, MatView<float> dx) = nullptr;
  double (*cross_entropy_row)(std::span<float> logits, std::span<const int32_t> ids,
                              std::span<const float> weights) = nullptr;

  /// y = (x1 + y) - u: what a block gives to the lanes.
  void (*residual)(MatView<const float> x1, MatView<const float> u, MatView<float> y) = nullptr;
  /// Each row x = x H / sqrt(n), n = x.cols() a power of two. The bits of HadamardInPlace.
  void (*walsh_hadamard)(MatView<float> x) = nullptr;

  // --- Fake quantisation (straight-through values), the bits of src/quant ----------------------

  /// Each piece of `unit` columns of each row (unit = cols for a weight row, E for a head) becomes
  /// fl(w + fl(q - w)), q its codebook value in groups of `group` (the last one padded with 0).
  /// bits is not kNone.
  void (*fake_quantise)(MatView<float> x, size_t unit, Bits bits, size_t group) = nullptr;
  /// FakeQuantizeActivations of each row.
  void (*fake_quantise_activations)(MatView<float> x, int bits) = nullptr;

  /// `rounds` of independent multiply-adds in registers, from and to *value; returns their FLOP.
  double (*multiply_adds)(size_t rounds, float* value) = nullptr;

  // --- Flat arrays ------------------------------------------------------------------------------

  float (*dot)(const float* a, const float* b, size_t n) = nullptr;
  /// Summed in float lanes: for partial sums of some ten thousand values.
  double (*sum_squares)(const float* x, size_t n) = nullptr;
  /// y += a x
  void (*axpy)(float a, const float* x, float* y, size_t n) = nullptr;
  /// y = f(x), in place allowed; within 2 (exp) or 4 units in the last place.
  void (*exp)(const float* x, float* y, size_t n) = nullptr;
  void (*sigmoid)(const float* x, float* y, size_t n) = nullptr;
  void (*silu)(const float* x, float* y, size_t n) = nullptr;
  /// AdamWUpdate of ops/adamw.h, the same bits.
  void (*adamw)(const AdamWOptions& options, const UpdateScalars& scalars, float norm,
                std::span<const float> g, std::span<float> p, std::span<float> m,
                std::span<float> v) = nullptr;
};

/// The table of an instruction set; `isa` must be one of SupportedIsas().
const Kernels& KernelsFor(Isa isa);

/// KernelsFor(BestIsa()).
const Kernels& BestKernels();

}  // namespace needle
