// What "needle doctor" does on a device: each operation against plain loops, then a small model's
// loss, gradients and three training steps against the native engine.
// Errors: what the device refuses is part of the report. Thread-safety: as the device.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "needle/needle.hpp"

namespace needle {

struct DoctorLine {
  std::string what;  // "exponential", "loss of the forward", "gradient of layers/.../A"
  double error = 0;  // max |difference| / max |wanted|
  double allowed = 0;
  std::string failure;  // the device's own error; "" when it ran
  bool ok() const { return failure.empty() && error <= allowed; }
};

struct DoctorReport {
  std::vector<DoctorLine> lines;
  size_t operations = 0;  // the first so many lines are single operations
  double step_seconds = 0, native_step_seconds = 0;  // of the last of the three
  double compile_seconds = 0;
  bool ok() const;
};

/// Examines one of the devices that a plugin shows, below device.count(); not the native engine.
/// Errors: the native engine's; no such device.
Result<DoctorReport> Examine(const Device& device, int index);

}  // namespace needle
