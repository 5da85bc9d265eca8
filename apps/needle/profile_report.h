// The --profile of training commands: records while it lives, then prints a table on stderr and
// writes a trace.
#pragma once

#include <optional>
#include <string>

#include "base/profile.h"
#include "base/result.h"

namespace needle::cli {

class ProfileReport {
 public:
  /// Records nothing when `trace_path` is empty.
  explicit ProfileReport(std::string trace_path);
  /// Prints the table and writes the trace. `threads` as of the run (0: all).
  Status Finish(int threads) const;

 private:
  std::string path_;
  std::optional<Profile> profile_;
};

}  // namespace needle::cli
