#include "hub/options.h"

#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "base/ascii.h"
#include "base/env.h"
#include "base/file.h"
#include "base/parse_integer.h"

namespace needle {
namespace {

/// The first of `names` that is set to something.
std::string FirstOf(const Environment& get, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (std::optional<std::string> value = get(name); value && !value->empty()) return *value;
  return "";
}

bool IsTrue(std::string text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text == "1" || text == "ON" || text == "YES" || text == "TRUE";
}

std::string HomeFolder(const Environment& get) { return FirstOf(get, {"HOME", "USERPROFILE"}); }

/// "~/x" -> "/home/me/x".
std::string Expanded(const Environment& get, std::string path) {
  const std::string home = HomeFolder(get);
  if (home.empty() || !(path == "~" || path.starts_with("~/"))) return path;
  return home + path.substr(1);
}

/// HF_HOME, else XDG_CACHE_HOME/huggingface, else ~/.cache/huggingface; empty without a home.
std::string HubHome(const Environment& get) {
  if (const std::string home = FirstOf(get, {"HF_HOME"}); !home.empty()) return Expanded(get, home);
  if (const std::string xdg = FirstOf(get, {"XDG_CACHE_HOME"}); !xdg.empty())
    return JoinPath(Expanded(get, xdg), "huggingface");
  const std::string home = HomeFolder(get);
  return home.empty() ? "" : JoinPath(home, ".cache/huggingface");
}

std::string CacheFolder(const Environment& get) {
  if (const std::string cache = FirstOf(get, {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
      !cache.empty())
    return Expanded(get, cache);
  const std::string home = HubHome(get);
  return home.empty() ? "" : JoinPath(home, "hub");
}

std::string Token(const Environment& get) {
  if (std::string token(Trimmed(FirstOf(get, {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"})));
      !token.empty())
    return token;
  if (IsTrue(FirstOf(get, {"HF_HUB_DISABLE_IMPLICIT_TOKEN"}))) return "";
  std::string path = Expanded(get, FirstOf(get, {"HF_TOKEN_PATH"}));
  if (path.empty()) {
    const std::string home = HubHome(get);
    if (home.empty()) return "";
    path = JoinPath(home, "token");
  }
  // Nobody has to be logged in: a file that is not there, or not for us, means no token.
  const Result<std::string> text = ReadTextFile(path);
  return text.ok() ? std::string(Trimmed(*text)) : "";
}

std::string Endpoint(const Environment& get, const std::string& otherwise) {
  std::string endpoint = FirstOf(get, {"HF_ENDPOINT"});
  if (endpoint.empty()) return otherwise;
  while (endpoint.ends_with('/')) endpoint.pop_back();
  return endpoint;
}

double Seconds(const Environment& get, const char* name, double otherwise) {
  const std::string text = FirstOf(get, {name});
  const std::optional<int> value = ParseInteger<int>(text);
  return value && *value > 0 ? *value : otherwise;
}

}  // namespace

HubOptions HubOptions::FromEnvironment(const Environment& get) {
  HubOptions options;
  if (const std::string repo = FirstOf(get, {"NEEDLE_HF_REPO"}); !repo.empty()) options.repo = repo;
  options.endpoint = Endpoint(get, options.endpoint);
  options.token = Token(get);
  options.cache = CacheFolder(get);
  options.offline = IsTrue(FirstOf(get, {"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}));
  options.ca_file = FirstOf(get, {"SSL_CERT_FILE"});
  options.https_proxy = FirstOf(get, {"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"});
  options.http_proxy = FirstOf(get, {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"});
  options.no_proxy = FirstOf(get, {"no_proxy", "NO_PROXY"});
  options.connect_timeout = Seconds(get, "HF_HUB_ETAG_TIMEOUT", options.connect_timeout);
  options.stall_timeout = Seconds(get, "HF_HUB_DOWNLOAD_TIMEOUT", options.stall_timeout);
  return options;
}

HubOptions HubOptions::FromEnvironment() {
  return FromEnvironment([](const char* name) { return GetEnv(name); });
}

}  // namespace needle
