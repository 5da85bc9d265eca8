// What a refusal of the hub means: a sentence for the person, and whether to try again.
// Thread-safety: plain values and functions.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "hub/http.h"
#include "hub/options.h"

namespace needle {

struct Failure {
  enum class Next {
    kGiveUp,
    kTryAgain,   // after a while it may be otherwise
    kNoNetwork,  // no connection came about: worth another try only if one did before
  };
  Next next = Next::kGiveUp;
  Error error;
  std::optional<double> retry_after;  // seconds that the server asks for
};

Failure GiveUp(Code code, std::string sentence);
Failure TryAgain(std::string sentence);

/// An answer that is neither the file nor a redirect. `asked_hub` is false where a redirect has led
/// to another host: what that one refuses says nothing about the token.
/// 401 and 403: kInvalidArgument; 404: kNotFound; 429, 5xx and the rest: kUnavailable.
Failure FailureOfStatus(const HubFile& file, const HubOptions& options, const Url& url,
                        bool asked_hub, const HttpReply& reply);

/// No whole answer came. `outcome.error` is not kNone and not kStopped.
Failure FailureOfConnection(const HubFile& file, const HttpOutcome& outcome);

}  // namespace needle
