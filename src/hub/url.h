// Web addresses, as far as a download needs them: http and https, no user name inside.
// Errors: kInvalidArgument. Thread-safety: plain values. Source: RFC 3986.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace needle {

struct Url {
  std::string scheme;        // "http" or "https", lower case
  std::string host;          // lower case; an IPv6 address without its brackets
  int port = 0;              // always set: 80 and 443 when the text has none
  std::string target = "/";  // path and query, percent-encoded, without the fragment

  /// "https://huggingface.co/a/b?c=d"; the port only where it is not the scheme's own.
  std::string Text() const;
  /// "https://huggingface.co"
  std::string Origin() const;
};

/// `text` as an absolute http or https address.
Result<Url> ParseUrl(std::string_view text);

/// What a Location header means when it was answered by `base`: absolute, "//host/path", "/path",
/// "path" or "?query".
Result<Url> ResolveLocation(const Url& base, std::string_view location);

/// Same scheme, host and port: what was meant for one may be sent to the other.
bool SameOrigin(const Url& a, const Url& b);

/// Every byte but letters, digits, "-._~" and those in `keep` becomes %XX.
std::string PercentEncode(std::string_view text, std::string_view keep = "");

/// Where a proxy is; `user` and `password` are empty when there are none.
struct Proxy {
  std::string host;
  int port = 0;
  std::string user, password;
};

/// "http://user:password@host:port" or "host:port", as HTTPS_PROXY has it.
Result<Proxy> ParseProxy(std::string_view text);

/// Whether NO_PROXY ("localhost,.example.org,10.0.0.1:8080,*") excludes this address.
bool ExcludedFromProxy(const Url& url, std::string_view no_proxy);

}  // namespace needle
