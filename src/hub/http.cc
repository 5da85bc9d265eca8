#include "hub/http.h"

#include "base/str_cat.h"

#ifdef NEEDLE_HTTP
#include <httplib.h>

#include <chrono>

#include "base/file.h"
#include "base/link.h"
#endif

namespace needle {

std::string HttpReply::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

#ifdef NEEDLE_HTTP

namespace {

std::string Lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

std::chrono::microseconds Microseconds(double seconds) {
  return std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
}

HttpReply ReplyOf(const httplib::Response& response) {
  HttpReply reply{.status = response.status, .headers = {}};
  for (const auto& header : response.headers)
    reply.headers.emplace(Lower(header.first), header.second);
  return reply;
}

/// The proxy for this address, when there is one.
Result<std::string> ProxyText(const Url& url, const HubOptions& options) {
  const std::string& text = url.scheme == "https" ? options.https_proxy : options.http_proxy;
  return ExcludedFromProxy(url, options.no_proxy) ? std::string() : text;
}

Status UseProxy(httplib::Client& client, const Url& url, const HubOptions& options) {
  NEEDLE_ASSIGN(const std::string text, ProxyText(url, options));
  if (text.empty()) return {};
  NEEDLE_ASSIGN(const Proxy proxy, ParseProxy(text));
  client.set_proxy(proxy.host, proxy.port);
  if (!proxy.user.empty()) client.set_proxy_basic_auth(proxy.user, proxy.password);
  return {};
}

Status SetUp(httplib::Client& client, const Url& url, const HubOptions& options) {
  client.set_follow_location(false);
  client.set_keep_alive(false);
  client.set_decompress(false);
  client.set_url_encode(false);  // the target is encoded; a signed one must stay as it is
  client.set_connection_timeout(Microseconds(options.connect_timeout));
  client.set_read_timeout(Microseconds(options.stall_timeout));
  client.set_write_timeout(Microseconds(options.stall_timeout));
  client.enable_server_certificate_verification(true);
  if (!options.ca_file.empty()) {
    if (!FileExists(options.ca_file))
      return Error(Code::kNotFound, StrCat(options.ca_file, ": the certificate file that ",
                                           "SSL_CERT_FILE names is not there"));
    client.set_ca_cert_path(options.ca_file);
  }
  return UseProxy(client, url, options);
}

HttpOutcome OutcomeOf(httplib::Error error, const Url& url) {
  switch (error) {
    case httplib::Error::Success:
      return {};
    case httplib::Error::Canceled:
      return {HttpError::kStopped, ""};
    case httplib::Error::SSLServerVerification:
      return {HttpError::kCertificate,
              StrCat("the certificate of ", url.Origin(), " is not one that this machine trusts")};
    case httplib::Error::SSLLoadingCerts:
      return {HttpError::kSetUp, "the certificates of SSL_CERT_FILE could not be read"};
    case httplib::Error::Connection:
    case httplib::Error::ConnectionTimeout:
    case httplib::Error::BindIPAddress:
    case httplib::Error::SSLConnection:
      return {HttpError::kNoConnection,
              StrCat("no connection to ", url.Origin(), " (", httplib::to_string(error), ")")};
    default:
      return {HttpError::kBrokeOff,
              StrCat("the connection to ", url.Origin(), " broke off or stalled (",
                     httplib::to_string(error), ")")};
  }
}

}  // namespace

HttpOutcome Exchange(const HttpRequest& request, const HubOptions& options,
                     const std::function<bool(const HttpReply&)>& on_reply,
                     const std::function<bool(std::string_view)>& on_body) {
  const BrokenPipeShield shield;
  httplib::Client client(request.url.Origin());
  if (!client.is_valid())
    return {HttpError::kSetUp,
            StrCat("no connection can be made ready for ", request.url.Origin())};
  if (const Status ready = SetUp(client, request.url, options); !ready.ok())
    return {HttpError::kSetUp, ready.error().message()};

  httplib::Headers headers;
  for (const auto& header : request.headers) headers.emplace(header.first, header.second);
  if (request.method == "HEAD") {
    const httplib::Result result = client.Head(request.url.target, headers);
    if (!result) return OutcomeOf(result.error(), request.url);
    return on_reply(ReplyOf(*result)) ? HttpOutcome{} : HttpOutcome{HttpError::kStopped, ""};
  }
  const httplib::Result result = client.Get(
      request.url.target, headers,
      [&](const httplib::Response& response) { return on_reply(ReplyOf(response)); },
      [&](const char* data, size_t size) { return on_body(std::string_view(data, size)); });
  return result ? HttpOutcome{} : OutcomeOf(result.error(), request.url);
}

#else

HttpOutcome Exchange(const HttpRequest& request, const HubOptions&,
                     const std::function<bool(const HttpReply&)>&,
                     const std::function<bool(std::string_view)>&) {
  return {HttpError::kNotBuilt,
          StrCat("this program was built without downloads, so ", request.url.Origin(),
                 " was not asked; build it with the CMake option NEEDLE_HTTP=ON (it needs "
                 "cpp-httplib and OpenSSL), or get the file in another way")};
}

#endif

}  // namespace needle
