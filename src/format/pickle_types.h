// The number types that arrays in a pickle may have; shared by reader, writer and conversion.
// Thread-safe.
#pragma once

#include <string_view>

#include "format/pickle.h"

namespace needle::pickle {

/// By NumPy's code ("f4") or "bfloat16"; nullptr for a type that is not read.
const ElementType* FindElementType(std::string_view code);
/// The type that holds exactly a tensor's values.
const ElementType& ElementTypeOf(DType type);

}  // namespace needle::pickle
