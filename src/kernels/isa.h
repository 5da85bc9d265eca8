// Instruction sets that the kernels are compiled for, and the one that this machine gets.
// Errors: ChooseIsa names an instruction set that is unknown or that the machine lacks.
// Thread-safety: all functions may be called from any thread.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"

namespace needle {

/// kAvx512Vnni is kAvx512 with the products of 8-bit integers that AVX512_VNNI adds.
enum class Isa { kGeneric, kAvx2, kAvx512, kAvx512Vnni, kNeon };

/// "generic", "avx2", "avx512", "avx512vnni", "neon".
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
