// The weights in the executor's own layout: panels for x W and for dy W^T, packed once for a run
// (frozen) or once a step (adapted), with LoRA merged and codebook quantisation applied.
// Source: MODEL.md sections 5, 7. Thread-safety: Pack* are called by one thread (they use the
// pool); reading is shared.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "exec/buffer.h"
#include "kernels/kernels.h"
#include "model/config.h"
#include "model/params.h"
#include "model/view.h"
#include "quant/cq.h"
#include "quant/numerics.h"

namespace needle {

/// The five projections that LoRA may adapt, in the order of their columns (out comes last).
enum Projection : size_t { kQ, kK, kV, kGate, kOut, kProjections };
std::string_view ProjectionPath(Projection p);  // "stack/layers/block/self_attn/q_proj/kernel"

/// LoRA factors of every layer: a [L][in, R], b [L][R, out]; empty views where a target is dropped.
template <class N>
struct LoraView {
  size_t rank = 0;
  float scale = 0;
  std::vector<std::array<MatView<N>, kProjections>> a, b;  // [L]
};

/// Sizes that the executor uses everywhere.
struct Dims {
  explicit Dims(const ModelConfig& c);
  size_t D, A, H, K, E, KE, L, S, C, V, M, tables,
      ED;                                   // C: lane columns, KE = K*E, ED: engram width
  size_t NQ;                                // q | k | v | gate columns: 2A + 2KE
  std::array<size_t, kProjections> column;  // first column of each projection (out: 0)
  std::array<size_t, kProjections> width;
};

/// Rows [m, K] that are multiplied with a Multiplier: as floats or as levels, whichever it takes.
struct Inputs {
  MatView<float> values;
  Int8Rows levels;
  /// Rows from `begin` on.
  Inputs From(size_t begin) const;
};

/// A matrix W [K, N] of x W, as the kernels read it: panels of floats, or of 24-bit integers where
/// x is quantised to at most 8 bits and the kernels have such products.
class Multiplier {
 public:
  void Reserve(const Kernels& kernels, size_t K, size_t N, int act_bits);
  /// `rows` [n, K] become columns [first, first + n) of W.
  void PackColumns(const Kernels& kernels, const float* rows, size_t n, size_t first);
  /// Quantises rows of x for it (to act_bits; 0: not at all): x itself where W is of floats.
  void Quantise(const Kernels& kernels, MatView<float> x, const Int8Rows& levels) const;
  /// Columns [from, to) of y [m, N] = x W. Columns before `from` in its panel are written, too.
  void Product(const Kernels& kernels, size_t m, const Inputs& x, size_t from, size_t to,
               MatView<float> y) const;
  bool OfIntegers() const { return integers_.data() != nullptr; }

 private:
  size_t K_ = 0;
  int act_bits_ = 0;
  Buffer<float> floats_;
  Buffer<uint8_t> integers_;
};

class Weights {
 public:
  /// Keeps a copy of the float parameters. `backward`: also lay out what gradients need;
  /// `all_parameters`: also of the frozen ones.
  Weights(const ModelConfig& config, const Kernels& kernels, ParamArrays<float> params,
          const Numerics& numerics, bool backward, bool all_parameters, ThreadPool& pool);

  /// Forms the adapted weights again from the base and LoRA (nothing else changes).
  void PackAdapted(const LoraView<const float>& lora, ThreadPool& pool);
  /// Forms everything again from params() (full training).
  void PackAll(ThreadPool& pool);

  const ModelConfig& config() const { return config_; }
  const Dims& dims() const { return dims_; }
  const Numerics& numerics() const { return numerics_; }
  const Kernels& kernels() const { return *kernels_; }
  /// The float parameters before quantisation; full training updates them in place. Those that
  /// are packed for good are empty otherwise.
  ParamArrays<float>& params() { return params_; }
  const ParamArrays<float>& params() const { return params_; }
  /// Views of params(); norms, gates, taps and other unquantised leaves are read here.
  const ModelView<const float>& view() const { return view_; }

  struct Layer {
    Multiplier qkvg, out;                          // [D, NQ], [A, D]
    Buffer<float> qkvg_t, out_t;                   // panels [NQ, D], [D, A]
    Buffer<float> phi, phi_t;                      // panels [S*D, C], [C, S*D]
    std::array<Buffer<float>, kProjections> base;  // [out, in] to which LoRA is added
  };
  struct Site {
    std::vector<float> table;  // [tables*slots, sub], quantised when QAT asks
    Buffer<float> kv, kv_t;    // panels [ED, 2D], [2D, ED]
  };
  const Layer& layer(size_t l) const { return layers_[l]; }
  const Site& site(size_t s) const { return sites_[s]; }
  /// The tied table as used (quantised under QAT) [V, D], as [D, V], and panels [V, D].
  MatView<const float> embedding() const { return {embedding_.data(), dims_.V, dims_.D}; }
  const Multiplier& head() const { return head_; }
  const float* head_t() const { return head_t_.data(); }

 private:
  /// Frees the float values that nothing reads once they are packed for good.
  void DropPacked();
  void PackFrozen(ThreadPool& pool);
  void PackProjection(size_t l, Projection p, const LoraView<const float>* lora);
  /// The rows that the quantiser groups ([out, in] of a kernel, the table's own rows), as used.
  std::vector<float> QuantisedRows(const std::string& path, MatView<const float> w,
                                   bool grouped_on_rows, ThreadPool& pool) const;
  Bits BitsFor(const std::string& path) const;

  ModelConfig config_;
  Dims dims_;
  const Kernels* kernels_;
  ParamArrays<float> params_;
  ModelView<const float> view_;
  Numerics numerics_;
  bool backward_, all_parameters_;
  std::vector<Layer> layers_;
  std::vector<Site> sites_;
  std::vector<float> embedding_;
  Multiplier head_;
  Buffer<float> head_t_;
};

}  // namespace needle
