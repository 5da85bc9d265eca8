// Test support: an executor over a checkpoint of the reference set.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec/executor.h"
#include "support/models.h"

namespace needle::test {

struct Loaded {
  Loaded(const std::string& name, Isa isa, const Numerics& numerics, bool all = false,
         int threads = 2)
      : Loaded(ReferenceModel(name), isa, numerics, all, threads) {}
  Loaded(Checkpoint checkpoint, Isa isa, const Numerics& numerics, bool all = false,
         int threads = 2)
      : base(std::move(checkpoint)),
        pool(threads),
        weights(base.config, KernelsFor(isa), ParamArrays<float>(base.params), numerics, true, all,
                pool),
        executor(weights, pool) {}

  /// Loss and LoRA gradients of a forest; `lora` must be what the weights were packed with.
  double LoraLoss(const Forest& forest, const LoraArrays& lora, LoraArrays* grads) {
    const LoraView<const float> view = lora.const_view();
    GradientSink sink;
    sink.lora = &view;
    sink.lora_grad = &grads->view();
    return executor.Loss(forest, &sink);
  }
  /// Loss and gradients of every parameter.
  double FullLoss(const Forest& forest, ParamArrays<float>* grads) {
    *grads = ParamArrays<float>::ZerosLike(weights.params());
    const ModelView<float> view = grads->View(base.config);
    GradientSink sink;
    sink.all = &view;
    return executor.Loss(forest, &sink);
  }

  Checkpoint base;
  ThreadPool pool;
  Weights weights;
  Executor executor;
};

/// Rows of one example; key j is seen by rows [j, key_end[j]).
inline Rows ChainRows(const std::vector<int32_t>& ids, const std::vector<int32_t>& key_end) {
  Rows rows;
  for (size_t t = 0; t < ids.size(); ++t) {
    rows.tokens.push_back(ids[t]);
    rows.parent.push_back(static_cast<int32_t>(t) - 1);
    rows.depth.push_back(static_cast<int32_t>(t));
    rows.key_first.push_back(static_cast<int32_t>(t));
    rows.key_end.push_back(key_end[t]);
  }
  return rows;
}

}  // namespace needle::test
