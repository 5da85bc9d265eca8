// Instruction sets that the kernels are compiled for, and the one that this machine gets.
// Errors: ChooseIsa names an instruction set that is unknown or that the machine lacks.
// Thread-safety: all functions may be called from any thread.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace needle {

enum class Isa { kGeneric, kAvx2, kAvx512, kNeon };

/// "generic", "avx2", "avx512", "neon".
std::string_view Name(Isa isa);

/// What this machine can run, slowest (generic) first.
std::vector<Isa> SupportedIsas();

/// The instruction set of that name, or the fastest one where the name is empty.
Result<Isa> ChooseIsa(std::string_view name);

/// ChooseIsa of the environment variable NEEDLE_ISA. Read once: later calls give the same answer.
/// A program reports the error at its start; code below it calls BestIsa.
Result<Isa> ChooseIsa();

/// ChooseIsa(), or the fastest set where NEEDLE_ISA cannot be had.
Isa BestIsa();

}  // namespace needle
