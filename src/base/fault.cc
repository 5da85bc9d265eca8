#include "base/fault.h"

#include <atomic>
#include <charconv>
#include <string>

#include "base/env.h"
#include "base/os.h"

namespace needle {
namespace {

struct Plan {
  std::string name;  // "" when no fault is wanted
  long count = 0;
  std::string action;
};

// A plan that does not parse is no plan: the variable is for tests, which notice.
Plan ReadPlan() {
  const std::string text = GetEnvOr("NEEDLE_FAULT", "");
  const size_t first = text.find(':');
  const size_t second = first == std::string::npos ? first : text.find(':', first + 1);
  if (second == std::string::npos) return {};
  Plan plan{text.substr(0, first), 0, text.substr(second + 1)};
  std::from_chars(text.data() + first + 1, text.data() + second, plan.count);
  return plan;
}

}  // namespace

Fault FaultPoint(std::string_view name) {
  static const Plan plan = ReadPlan();
  static std::atomic<long> passages{0};
  if (plan.name.empty() || plan.name != name) return Fault::kNone;
  if (passages.fetch_add(1) + 1 != plan.count) return Fault::kNone;
  if (plan.action == "kill") os::KillThisProcess();
  if (plan.action == "short") return Fault::kShort;
  return plan.action == "error" ? Fault::kError : Fault::kNone;
}

}  // namespace needle
