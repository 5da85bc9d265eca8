// Starting weights that can copy. A small model trained from nothing spends most of its budget on
// discovering that a value in a call is a stretch of the query: it must match "the token that I
// wrote last" against "the token before this one" (an induction head; Olsson et al. 2022). Needle's
// engram memory can hold the token before directly, through the second tap of its convolution, so
// one attention head can be set to that match from the start; training does the rest.
// Thread-safety: a value is changed in place.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "model/params.h"

namespace needle {

/// Sets the first engram site (half of its channels hold the row's own token, half the token
/// before) and the first head of that site's layer (queries read the first half, keys the second,
/// in dimensions that rotate slowly; values pass on). Wants random float32 weights, n-gram orders
/// {1}, and a head size of at least 8. Errors: kInvalidArgument naming what does not fit.
Status PlantCopyHead(Checkpoint& model, uint64_t seed);

}  // namespace needle
