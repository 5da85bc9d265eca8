// What "needle devices" shows: every kind of device that is known, whether it can be used and why
// not, and which one a run would take.
// Thread-safety: as PickDevice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/pjrt/open_device.h"

namespace needle::pjrt {

enum class Standing {
  kReady,       // a plugin works
  kFails,       // there is one and it does not
  kMissing,     // the hardware is here and no plugin
  kNoHardware,  // nothing to use it on
  kOptional,    // works here once it is installed, and is never chosen by itself (xla-cpu)
};
/// "ready", "fails", "missing", "no hardware", "not installed".
std::string_view Name(Standing standing);

struct SurveyedPlugin {
  Candidate candidate;
  bool tried = false;  // not without hardware
  ProbeAnswer answer;
};

struct SurveyRow {
  Kind kind = Kind::kOther;
  std::string name;
  Standing standing = Standing::kNoHardware;
  std::string reason;   // why it is not ready; "" when it is
  std::string install;  // what to type for it; "" when nothing is missing, or nothing helps
  std::vector<SurveyedPlugin> plugins;
};

struct Survey {
  std::vector<SurveyRow> rows;
  std::optional<Picked> picked;  // what a run would take
  std::optional<Error> error;    // why a run would fail
  std::string why;               // why that one, in one line
  std::vector<std::string> notes;
  bool trains_on_gpu() const { return picked && IsGpu(picked->kind); }
};

/// Tries every plugin whose hardware is here.
Survey LookAround(const Platform& platform, const std::string& device, const OpenOptions& options);

}  // namespace needle::pjrt
