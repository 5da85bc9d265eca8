#include "hub/failure.h"

#include <chrono>
#include <string_view>
#include <utility>

#include "base/str_cat.h"
#include "hub/retry.h"

namespace needle {
namespace {

int64_t SecondsSince1970() {
  return std::chrono::duration_cast<std::chrono::seconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// The server's own words, as far as they may go into a message: short and printable.
std::string WordsOf(const HttpReply& reply) {
  std::string words;
  for (const char c : reply.Header("x-error-message").substr(0, 200))
    if (c >= ' ' && c < 0x7f) words += c;
  return words.empty() ? "" : StrCat(" (\"", words, "\")");
}

std::string Answered(const Url& url, const HttpReply& reply) {
  // The query may hold a signature that lets anybody read the file.
  const std::string path = url.target.substr(0, url.target.find('?'));
  return StrCat(url.Origin(), path, " answered ", reply.status, WordsOf(reply));
}

std::string NotAllowed(const HubFile& file, const HubOptions& options, const HttpReply& reply) {
  const std::string page = StrCat(options.endpoint, "/", file.repo);
  if (reply.Header("x-error-code") == "GatedRepo")
    return StrCat("the repository \"", file.repo,
                  "\" asks its readers to accept its conditions: "
                  "do so at ",
                  page, " and set HF_TOKEN to a token of that account");
  if (options.token.empty())
    return StrCat("the repository \"", file.repo,
                  "\" does not exist or is not open to everybody: "
                  "check the name (NEEDLE_HF_REPO), or set HF_TOKEN to a token that may read it");
  return StrCat(
      "the token that was sent (HF_TOKEN, or the token file of the hub's tools) is not "
      "accepted for the repository \"",
      file.repo,
      "\": check the name (NEEDLE_HF_REPO), "
      "or set HF_TOKEN to a token that may read it");
}

std::string NotThere(const HubFile& file, const HttpReply& reply) {
  const std::string code = reply.Header("x-error-code");
  if (code == "RepoNotFound")
    return StrCat("there is no repository \"", file.repo,
                  "\": check the name (NEEDLE_HF_REPO), "
                  "or set HF_TOKEN if it is private");
  if (code == "RevisionNotFound")
    return StrCat("the repository \"", file.repo, "\" has no branch, tag or commit \"",
                  file.revision, "\"");
  return StrCat("the repository \"", file.repo, "\" has no file \"", file.path, "\" at \"",
                file.revision, "\": check the names (NEEDLE_HF_REPO, HF_ENDPOINT)");
}

}  // namespace

Failure GiveUp(Code code, std::string sentence) {
  return {.next = Failure::Next::kGiveUp,
          .error = Error(code, std::move(sentence)),
          .retry_after = std::nullopt};
}

Failure TryAgain(std::string sentence) {
  return {.next = Failure::Next::kTryAgain,
          .error = Error(Code::kUnavailable, std::move(sentence)),
          .retry_after = std::nullopt};
}

Failure FailureOfStatus(const HubFile& file, const HubOptions& options, const Url& url,
                        bool asked_hub, const HttpReply& reply) {
  const int status = reply.status;
  const std::string answered = Answered(url, reply);
  if (status == 429 || status == 408 || status >= 500) {
    Failure failure = TryAgain(StrCat(answered, status == 429 ? ": too many requests" : ""));
    failure.retry_after = ParseRetryAfter(reply.Header("retry-after"), SecondsSince1970());
    return failure;
  }
  // A store behind the hub refuses an address that has grown old; the hub gives a new one.
  if (!asked_hub && status >= 400)
    return TryAgain(StrCat(answered, ", though the hub sends its readers there"));
  if (status == 401 || status == 403)
    return GiveUp(Code::kInvalidArgument, StrCat(answered, ": ", NotAllowed(file, options, reply)));
  if (status == 404) return GiveUp(Code::kNotFound, StrCat(answered, ": ", NotThere(file, reply)));
  return GiveUp(Code::kUnavailable,
                StrCat(answered,
                       ", which is not an answer of a hub to the request for a file; "
                       "check HF_ENDPOINT"));
}

Failure FailureOfConnection(const HubFile& file, const HttpOutcome& outcome) {
  const std::string what = StrCat(file.repo, ": ", file.path, ": ", outcome.what);
  switch (outcome.error) {
    case HttpError::kSetUp:
      return GiveUp(Code::kInvalidArgument, what);
    case HttpError::kNotBuilt:
      return GiveUp(Code::kUnavailable, what);
    case HttpError::kCertificate:
      return GiveUp(Code::kUnavailable,
                    StrCat(what,
                           "; if a proxy of your network signs its own, name the file of its "
                           "certificate in SSL_CERT_FILE"));
    case HttpError::kNoConnection: {
      Failure failure = TryAgain(StrCat(what, "; check the network, HTTPS_PROXY and HF_ENDPOINT"));
      failure.next = Failure::Next::kNoNetwork;
      return failure;
    }
    default:
      return TryAgain(what);
  }
}

}  // namespace needle
