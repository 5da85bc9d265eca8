// Internal to src/exec: the executor's scratch space.
#pragma once

#include <algorithm>
#include <vector>

#include "exec/executor.h"

namespace needle {

inline constexpr size_t kRowBlock = 56;   // rows that share one pass over a layer's weights
inline constexpr size_t kRowPiece = 16;   // their lanes stay in the second-level cache
inline constexpr size_t kRunGap = 8;      // rows between two runs of targets that join them
inline constexpr size_t kHeadBlock = 84;  // target rows of one task

/// Rows [begin, begin + m) of a pass over T rows.
struct RowBlock {
  size_t index, begin, m;
};

/// Equal blocks of at most kRowBlock rows; several are a multiple of four, so that two or four
/// workers end at the same time. By shape alone.
struct RowBlocks {
  size_t T, count;
  explicit RowBlocks(size_t rows) : T(rows), count(CeilDiv(rows, kRowBlock)) {
    if (count > 2) count = CeilDiv(count, 4) * 4;
  }
  RowBlock operator[](size_t i) const {
    const size_t begin = i * T / count;
    return {i, begin, (i + 1) * T / count - begin};
  }
};

/// The rows of a block in equal pieces of at most kRowPiece rows.
class PiecesOf {
 public:
  explicit PiecesOf(const RowBlock& block) : block_(block) {}
  struct Iterator {
    const RowBlock& block;
    size_t i, count;
    RowBlock operator*() const {
      const size_t first = i * block.m / count;
      return {block.index, block.begin + first, (i + 1) * block.m / count - first};
    }
    Iterator& operator++() {
      ++i;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return i != other.i; }
  };
  Iterator begin() const { return {block_, 0, count_}; }
  Iterator end() const { return {block_, count_, count_}; }

 private:
  const RowBlock block_;
  const size_t count_ = CeilDiv(block_.m, kRowPiece);
};

/// Calls fn(RowBlock) for each part of a block that lies in one of the runs (ascending).
template <class Fn>
void ForEachIn(const std::vector<RowBlock>& runs, const RowBlock& block, const Fn& fn) {
  for (const RowBlock& run : runs) {
    const size_t begin = std::max(run.begin, block.begin);
    const size_t end = std::min(run.begin + run.m, block.begin + block.m);
    if (begin < end) fn(RowBlock{block.index, begin, end - begin});
  }
}

/// One worker's space; each function reserves what it uses.
struct Executor::Scratch {
  Buffer<float> a, b, c, d, e, f, attention, logits, pack, scale;
  Buffer<int8_t> level;
  Buffer<int32_t> sum;
  std::vector<float> row;

  /// m rows [m, K] for a Multiplier, which lie in `values` as floats.
  Inputs InputsOf(MatView<float> values) {
    const size_t m = values.rows(), stride = CeilDiv(values.cols(), 4) * 4;
    return {values, {level.Reserve(m * stride), stride, scale.Reserve(m), sum.Reserve(m)}};
  }
};

/// A block of queries and the keys that any of them sees.
struct Executor::KeyBlock {
  size_t begin = 0, count = 0;  // local rows first + begin ...
  std::vector<KeySpan> spans;
  size_t columns = 0;
};

/// Keys and values of one layer as the attention kernels read them, head after head.
struct Executor::KeyPanels {
  Buffer<float> key_columns, value_rows, value_columns, key_rows;
};

/// Space of the backward, one layer at a time.
struct Executor::Backward {
  Buffer<float> dx[2];  // [T, S*D] of the layer above and below
  Buffer<float> dc;     // [T, C]
  Buffer<float> du;     // [T, D] gradient of u beside the direct dy
  Buffer<float> dx1;    // [T, D]
  Buffer<float> datt;   // [T, A]
  Buffer<float> dq;     // [T, A] gradient of the rotated queries
  Buffer<float> dqkvg;  // [T, NQ]
  Buffer<float> h, o;   // [T, D], [T, A] inputs of the projections (quantised)
  Buffer<float> dp;     // [T, D]
  Buffer<float> xa, g;  // [T, 5 R] x A and dy B^T, scaled
  struct Factors {      // of one layer's LoRA
    Buffer<float> a_in, a_out, b_t[kProjections];  // panels
    Buffer<float> da;  // [D, 4 R] gradient of A of q, k, v and gate, summed over the chunks
  };
  std::vector<Factors> factors;  // [L]
  Buffer<float> dkv;             // [L] of [total, 2 KE], dkv_size apart
  size_t dkv_size = 0;
  float* Dkv(size_t l) { return dkv.data() + l * dkv_size; }
  std::vector<Buffer<float>> dval;             // [sites] of [total, D] (all parameters only)
  std::vector<Buffer<float>> dkey, dval_conv;  // [sites] of [T, D]
  Buffer<float> dlogits, hidden;               // [targets, V], [targets, D] (all parameters only)
  Buffer<float> small;                         // [blocks, SmallSize]
  MatView<float> Dx(size_t l, size_t T, size_t width) { return {dx[l % 2].data(), T, width}; }
};

/// Where the small leaves of one layer lie in a block's partial gradients.
struct SmallGrads {
  SmallGrads(const Dims& d, float* at) {
    const auto take = [&](size_t n) {
      const std::span<float> s = at ? std::span<float>(at + size, n) : std::span<float>();
      size += n;
      return s;
    };
    norm_in = take(d.D);
    q_norm = take(d.E);
    k_norm = take(d.E);
    post_norm = take(d.D);
    attn_gate = take(1);
    pre_hada = take(d.D);
    d1 = take(d.M);
    d2 = take(d.M);
    d3 = take(d.M);
    b_pre = take(d.S);
    b_post = take(d.S);
    b_res = take(d.S * d.S);
    a = take(3);
  }
  std::span<float> norm_in, q_norm, k_norm, post_norm, attn_gate, pre_hada, d1, d2, d3, b_pre,
      b_post, b_res, a;
  size_t size = 0;
};

inline LaneScalarGrads<float> LaneGrads(const SmallGrads& g) {
  if (g.a.empty()) return {};
  return {&g.a[0], &g.a[1], &g.a[2], g.b_pre, g.b_post, g.b_res};
}

}  // namespace needle
