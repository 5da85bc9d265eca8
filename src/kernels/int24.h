// Products of rows quantised to 8 bits with weights quantised to 24: see kernels.h.
#pragma once

#include "kernels/kernels.h"

namespace needle {

/// The entries of the table that need AVX512_VNNI; does nothing on other processors' builds.
void FillInt24(Kernels& table);

}  // namespace needle
