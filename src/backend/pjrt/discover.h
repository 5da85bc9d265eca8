// Which PJRT plugins are on a machine: those that the environment names, then those that Python
// packages hold at places known here (a package's entry points name a Python module only).
// Errors: kInvalidArgument for variables that cannot be read. Thread-safety: functions.
// Source: the way JAX finds its plugins.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/pjrt/client.h"
#include "backend/pjrt/platform.h"
#include "base/result.h"

namespace needle::pjrt {

enum class Kind {
  kCpu,     // the native engine; no plugin
  kCuda,    // NVIDIA
  kRocm,    // AMD
  kOneapi,  // Intel
  kMetal,   // Apple
  kTpu,     // Google
  kXlaCpu,  // a plugin for the processor itself
  kOther,   // named by the environment alone
};

/// As --device takes it: "cpu", "cuda", "rocm", "oneapi", "metal", "tpu", "xla-cpu", "other".
std::string_view Name(Kind kind);
/// As JAX calls the platform: "gpu" for CUDA, ROCm and oneAPI; "metal", "tpu", "cpu".
std::string_view JaxName(Kind kind);
bool IsGpu(Kind kind);
/// The kind that a plugin's platform or a person's word names, in any case; kOther when none.
Kind KindNamed(const std::string& name);
/// All kinds that have a plugin at a known place, in the order of the table that people see.
const std::vector<Kind>& KnownKinds();

/// A library that may be a plugin; it has not been opened.
struct Candidate {
  Kind kind = Kind::kOther;
  std::string name;                 // as --device takes it; the environment's own name there
  std::string library;              // path
  std::string origin;               // the variable or the folder that it comes from
  std::string package, version;     // of the Python package; "" where there is none
  std::string caution;              // a line that a user should know; "" mostly
  int priority = 0;                 // JAX's; higher is better
  std::vector<NamedValue> options;  // from a .json file that the environment names
};

/// The best first: by priority, then what the environment names, then by place. Several of one kind
/// may be there. python3 is asked for its folders when hardware lacks a plugin; with `thorough`, also
/// when there is no plugin at all.
Result<std::vector<Candidate>> Discover(const Platform& platform, bool thorough);

/// What to type to get a plugin of this kind here; "" when there is none for this system.
std::string InstallHint(Kind kind, const Platform& platform);

/// Why a plugin of this kind cannot work here ("" when nothing speaks against it): no such
/// hardware, or hidden by a variable.
std::string WhyNoHardware(Kind kind, const Platform& platform);

}  // namespace needle::pjrt
