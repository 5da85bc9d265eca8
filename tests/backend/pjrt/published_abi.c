/* The published header's side of abi_test.cc. */
#include "backend/pjrt/published_abi.h"

#include <pjrt_c_api.h>

const AbiRow needle_published_abi[] = {
#define STRUCT(Ours, Theirs) {#Ours, 0, Theirs##_STRUCT_SIZE},
#define FIELD(Ours, ours, Theirs, theirs) \
  {#Ours "." #ours, offsetof(Theirs, theirs), sizeof(((Theirs*)0)->theirs)},
#define SLOT(ours, theirs) {#ours, offsetof(PJRT_Api, theirs), sizeof(((PJRT_Api*)0)->theirs)},
#define NUMBER(ours, theirs) {#ours, (size_t)(theirs), 0},
#include "backend/pjrt/abi_rows.inc"
};
const size_t needle_published_abi_rows =
    sizeof(needle_published_abi) / sizeof(needle_published_abi[0]);
