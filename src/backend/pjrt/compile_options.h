// CompileOptions in the form that plugins take: a serialised CompileOptionsProto.
// Source: XLA's compile_options.proto; the fields used are numbered in compile_options.cc.
// Thread-safety: a function.
#pragma once

#include <map>
#include <string>

#include "backend/pjrt/client.h"

namespace needle::pjrt {

/// `shared` are flags under the options' own. The bytes are the same for equal options.
std::string Serialize(const CompileOptions& options, std::map<std::string, FlagValue> shared = {});

}  // namespace needle::pjrt
