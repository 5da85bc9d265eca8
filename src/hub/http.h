// One HTTP request and its answer; no redirect is followed and nothing is tried again here.
// With the build option NEEDLE_HTTP off, Exchange answers HttpError::kNotBuilt.
// Errors: HttpOutcome. Thread-safety: function; blocks its thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "hub/options.h"
#include "hub/url.h"

namespace needle {

/// Header names in lower case. Of several with one name the first is kept.
using HttpHeaders = std::map<std::string, std::string>;

struct HttpRequest {
  std::string method = "GET";  // or "HEAD"
  Url url;
  HttpHeaders headers;
};

struct HttpReply {
  int status = 0;
  HttpHeaders headers;
  /// The header's text, empty when it is not there. `name` in lower case.
  std::string Header(const std::string& name) const;
};

enum class HttpError {
  kNone,
  kNotBuilt,      // NEEDLE_HTTP is off
  kSetUp,         // a proxy or a certificate file of the options cannot be used
  kNoConnection,  // name not found, refused, not routed, timed out
  kCertificate,   // the server's certificate is not one that we trust
  kBrokeOff,      // the answer ended early, or stalled
  kStopped,       // on_reply or on_body returned false
};

struct HttpOutcome {
  HttpError error = HttpError::kNone;
  std::string what;  // the reason in words; empty for kNone and kStopped
};

/// Sends the request. `on_reply` is called once with status and headers, then `on_body` for each
/// piece of the body; false from either ends the connection.
HttpOutcome Exchange(const HttpRequest& request, const HubOptions& options,
                     const std::function<bool(const HttpReply&)>& on_reply,
                     const std::function<bool(std::string_view)>& on_body);

}  // namespace needle
