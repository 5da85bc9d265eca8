#include "base/cgroup.h"

#include <algorithm>
#include <sstream>
#include <string_view>

#include "base/file.h"
#include "base/str_cat.h"

namespace needle {
namespace {

using Quota = std::optional<double>;

Quota Smaller(Quota a, Quota b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

// The first words of a small file; empty when it is not there.
std::istringstream Words(const std::string& path) {
  auto text = ReadTextFile(path);
  return std::istringstream(text.ok() ? *std::move(text) : "");
}

// Version 2: "max 100000" or "150000 100000", microseconds in each period.
Quota QuotaV2(const std::string& folder) {
  double quota = 0, period = 0;
  if (!(Words(folder + "/cpu.max") >> quota >> period) || period <= 0) return std::nullopt;
  return quota / period;
}

// Version 1: two files; a quota of -1 is none.
Quota QuotaV1(const std::string& folder) {
  double quota = 0, period = 0;
  if (!(Words(folder + "/cpu.cfs_quota_us") >> quota) || quota <= 0) return std::nullopt;
  if (!(Words(folder + "/cpu.cfs_period_us") >> period) || period <= 0) return std::nullopt;
  return quota / period;
}

// The smallest quota of a group ("/a/b") and the groups above it. Inside a container the group's
// path may be that of the host and not be there; the mount's own root still counts.
Quota UpToTheRoot(const std::string& mount, std::string group, Quota (*quota)(const std::string&)) {
  Quota smallest = quota(mount);
  while (group.size() > 1) {
    smallest = Smaller(smallest, quota(mount + group));
    group.resize(group.rfind('/'));
  }
  return smallest;
}

// Is "cpu" among the names of "cpu,cpuacct"?
bool NamesCpu(const std::string& controllers) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');)
    if (name == "cpu") return true;
  return false;
}

}  // namespace

std::optional<double> CgroupProcessors(const std::string& membership, const std::string& mount) {
  Quota smallest;
  std::istringstream lines = Words(membership);
  for (std::string line; std::getline(lines, line);) {  // "number:controllers:/group"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos || line.substr(second + 1, 1) != "/") continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string group = line.substr(second + 1);
    if (controllers.empty()) {
      smallest = Smaller(smallest, UpToTheRoot(mount, group, QuotaV2));
    } else if (NamesCpu(controllers)) {
      for (const std::string& name : {std::string("cpu"), controllers})
        smallest = Smaller(smallest, UpToTheRoot(StrCat(mount, "/", name), group, QuotaV1));
    }
  }
  return smallest;
}

}  // namespace needle
