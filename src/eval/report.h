// The eval report as a JSON value (--json) and as one HTML page that needs nothing else (--report).
// Fields: docs/eval.md. Thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "eval/score.h"
#include "json/json.h"

namespace needle {

/// `against` and `comparison` may be nullptr, together.
json::Value ReportToJson(const EvalReport& report, const EvalReport* against = nullptr,
                         const PairedComparison* comparison = nullptr);
std::string ReportToHtml(const EvalReport& report, const EvalReport* against = nullptr,
                         const PairedComparison* comparison = nullptr);

/// Text for an HTML page: & < > " ' as entities, control characters as U+FFFD, invalid UTF-8 too.
std::string EscapeHtml(std::string_view text);

}  // namespace needle
