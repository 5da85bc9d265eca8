#include "hub/retry.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>

#include "base/parse_integer.h"

namespace needle {
namespace {

std::optional<int> Digits(std::string_view text) {
  const std::optional<int> value = ParseInteger<int>(text);
  return value && *value >= 0 ? value : std::nullopt;
}

std::optional<unsigned> Month(std::string_view name) {
  constexpr std::array<std::string_view, 12> kNames = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto found = std::find(kNames.begin(), kNames.end(), name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<unsigned>(found - kNames.begin()) + 1;
}

/// "Wed, 21 Oct 2015 07:28:00 GMT" in seconds since 1970; the older two forms are not read.
std::optional<int64_t> ParseHttpDate(std::string_view text) {
  if (text.size() != 29 || text.substr(25) != " GMT") return std::nullopt;
  const auto day = Digits(text.substr(5, 2)), year = Digits(text.substr(12, 4)),
             hour = Digits(text.substr(17, 2)), minute = Digits(text.substr(20, 2)),
             second = Digits(text.substr(23, 2));
  const auto month = Month(text.substr(8, 3));
  if (!day || !year || !hour || !minute || !second || !month) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(*year), std::chrono::month(*month),
                                         std::chrono::day(static_cast<unsigned>(*day))};
  if (!date.ok() || *hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return ((days * 24 + *hour) * 60 + *minute) * 60 + *second;
}

}  // namespace

std::optional<double> ParseRetryAfter(std::string_view text, int64_t now) {
  if (const std::optional<int> seconds = Digits(text)) return *seconds;
  const std::optional<int64_t> date = ParseHttpDate(text);
  if (!date) return std::nullopt;
  return static_cast<double>(std::max<int64_t>(0, *date - now));
}

double Backoff(const HubOptions& options, int failures) {
  double wait = options.first_backoff;
  for (int i = 1; i < failures && wait < options.max_backoff; ++i) wait *= 2;
  return std::min(wait, options.max_backoff);
}

}  // namespace needle
