// The CPU executor: runs the plan of a Needle 2 model forward and backward over row blocks, for
// training and for the engine alike. Fast kernels do the arithmetic; what each operation means is
// in src/ops. Results do not depend on the number of threads: work is split by shape and partial
// sums are added in order.
// Shapes: T rows, D, A = H*E, KE = K*E, S lanes, C lane columns, NQ = 2A + 2KE, V, R (STYLE
// letters). Thread-safety: one Executor, one thread; Weights may be shared by several executors.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "exec/buffer.h"
#include "exec/rows.h"
#include "exec/weights.h"
#include "ops/rope.h"

namespace needle {

struct RowBlock;  // exec/scratch.h

/// What later rows read of earlier ones: keys, values and engram values.
struct Context {
  std::vector<Buffer<float>> kv;   // [L] of [capacity, 2 KE]: rotated keys, then values
  std::vector<Buffer<float>> val;  // [sites] of [capacity, D]: before the convolution

  /// Room for `rows` rows; the first `keep` survive.
  void Reserve(const Dims& d, size_t sites, size_t rows, size_t keep);
};

/// What the backward reads of a forward over T rows, all in one piece of memory.
struct Activations {
  class Array {
   public:
    float* data() const { return data_; }

   private:
    friend struct Activations;
    float* data_ = nullptr;
  };
  struct Layer {
    Array r, c;  // [T, C] lane projections and coefficients
    Array qkvg;  // [T, NQ] projections before norms
    Array att;   // [T, A] attention before the gate
    Array lse;   // [K][T, H / K]
    Array p;     // [T, D] out projection
  };
  struct Site {
    Array e;    // [T, ED] gathered (and quantised) n-gram vectors
    Array key;  // [T, D]
    Array val;  // [T, D] after the convolution
  };
  bool keep = false;  // false: one layer's worth, for the engine and for evaluation
  size_t T = 0;
  std::vector<Array> x;       // [L + 1] (or 2) of [T, S*D]
  std::vector<Layer> layers;  // [L] (or 1)
  std::vector<Site> sites;
  std::vector<int32_t> slots;  // [T, tables]

  float* place = nullptr;  // where Reserve lays the arrays; nullptr: in memory of its own

  /// Room for T rows. The same T and place give the same addresses: contents survive.
  void Reserve(const Dims& d, size_t rows, size_t site_count);
  /// Lays the arrays for T rows from `from` on; returns the floats that they take.
  size_t Lay(const Dims& d, size_t rows, size_t site_count, float* from);
  Layer& layer(size_t l) { return layers[keep ? l : 0]; }
  MatView<float> X(size_t l, size_t width) { return {x[keep ? l : l % 2].data(), T, width}; }

 private:
  Buffer<float> memory_;
};

/// Where gradients go (added): LoRA factors, or every parameter. Exactly one is set.
struct GradientSink {
  const LoraView<const float>* lora = nullptr;  // the factors that the weights were packed with
  const LoraView<float>* lora_grad = nullptr;
  const ModelView<float>* all = nullptr;
};

class Executor {
 public:
  Executor(const Weights& weights, ThreadPool& pool);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// About how many rows are held at once in training (those that chunks share, and a chunk);
  /// bounds memory, not the result.
  void set_chunk_rows(size_t rows) { chunk_rows_ = rows; }
  /// `set_chunk_rows` so that saved activations take about this many bytes.
  void set_activation_budget(size_t bytes);

  /// Loss of a forest (its weights already normalised). With a sink, adds gradients to it.
  double Loss(const Forest& forest, const GradientSink* sink);

  /// Forward over rows [rows.first, rows.total()). Keys and values go into `context`. `cells`, when
  /// not empty, gets x0 and every layer's lane mean: row t * (L + 1) + layer, [T * (L + 1), D].
  void Forward(const Rows& rows, Context& context, Activations& acts, MatView<float> cells = {});

  /// logits [n, V] of local rows `row` (numbers as in Rows, >= first) after Forward.
  void Logits(const Rows& rows, Activations& acts, std::span<const int32_t> row,
              MatView<float> logits);

  /// After a Loss that is not finite: names the first operation of the forward that produced a NaN
  /// or an infinity, or an empty text.
  std::string FirstNonFinite(const Forest& forest);

 private:
  struct Scratch;  // one worker's
  struct Backward;
  struct KeyBlock;
  struct KeyPanels;

