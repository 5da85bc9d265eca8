// How a forward computes: full precision, or with the quantisation that training for an archive
// simulates (MODEL.md section 7). Thread-safety: a value.
#pragma once

#include "quant/cq.h"

namespace needle {

/// The default is full precision.
struct Numerics {
  bool quantise_weights = false;  // weights become w + (q - w), straight-through (QAT)
  BitMap bits = BitMap::Uniform(Bits::k4);
  int act_bits = 0;            // 0: activations stay float32
  Bits kv_bits = Bits::kNone;  // keys and values in groups of 64
};

}  // namespace needle
