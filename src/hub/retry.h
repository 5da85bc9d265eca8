// When to try again. Thread-safety: functions. Source: RFC 9110, 10.2.3 (Retry-After).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "hub/options.h"

namespace needle {

/// Retry-After: "120" (seconds), or a date such as "Wed, 21 Oct 2015 07:28:00 GMT", against `now`
/// in seconds since 1970. Never negative; nullopt when it is neither.
std::optional<double> ParseRetryAfter(std::string_view text, int64_t now);

/// Seconds to wait after `failures` failed tries (1 or more) when the server does not say.
double Backoff(const HubOptions& options, int failures);

}  // namespace needle
