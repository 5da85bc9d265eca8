// How weights are looked for: where the hub is, who asks, where files are kept, how patient we are.
// The names and rules of the environment variables are those of the hub's own tools
// (docs/weights.md). Thread-safety: plain values; the functions inside are called on the thread
// that called FetchFile.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace needle {

/// One file of a model repository.
struct HubFile {
  std::string repo;               // "Org/name"
  std::string revision = "main";  // a branch, a tag or a commit of 40 hex digits
  std::string path;               // "checkpoints/needle2.pkl": inside the repository
};

/// The value of an environment variable; nullopt when it is unset.
using Environment = std::function<std::optional<std::string>(const char* name)>;

struct HubOptions {
  std::string repo = "Cactus-Compute/needle2";      // NEEDLE_HF_REPO: where our weights are
  std::string endpoint = "https://huggingface.co";  // HF_ENDPOINT
  std::string token;     // HF_TOKEN, else the file HF_TOKEN_PATH or HF_HOME/token; empty: nobody
  std::string cache;     // HF_HUB_CACHE, else HF_HOME/hub, else ~/.cache/huggingface/hub
  bool offline = false;  // HF_HUB_OFFLINE: the cache alone, no connection is opened

  std::string ca_file;      // SSL_CERT_FILE: PEM certificates to trust; empty: the system's
  std::string https_proxy;  // HTTPS_PROXY, else ALL_PROXY
  std::string http_proxy;   // HTTP_PROXY, else ALL_PROXY
  std::string no_proxy;     // NO_PROXY

  double connect_timeout = 10;  // seconds, HF_HUB_ETAG_TIMEOUT
  double stall_timeout = 10;    // seconds, HF_HUB_DOWNLOAD_TIMEOUT: silence that counts as broken
  double min_speed = 512;       // bytes a second over stall_timeout: slower counts as broken too
  int max_tries = 5;            // in a row without `progress_that_counts`; then we give up
  uint64_t progress_that_counts = 1 << 20;  // bytes: a try that brought as many is no failure
  double first_backoff = 1;      // seconds before the second try; doubles with each further one
  double max_backoff = 16;       // seconds
  double max_retry_after = 120;  // seconds: a server that asks for more patience is an error

  /// Waits so many seconds (at most 0.25 a call); empty: sleeps. For tests.
  std::function<void(double seconds)> wait;
  /// Told a sentence when something happens that a person may want to know: a new try, another
  /// process that downloads the same file, a cached copy that could not be checked. May be empty.
  std::function<void(const std::string& sentence)> notice;

  /// What the environment of this process says.
  static HubOptions FromEnvironment();
  static HubOptions FromEnvironment(const Environment& get);
};

}  // namespace needle
