#include "hub/url.h"

#include <algorithm>
#include <cstddef>
#include <optional>

#include "base/ascii.h"
#include "base/parse_integer.h"
#include "base/str_cat.h"

namespace needle {
namespace {

bool IsLetterOrDigit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// A blank, a control character or a byte above ASCII would end or split the request line.
bool IsPlain(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

int DefaultPort(std::string_view scheme) { return scheme == "https" ? 443 : 80; }

std::optional<int> ParsePort(std::string_view text) {
  const std::optional<int> port = ParseInteger<int>(text);
  return port && *port >= 1 && *port <= 65535 ? port : std::nullopt;
}

struct HostPort {
  std::string host;
  int port = 0;
};

// "host", "host:port", "[::1]:port".
std::optional<HostPort> ParseAuthority(std::string_view text, int default_port) {
  HostPort found{.host = "", .port = default_port};
  size_t end = 0;
  if (text.starts_with('[')) {
    end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    found.host = AsciiLower(text.substr(1, end - 1));
    ++end;
  } else {
    end = std::min(text.find(':'), text.size());
    found.host = AsciiLower(text.substr(0, end));
  }
  if (found.host.empty()) return std::nullopt;
  if (end == text.size()) return found;
  if (text[end] != ':') return std::nullopt;
  const std::optional<int> port = ParsePort(text.substr(end + 1));
  if (!port) return std::nullopt;
  found.port = *port;
  return found;
}

std::string_view WithoutFragment(std::string_view text) { return text.substr(0, text.find('#')); }

Error NotAnAddress(std::string_view text) {
  return Error(Code::kInvalidArgument,
               StrCat("\"", text, "\" is not a web address of the form https://host/path"));
}

// RFC 3986, 5.2.4, on a path that starts with "/".
std::string RemoveDotSegments(std::string_view path) {
  std::string clean;
  while (!path.empty()) {
    const size_t end = std::min(path.find('/', 1), path.size());
    const std::string_view segment = path.substr(0, end);
    path.remove_prefix(end);
    if (segment == "/.." || segment == "/.") {
      if (segment == "/..") clean.resize(clean.empty() ? 0 : clean.rfind('/'));
      if (path.empty()) clean += '/';
    } else {
      clean += segment;
    }
  }
  return clean.empty() ? "/" : clean;
}

}  // namespace

std::string Url::Origin() const {
  const bool bracketed = host.find(':') != std::string::npos;
  const std::string name = bracketed ? StrCat("[", host, "]") : host;
  return port == DefaultPort(scheme) ? StrCat(scheme, "://", name)
                                     : StrCat(scheme, "://", name, ":", port);
}

std::string Url::Text() const { return Origin() + target; }

Result<Url> ParseUrl(std::string_view text) {
  const size_t scheme_end = text.find("://");
  if (scheme_end == std::string_view::npos || !IsPlain(text)) return NotAnAddress(text);
  Url url;
  url.scheme = AsciiLower(text.substr(0, scheme_end));
  if (url.scheme != "http" && url.scheme != "https") return NotAnAddress(text);
  const std::string_view rest = WithoutFragment(text.substr(scheme_end + 3));
  const size_t authority_end = std::min(rest.find_first_of("/?"), rest.size());
  const std::string_view authority = rest.substr(0, authority_end);
  const std::optional<HostPort> where = ParseAuthority(authority, DefaultPort(url.scheme));
  if (!where || authority.find('@') != std::string_view::npos) return NotAnAddress(text);
  url.host = where->host;
  url.port = where->port;
  const std::string_view target = rest.substr(authority_end);
  url.target = target.starts_with('/') ? std::string(target) : StrCat("/", target);
  return url;
}

Result<Url> ResolveLocation(const Url& base, std::string_view location) {
  if (location.empty() || !IsPlain(location)) return NotAnAddress(location);
  if (location.starts_with("//")) return ParseUrl(StrCat(base.scheme, ":", location));
  const size_t path_end = std::min(location.find_first_of("/?#"), location.size());
  if (location.substr(0, path_end).find(':') != std::string_view::npos) return ParseUrl(location);

  Url url = base;
  const std::string_view base_path = std::string_view(base.target).substr(0, base.target.find('?'));
  const std::string_view relative = WithoutFragment(location);
  const size_t query = std::min(relative.find('?'), relative.size());
  const std::string_view path = relative.substr(0, query);
  std::string merged;
  if (path.empty())
    merged = base_path;
  else if (path.starts_with('/'))
    merged = path;
  else
    merged = StrCat(base_path.substr(0, base_path.rfind('/') + 1), path);
  url.target = StrCat(RemoveDotSegments(merged), relative.substr(query));
  return url;
}

bool SameOrigin(const Url& a, const Url& b) {
  return a.scheme == b.scheme && a.host == b.host && a.port == b.port;
}

std::string PercentEncode(std::string_view text, std::string_view keep) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    if (IsLetterOrDigit(c) || std::string_view("-._~").find(c) != std::string_view::npos ||
        keep.find(c) != std::string_view::npos) {
      encoded += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    encoded += '%';
    encoded += kDigits[byte >> 4];
    encoded += kDigits[byte & 15];
  }
  return encoded;
}

Result<Proxy> ParseProxy(std::string_view text) {
  const Error bad(Code::kInvalidArgument,
                  "the proxy of HTTPS_PROXY, HTTP_PROXY or ALL_PROXY is not of the form "
                  "http://host:port or http://user:password@host:port (other kinds, such as socks, "
                  "are not supported); correct the variable, or unset it");
  const std::string trimmed(Trimmed(text));
  std::string_view rest = trimmed;
  if (const size_t scheme_end = rest.find("://"); scheme_end != std::string_view::npos) {
    if (AsciiLower(rest.substr(0, scheme_end)) != "http") return bad;
    rest.remove_prefix(scheme_end + 3);
  }
  rest = rest.substr(0, rest.find_first_of("/?#"));
  Proxy proxy;
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    const std::string_view who = rest.substr(0, at);
    const size_t colon = std::min(who.find(':'), who.size());
    proxy.user = who.substr(0, colon);
    if (colon < who.size()) proxy.password = who.substr(colon + 1);
    rest.remove_prefix(at + 1);
  }
  const std::optional<HostPort> where = ParseAuthority(rest, 80);
  if (!where || !IsPlain(rest)) return bad;
  proxy.host = where->host;
  proxy.port = where->port;
  return proxy;
}

bool ExcludedFromProxy(const Url& url, std::string_view no_proxy) {
  while (!no_proxy.empty()) {
    const size_t comma = std::min(no_proxy.find(','), no_proxy.size());
    const std::string entry = AsciiLower(Trimmed(no_proxy.substr(0, comma)));
    no_proxy.remove_prefix(std::min(comma + 1, no_proxy.size()));
    if (entry == "*") return true;
    const std::optional<HostPort> where = ParseAuthority(entry, url.port);
    if (!where || where->port != url.port) continue;
    const std::string_view name =
        std::string_view(where->host).substr(where->host.starts_with('.') ? 1 : 0);
    if (name.empty()) continue;
    if (url.host == name || url.host.ends_with(StrCat(".", name))) return true;
  }
  return false;
}

}  // namespace needle
