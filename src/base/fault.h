// Fault points: places where a test makes this process fail, to prove that a crash or a full disk
// in the middle of a write leaves the old file. NEEDLE_FAULT="name:count:action" arms the point
// `name` at its count-th passage (from 1), once; it is read once per process. Without it a passage
// costs one comparison. Thread-safe.
#pragma once

#include <string_view>

namespace needle {

enum class Fault {
  kNone,   // go on
  kError,  // "error": behave as if the disk were full
  kShort,  // "short": do half of the work, then call KillThisProcess()
};

/// Counts a passage. Action "kill" does not return: the process dies as by SIGKILL.
[[nodiscard]] Fault FaultPoint(std::string_view name);

}  // namespace needle
