// What Highway compiles the kernels for: AVX-512 (AVX3), AVX2, NEON and one plain version.
// Included before any Highway header. HWY_SCALAR is the plain version with every compiler, and is
// compiled even when the build's own flags promise more, so that all names of Isa stay available.
#pragma once

#define HWY_COMPILE_ALL_ATTAINABLE
#define HWY_IS_DEBUG_BUILD 0  // its checks would need the library, of which we use the headers only
#define HWY_BROKEN_EMU128 1
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
