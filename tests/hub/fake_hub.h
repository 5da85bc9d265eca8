// A hub on 127.0.0.1 that does exactly what a test says, down to single bytes: plain sockets, one
// thread a connection, no HTTP library that would put right what is to be wrong.
// Thread-safety: the handler runs on the connection threads, so what it uses must allow that.
#pragma once

#ifdef _WIN32
#include <winsock2.h>
#include <ws2tcpip.h>
#else
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/str_cat.h"

namespace needle::test {

#ifdef _WIN32
using Socket = SOCKET;
constexpr Socket kNoSocket = INVALID_SOCKET;
constexpr int kNoSignal = 0;
inline void CloseSocket(Socket socket) { ::closesocket(socket); }
inline int Poll(pollfd* one, int milliseconds) { return ::WSAPoll(one, 1, milliseconds); }
/// Sockets work from its start to its end.
struct SocketLibrary {
  SocketLibrary() {
    WSADATA ignored;
    if (::WSAStartup(MAKEWORD(2, 2), &ignored) != 0) std::abort();
  }
  ~SocketLibrary() { ::WSACleanup(); }
};
#else
using Socket = int;
constexpr Socket kNoSocket = -1;
constexpr int kNoSignal = MSG_NOSIGNAL;  // a closed connection is an error and ends no process
inline void CloseSocket(Socket socket) { ::close(socket); }
inline int Poll(pollfd* one, int milliseconds) { return ::poll(one, 1, milliseconds); }
struct SocketLibrary {};
#endif

struct FakeRequest {
  std::string method, target;
  std::map<std::string, std::string> headers;  // names in lower case

  std::string Header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
  /// The N of "Range: bytes=N-", 0 without one.
  size_t RangeBegin() const {
    const std::string range = Header("range");
    return range.starts_with("bytes=") ? std::stoul(range.substr(6)) : 0;
  }
};

class FakeConnection {
 public:
  explicit FakeConnection(Socket socket) : socket_(socket) {}
  ~FakeConnection() { Close(); }
  FakeConnection(const FakeConnection&) = delete;
  FakeConnection& operator=(const FakeConnection&) = delete;

  /// False when the other side has gone.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const int most = static_cast<int>(std::min<size_t>(bytes.size(), 1 << 20));
      const auto sent = ::send(socket_, bytes.data(), most, kNoSignal);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return true;
  }
  /// Ends the connection as a crashed machine does: with a reset.
  void Reset() {
    const linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_, SOL_SOCKET, SO_LINGER, reinterpret_cast<const char*>(&now), sizeof now);
    Close();
  }
  void Close() {
    if (socket_ != kNoSocket) CloseSocket(socket_);
    socket_ = kNoSocket;
  }
  /// Reads up to the empty line.
  bool Receive(FakeRequest* request) {
    std::string text;
    for (char c = 0; !text.ends_with("\r\n\r\n"); text += c)
      if (text.size() > 65536 || ::recv(socket_, &c, 1, 0) != 1) return false;
    Parse(text, request);
    return true;
  }

 private:
  static void Parse(const std::string& text, FakeRequest* request) {
    const size_t line_end = text.find("\r\n"), space = text.find(' ');
    request->method = text.substr(0, space);
    request->target = text.substr(space + 1, text.find(' ', space + 1) - space - 1);
    for (size_t at = line_end + 2; at + 2 < text.size();) {
      const size_t end = text.find("\r\n", at), colon = text.find(':', at);
      std::string name = text.substr(at, colon - at);
      for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
      const size_t value = text.find_first_not_of(' ', colon + 1);
      request->headers[name] = text.substr(value, end - value);
      at = end + 2;
    }
  }
  Socket socket_;
};

class FakeHub {
 public:
  using Handler = std::function<void(const FakeRequest&, FakeConnection&)>;

  explicit FakeHub(Handler handler) : handler_(std::move(handler)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      std::abort();
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { Accept(); });
  }
  ~FakeHub() {
    stop_ = true;
    accepting_.join();
    for (std::thread& thread : connections_) thread.join();
    CloseSocket(listener_);
  }
  FakeHub(const FakeHub&) = delete;
  FakeHub& operator=(const FakeHub&) = delete;

  int port() const { return port_; }
  std::string url() const { return StrCat("http://127.0.0.1:", port_); }
  std::vector<FakeRequest> requests() const {
    const std::lock_guard<std::mutex> guard(mutex_);
    return requests_;
  }
  std::vector<FakeRequest> requests(std::string_view method) const {
    std::vector<FakeRequest> some;
    for (const FakeRequest& request : requests())
      if (request.method == method) some.push_back(request);
    return some;
  }

 private:
  void Accept() {
    while (!stop_) {
      pollfd ready = {.fd = listener_, .events = POLLIN, .revents = 0};
      if (Poll(&ready, 20) != 1) continue;
      const Socket socket = ::accept(listener_, nullptr, nullptr);
      if (socket != kNoSocket) connections_.emplace_back([this, socket] { Serve(socket); });
    }
  }
  void Serve(Socket socket) {
    FakeConnection connection(socket);
    FakeRequest request;
    if (!connection.Receive(&request)) return;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      requests_.push_back(request);
    }
    handler_(request, connection);
  }

  SocketLibrary library_;
  Handler handler_;
  Socket listener_ = kNoSocket;
  int port_ = 0;
  std::atomic<bool> stop_{false};
  mutable std::mutex mutex_;
  std::vector<FakeRequest> requests_;
  std::thread accepting_;
  std::vector<std::thread> connections_;
};

/// "HTTP/1.1 200 OK", the headers (each with its "\r\n") and the empty line.
inline std::string Head(int status, const std::string& headers) {
  return StrCat("HTTP/1.1 ", status, " X\r\n", headers, "Connection: close\r\n\r\n");
}

/// A file as a hub keeps it.
struct HubEntry {
  std::string content, commit, etag;
  /// What the hub says about it in every answer.
  std::string Headers() const {
    return StrCat("X-Repo-Commit: ", commit, "\r\nETag: \"", etag, "\"\r\n");
  }
  /// A right answer, a range too.
  void Answer(const FakeRequest& request, FakeConnection& connection) const {
    const size_t begin = request.RangeBegin();
    const std::string range = StrCat("Content-Range: bytes ", begin, "-", content.size() - 1, "/",
                                     content.size(), "\r\n");
    connection.Send(
        Head(begin > 0 ? 206 : 200, StrCat(Headers(), begin > 0 ? range : "",
                                           "Content-Length: ", content.size() - begin, "\r\n")));
    if (request.method == "GET") connection.Send(std::string_view(content).substr(begin));
  }
};

}  // namespace needle::test
