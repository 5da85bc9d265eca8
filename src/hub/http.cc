#include "hub/http.h"

#include "base/ascii.h"
#include "base/str_cat.h"

#ifdef NEEDLE_HTTP
#include <httplib.h>

#include <algorithm>
#include <chrono>
#include <memory>

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

std::chrono::microseconds Microseconds(double seconds) {
  return std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
}

// httplib before 0.14 un-encodes percent signs in the values of headers, Location too, and what a
// signed address was cannot be told from that any more. There the client below reads through a
// stream that keeps the head of the answer as it came. Needs: the timeouts that httplib sets on
// its sockets, so that a silent server ends a read.
#ifdef NEEDLE_HTTPLIB_UNENCODES

class KeepingStream : public httplib::Stream {
 public:
  KeepingStream(socket_t socket, SSL* ssl, std::string* head)
      : socket_(socket), ssl_(ssl), head_(head) {
    if (ssl_ == nullptr) plain_.reset(BIO_new_socket(static_cast<int>(socket), BIO_NOCLOSE));
  }

  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* data, size_t size) override {
    const int wanted = static_cast<int>(std::min<size_t>(size, 1 << 20));
    const int got =
        ssl_ != nullptr ? SSL_read(ssl_, data, wanted) : BIO_read(plain_.get(), data, wanted);
    if (got > 0) Keep(std::string_view(data, static_cast<size_t>(got)));
    return got;
  }
  ssize_t write(const char* data, size_t size) override {
    const int wanted = static_cast<int>(std::min<size_t>(size, 1 << 20));
    return ssl_ != nullptr ? SSL_write(ssl_, data, wanted) : BIO_write(plain_.get(), data, wanted);
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  void Keep(std::string_view bytes) {
    if (head_->size() < kLongestHead && head_->find("\r\n\r\n") == std::string::npos)
      head_->append(bytes.substr(0, kLongestHead));
  }
  struct FreeBio {
    void operator()(BIO* bio) const { BIO_free(bio); }
  };
  static constexpr size_t kLongestHead = 1 << 16;
  socket_t socket_;
  SSL* ssl_;
  std::unique_ptr<BIO, FreeBio> plain_;
  std::string* head_;
};

template <class Base>
class KeepingClient : public Base {
 public:
  KeepingClient(const std::string& host, int port, std::string* head)
      : Base(host, port), head_(head) {}

 private:
  bool process_socket(const typename Base::Socket& socket,
                      std::function<bool(httplib::Stream&)> callback) override {
    head_->clear();
    KeepingStream stream(socket.sock, socket.ssl, head_);
    return callback(stream);
  }
  std::string* head_;
};

using PlainClient = KeepingClient<httplib::ClientImpl>;
using TlsClient = KeepingClient<httplib::SSLClient>;

/// The Location of a head, as it came.
std::string LocationOf(const std::string& head) {
  for (size_t at = head.find("\r\n"); at != std::string::npos; at = head.find("\r\n", at + 2)) {
    const size_t begin = at + 2, end = head.find("\r\n", begin);
    if (end == std::string::npos || end == begin) break;  // cut off, or the end of the head
    const size_t colon = head.find(':', begin);
    if (colon > end || AsciiLower(head.substr(begin, colon - begin)) != "location") continue;
    const size_t value = head.find_first_not_of(" \t", colon + 1);
    return head.substr(value, head.find_last_not_of(" \t", end - 1) + 1 - value);
  }
  return "";
}

#else

template <class Base>
class PlainClientOf : public Base {
 public:
  PlainClientOf(const std::string& host, int port, std::string*) : Base(host, port) {}
};
using PlainClient = PlainClientOf<httplib::ClientImpl>;
using TlsClient = PlainClientOf<httplib::SSLClient>;
std::string LocationOf(const std::string&) { return ""; }

#endif

/// `head`: the answer's head as it came, where it was kept.
HttpReply ReplyOf(const httplib::Response& response, const std::string& head) {
  HttpReply reply{.status = response.status, .headers = {}};
  for (const auto& header : response.headers)
    reply.headers.emplace(AsciiLower(header.first), header.second);
  if (!head.empty() && reply.headers.count("location") > 0)
    reply.headers["location"] = LocationOf(head);
  return reply;
}

/// The proxy for this address, when there is one.
std::string ProxyText(const Url& url, const HubOptions& options) {
  if (ExcludedFromProxy(url, options.no_proxy)) return "";
  return url.scheme == "https" ? options.https_proxy : options.http_proxy;
}

Status UseProxy(httplib::ClientImpl& client, const Url& url, const HubOptions& options) {
  const std::string text = ProxyText(url, options);
  if (text.empty()) return {};
  NEEDLE_ASSIGN(const Proxy proxy, ParseProxy(text));
  client.set_proxy(proxy.host, proxy.port);
  if (!proxy.user.empty()) client.set_proxy_basic_auth(proxy.user, proxy.password);
  return {};
}

Status SetUp(httplib::ClientImpl& client, const Url& url, const HubOptions& options) {
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

std::unique_ptr<httplib::ClientImpl> ClientFor(const Url& url, std::string* head) {
  if (url.scheme == "https") return std::make_unique<TlsClient>(url.host, url.port, head);
  return std::make_unique<PlainClient>(url.host, url.port, head);
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
  std::string head;
  const auto client = ClientFor(request.url, &head);
  if (!client->is_valid())
    return {HttpError::kSetUp,
            StrCat("no connection can be made ready for ", request.url.Origin())};
  if (const Status ready = SetUp(*client, request.url, options); !ready.ok())
    return {HttpError::kSetUp, ready.error().message()};

  httplib::Headers headers;
  for (const auto& header : request.headers) headers.emplace(header.first, header.second);
  if (request.method == "HEAD") {
    const httplib::Result result = client->Head(request.url.target, headers);
    if (!result) return OutcomeOf(result.error(), request.url);
    return on_reply(ReplyOf(*result, head)) ? HttpOutcome{} : HttpOutcome{HttpError::kStopped, ""};
  }
  const httplib::Result result = client->Get(
      request.url.target, headers,
      [&](const httplib::Response& response) { return on_reply(ReplyOf(response, head)); },
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
