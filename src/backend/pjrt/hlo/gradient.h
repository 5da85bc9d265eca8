// Reverse mode over a graph's straight lines: one rule an operation, written in the builder's own
// operations, so that no backward is written twice. Loops are differentiated through Custom
// (scan.h). Thread-safety: as the graph.
#pragma once

#include "backend/pjrt/hlo/graph.h"

namespace needle::hlo {

/// d(sum over k of <dys[k], ys[k]>) / dxs; no value where nothing of ys depends on an x. Only nodes
/// that depend on xs are walked. `dys` without a value count as zero.
Values Gradients(const Values& ys, const Values& dys, const Values& xs);

/// `x`, or zeros of the type.
inline Value OrZeros(Value x, Graph& g, const Type& type) { return x ? x : Zeros(g, type); }

}  // namespace needle::hlo
