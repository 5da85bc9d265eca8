// What published_abi.c says about the published header; it is C, which the header wants.
#pragma once

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct AbiRow {
  const char* name;
  size_t place; /* offset, or a constant's number */
  size_t size;
} AbiRow;

extern const AbiRow needle_published_abi[];
extern const size_t needle_published_abi_rows;

#ifdef __cplusplus
}
#endif
