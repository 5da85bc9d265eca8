// NEEDLE_UNROLL before a loop of a constant count: unrolls it whole, so that arrays that it indexes
// can live in registers.
#pragma once

#if defined(__clang__)
#define NEEDLE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define NEEDLE_UNROLL _Pragma("GCC unroll 32")
#endif