  /// Whole-block scan for NaN and infinity; "" when all is finite.
  std::string Explain(const Rows& rows, Activations& acts);
  /// Which rows the last layer must give: all, or those of targets (the others only their keys and
  /// values; what else they have in the last layer is then 0 or not written).
  enum class Needed { kAll, kTargets };
  /// Chunks of a batch, and memory for what they share and the largest of them.
  ChunkPlan PlanFor(const Forest& forest, bool keep);
  void Prepare(const Rows& rows, Activations& acts, Needed needed);
  void ForwardTo(Needed needed, const Rows& rows, Context& context, Activations& acts,
                 MatView<float> cells);
  /// Blocks of queries in rows [begin, begin + count).
  void AddKeyBlocks(const Rows& rows, size_t begin, size_t count, std::vector<KeyBlock>* blocks);
  /// Whether layer l is computed for some rows only, which are those of `runs_`.
  bool IsPartial(size_t l) const { return partial_ && l + 1 == d_.L; }
  const std::vector<KeyBlock>& KeyBlocks(size_t l) const {
    return IsPartial(l) ? last_key_blocks_ : key_blocks_;
  }
  void Engrams(const Rows& rows, Context& context, Activations& acts);
  /// x of layer 0.
  void Embed(const Rows& rows, size_t begin, size_t m, Activations& acts, MatView<float> cells);
  /// Products of the lanes that enter a layer with its phi.
  void LaneProducts(size_t l, size_t begin, size_t m, Activations& acts);
  /// From those and the lanes to the projections' input h [m, D].
  void PhaseIn(size_t l, size_t begin, size_t m, Activations& acts, const Inputs& h);
  /// Queries, keys, values and gate from h.
  void Projections(const Rows& rows, size_t l, const RowBlock& at, const Inputs& h,
                   Context& context, Activations& acts);
  /// u and, at a site, u1 (the engram mixed in) of a block, from the lanes that enter the layer.
  void MixIn(size_t l, size_t begin, size_t m, Activations& acts);
  /// Rows of u and u1, which is u where the layer has no site.
  MatView<float> U(size_t begin, size_t m) { return {u_.data() + begin * d_.D, m, d_.D}; }
  MatView<float> U1(size_t l, size_t begin, size_t m);
  /// Packs the keys and values of all rows of a layer.
  void PackKeys(const Rows& rows, size_t l, const Context& context, bool backward);
  /// A query block and its keys, as the attention kernels take them.
  AttentionBlock BlockOf(const Rows& rows, size_t l, size_t head, const KeyBlock& block,
                         const Context& context) const;
  void Attend(const Rows& rows, size_t l, size_t head, const KeyBlock& block, Context& context,
              Activations& acts, Scratch& s);
  void OutProjection(size_t l, size_t begin, size_t m, Activations& acts, Scratch& s);
  /// From the out projection to the lanes that leave a layer.
  void PhaseOut(size_t l, size_t begin, size_t m, Activations& acts, MatView<float> cells,
                Scratch& s);
  double HeadLoss(const Rows& rows, Activations& acts, const GradientSink* sink);
  void RunBackward(const Rows& rows, Context& context, Activations& acts, bool clear_own,
                   const GradientSink& sink);
  void EngramsBackward(const Rows& rows, Context& context, Activations& acts,
                       const ModelView<float>& grads);
  void BackwardOut(const Rows& rows, size_t l, const RowBlock& at, Activations& acts,
                   const GradientSink& sink, Scratch& s);
  /// BackwardOut where the layer is partial: rows that it does not give have no gradient.
  void BackwardPartial(const Rows& rows, size_t l, const RowBlock& at, Activations& acts,
                       const GradientSink& sink, Scratch& s);
  /// Lanes and MLP down to the gradient of the out projection.
  void BackwardMlp(size_t l, const RowBlock& at, Activations& acts, const GradientSink& sink,
                   Scratch& s);
  void BackwardAttention(const Rows& rows, size_t l, size_t head, Context& context,
                         Activations& acts, Scratch& s);
  void BackwardIn(const Rows& rows, size_t l, const RowBlock& at, Activations& acts,
                  const GradientSink& sink, Scratch& s);
  /// From the gradient dh of the projections' input to the lanes that enter the layer.
  void BackwardLanes(size_t l, const RowBlock& at, Activations& acts, MatView<float> dh,
                     const GradientSink& sink);
  void PackLora(const LoraView<const float>& lora);
  /// Gives the sink what PackLora made room for.
  void AddSharedGradients(const GradientSink& sink);
  void LoraRows(size_t l, size_t begin, size_t m, const LoraView<const float>& lora);
  void WeightGradients(size_t l, Activations& acts, const GradientSink& sink);
  void AddSmallGradients(size_t l, size_t blocks, const ModelView<float>& grads);

  const Weights& w_;
  const Kernels& k_;
  ThreadPool& pool_;
  const Dims d_;
  size_t chunk_rows_ = 1024;
  RopeTable<float> rope_;
  std::vector<Scratch> scratch_;
  std::vector<KeyBlock> key_blocks_, last_key_blocks_;
  bool partial_ = false;  // the last layer gives the rows of runs_ only
  std::vector<RowBlock> runs_;
  std::unique_ptr<KeyPanels> panels_;
  Buffer<float> u_, u1_, q_;  // [T, D], [T, D], [T, A] of the layer at hand
  std::unique_ptr<Backward> back_;
  Context context_;
  Buffer<float> acts_memory_;  // of both:
  Activations prefix_acts_, chunk_acts_;
};

}  // namespace needle
