// A loop over layers with a gradient of its own: one body, run over stacked weights, and its
// reverse, run over them from the end. What the reverse needs of the forward is saved, or computed
// again from what entered the layer (remat). Scanned: two loops on the device, each holding one
// body. Unrolled: all bodies in a row.
// Thread-safety: as the graph.
#pragma once

#include <map>
#include <string>

#include "backend/pjrt/hlo/graph.h"

namespace needle::hlo {

using NamedValues = std::map<std::string, Value>;

struct ScanOptions {
  bool unroll = false;  // else a loop on the device
  bool remat = true;    // else what costs a matrix product, sum or loop is saved
  bool differentiable = true;
};

struct ScanInputs {
  Values carried;
  NamedValues stacked;               // [layers, ...]: layer l sees slice l
  NamedValues invariant;             // seen by every layer
  std::vector<std::string> trained;  // names among stacked and invariant whose gradient is wanted
};

/// carried, this layer's slices, invariants -> carried. Called several times, on several graphs.
using ScanBody = std::function<Values(Graph& g, const Values& carried, const NamedValues& slices,
                                      const NamedValues& invariant)>;

/// The carried values after `layers` layers. Their gradient flows to carried and `trained` inputs.
Values Scan(Graph& g, int64_t layers, const ScanInputs& inputs, const ScanBody& body,
            const ScanOptions& options);

}  // namespace needle::hlo
