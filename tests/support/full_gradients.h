// Gradients of every parameter by the reference model, on the examples of a reference's grads.npz;
// how near to them an engine must come.
#pragma once

#include <algorithm>
#include <string>

#include "model/reference.h"
#include "support/mismatch.h"
#include "support/models.h"

namespace needle::test {

struct FullReference {
  explicit FullReference(const std::string& model) : base(ReferenceModel(model)) {
    const Npz batch = ReferenceNpz(model + "/grads.npz");
    forest = BatchOf(batch.at("ids"), batch.at("mask")).Build(Packing::kTree);
    loss = Gradients(&want);
    Gradients(&rounded);
  }
  /// What float32 itself can do, by the same plain loops; relative to float64's.
  double Float32(const std::string& path) const {
    return RelativeL2(rounded.At(path), want.At(path));
  }
  /// What an engine may be off: sums of a few thousand float32 products. Residual mixing may be as
  /// far off as float32 itself: Sinkhorn's gradient is a small remainder of large terms there, and
  /// for d128 the plain loops are 1e-3 off.
  double Allowed(const std::string& path) const {
    return std::max(1e-5, path.find("_res") != std::string::npos ? 4 * Float32(path) : 0);
  }

  Checkpoint base;
  Forest forest;
  double loss = 0;
  ParamArrays<double> want;    // in float64
  ParamArrays<float> rounded;  // in float32

 private:
  template <class T>
  double Gradients(ParamArrays<T>* to) const {
    const ParamArrays<T> params(base.params);
    *to = ParamArrays<T>::ZerosLike(params);
    const ModelView<T> view = to->View(base.config);
    return ReferenceLoss<T>(base.config, params.View(base.config), forest, &view);
  }
};

}  // namespace needle::test
