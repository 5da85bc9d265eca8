// The processor quota of the control group that this process lives in (Linux containers).
// Source: the kernel's cgroup-v1 and cgroup-v2 documentation. Thread-safe.
#pragma once

#include <optional>
#include <string>

namespace needle {

/// The processors that the quota allows (1.5 is one and a half), the smallest on the way from this
/// process's group up to the root; nullopt without a quota. The arguments are for tests.
std::optional<double> CgroupProcessors(const std::string& membership = "/proc/self/cgroup",
                                       const std::string& mount = "/sys/fs/cgroup");

}  // namespace needle
