#include "kernels/isa.h"

#include <cstdlib>

#include "base/str_cat.h"

namespace needle {
namespace {

bool HasAvx2() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
#else
  return false;
#endif
}

bool HasAvx512() {
#if defined(__x86_64__)
  return HasAvx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

bool HasAvx512Vnni() {
#if defined(__x86_64__)
  return HasAvx512() && __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

bool HasNeon() {
#if defined(__aarch64__)
  return true;
#else
  return false;
#endif
}

std::string SupportedNames() {
  std::string names;
  for (const Isa isa : SupportedIsas()) names += StrCat(names.empty() ? "" : ", ", Name(isa));
  return names;
}

}  // namespace

std::string_view Name(Isa isa) {
  switch (isa) {
    case Isa::kGeneric:
      return "generic";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Vnni:
      return "avx512vnni";
    case Isa::kNeon:
      return "neon";
  }
  return "?";
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas = {Isa::kGeneric};
  if (HasNeon()) isas.push_back(Isa::kNeon);
  if (HasAvx2()) isas.push_back(Isa::kAvx2);
  if (HasAvx512()) isas.push_back(Isa::kAvx512);
  if (HasAvx512Vnni()) isas.push_back(Isa::kAvx512Vnni);
  return isas;
}

Result<Isa> ChooseIsa(std::string_view name) {
  if (name.empty()) return SupportedIsas().back();
  for (const Isa isa : SupportedIsas())
    if (Name(isa) == name) return isa;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni, Isa::kNeon})
    if (Name(isa) == name)
      return Error(Code::kInvalidArgument,
                   StrCat("NEEDLE_ISA asks for \"", name, "\", which this machine lacks; it has ",
                          SupportedNames(), " (leave NEEDLE_ISA unset for the fastest)"));
  return Error(Code::kInvalidArgument,
               StrCat("NEEDLE_ISA is \"", name, "\", which is no instruction set known here; use ",
                      SupportedNames(), ", or leave it unset for the fastest"));
}

Result<Isa> ChooseIsa() {
  static const Result<Isa> chosen = [] {
    const char* name = std::getenv("NEEDLE_ISA");
    return ChooseIsa(name == nullptr ? "" : name);
  }();
  return chosen;
}

Isa BestIsa() {
  const Result<Isa> chosen = ChooseIsa();
  return chosen.ok() ? *chosen : SupportedIsas().back();
}

}  // namespace needle
