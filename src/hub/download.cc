#include "hub/download.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/link.h"
#include "base/native_path.h"
#include "base/parse_integer.h"
#include "base/str_cat.h"
#include "hub/checksum.h"
#include "hub/failure.h"
#include "hub/http.h"
#include "hub/retry.h"
#include "hub/url.h"

namespace needle {
namespace {

constexpr int kMaxRedirects = 5;
constexpr double kLongestWait = 0.25;  // seconds between two looks at whether to stop

using Clock = std::chrono::steady_clock;
using MaybeFailure = std::optional<Failure>;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using FilePtr = std::unique_ptr<std::FILE, CloseFile>;

/// "bytes 100-199/200" -> {100, 200}; a total of "*" is nullopt.
struct ContentRange {
  uint64_t begin = 0;
  std::optional<uint64_t> total;
};
std::optional<ContentRange> ParseContentRange(std::string_view text) {
  if (!text.starts_with("bytes ")) return std::nullopt;
  text.remove_prefix(6);
  const size_t dash = text.find('-'), slash = text.find('/');
  if (dash == std::string_view::npos || slash == std::string_view::npos || slash < dash)
    return std::nullopt;
  const std::optional<uint64_t> begin = ParseInteger<uint64_t>(text.substr(0, dash));
  if (!begin) return std::nullopt;
  return ContentRange{.begin = *begin, .total = ParseInteger<uint64_t>(text.substr(slash + 1))};
}

/// W/"abc" -> abc
std::string WithoutQuotes(std::string_view etag) {
  if (etag.starts_with("W/")) etag.remove_prefix(2);
  while (etag.starts_with('"')) etag.remove_prefix(1);
  while (etag.ends_with('"')) etag.remove_suffix(1);
  return std::string(etag);
}

/// Bytes of the file at `path`, 0 when it is not there.
uint64_t SizeOf(const std::string& path) {
  std::error_code error;
  const uint64_t size = std::filesystem::file_size(NativePath(path), error);
  return error ? 0 : size;
}

bool IsRedirect(int status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/// What to do with an answer.
enum class Step { kFollow, kReadBody, kDone, kFail };

/// One call of FetchFile.
class Fetch {
 public:
  Fetch(const HubFile& file, const HubOptions& options, const ProgressFn& progress)
      : file_(file), options_(options), progress_(progress) {}

  Result<std::string> Run();

 private:
  MaybeFailure Try();
  MaybeFailure Download();
  MaybeFailure AskForMetadata();
  MaybeFailure PrepareFolders();
  MaybeFailure WaitForLock(std::optional<FileLock>* lock);
  MaybeFailure ReceiveRest();
  MaybeFailure Check();
  MaybeFailure Finish();
  MaybeFailure Published();

  template <class OnReply, class OnBody>
  MaybeFailure Ask(const std::string& method, const HttpHeaders& extra, const OnReply& on_reply,
                   const OnBody& on_body);
  MaybeFailure MoveTo(const HttpReply& reply, Url* url) const;
  Step OnMetadata(const HttpReply& reply);
  Step OnFileReply(const HttpReply& reply, uint64_t asked_from);
  Step OpenPartial(const char* mode);
  bool OnBytes(std::string_view bytes);
  bool TooSlow(size_t bytes);
  bool Report();
  bool GoesOn();
  MaybeFailure Wait(double seconds);
  MaybeFailure WaitBeforeNextTry(const Failure& failure);
  std::optional<Error> NoMoreTries(const Failure& failure);
  Result<std::string> AfterFailure(const Error& error, const Result<std::string>& cached);

  Step Fail(Failure failure) {
    failure_ = std::move(failure);
    return Step::kFail;
  }
  Failure Stopped() const;
  Failure CacheFailure(const Error& error) const;
  Failure WriteFailure() const;
  void Notice(const std::string& sentence) const {
    if (options_.notice) options_.notice(sentence);
  }
  std::string What() const { return StrCat(file_.repo, ": ", file_.path); }

  const HubFile& file_;
  const HubOptions& options_;
  const ProgressFn& progress_;

  Url hub_;      // of the file, at the hub
  Url current_;  // where the last redirect has led
  BlobName name_;
  std::optional<uint64_t> size_;  // as announced
  CachePlaces places_;
  std::string result_;

  MaybeFailure failure_;   // set inside a callback, which can only say "stop"
  FilePtr partial_;        // <etag>.incomplete, open while a body arrives
  uint64_t here_ = 0;      // its bytes
  uint64_t received_ = 0;  // in this try
  bool ever_received_ = false;
  bool in_one_piece_ = false;  // this try brought the whole file in one answer
  bool ranges_work_ = true;
  int failures_ = 0;  // in a row

  Clock::time_point window_start_, last_report_;
  uint64_t window_bytes_ = 0;
};

Result<std::string> Fetch::Run() {
  NEEDLE_TRY(CheckHubFile(file_));
  if (options_.cache.empty())
    return Error(Code::kInvalidArgument,
                 "there is no folder to keep downloads in, as HOME is not set; name one in "
                 "HF_HUB_CACHE");
  Result<std::string> cached = FindInCache(file_, options_);
  if (cached.ok() && (options_.offline || IsCommit(file_.revision))) return cached;
  if (options_.offline)
    return Error(Code::kUnavailable, StrCat(cached.error().message(),
                                            ", and HF_HUB_OFFLINE is set, so that the hub is "
                                            "not asked; unset it, or put the file there"));
  NEEDLE_ASSIGN(
      hub_, ParseUrl(StrCat(options_.endpoint, "/", file_.repo, "/resolve/",
                            PercentEncode(file_.revision), "/", PercentEncode(file_.path, "/"))));
  while (MaybeFailure failure = Try()) {
    if (const std::optional<Error> last = NoMoreTries(*failure)) return AfterFailure(*last, cached);
    if (const MaybeFailure stopped = WaitBeforeNextTry(*failure))
      return AfterFailure(stopped->error, cached);
  }
  return result_;
}

/// The hub's silence is no reason to refuse a copy that is here; its "no" is.
Result<std::string> Fetch::AfterFailure(const Error& error, const Result<std::string>& cached) {
  if (error.code() != Code::kUnavailable || !cached.ok()) return error;
  Notice(StrCat(error.message(),
                "; taking the copy in the cache, which may be an older one: ", *cached));
  return cached;
}

/// The error to end with, or nothing while there is hope.
std::optional<Error> Fetch::NoMoreTries(const Failure& failure) {
  if (received_ >= options_.progress_that_counts) failures_ = 0;
  ++failures_;
  const bool hopeless = failure.next == Failure::Next::kGiveUp ||
                        (failure.next == Failure::Next::kNoNetwork && !ever_received_);
  if (hopeless) return failure.error;
  if (failures_ >= options_.max_tries)
    return Error(failure.error.code(), StrCat(failure.error.message(), " (after ", failures_,
                                              failures_ == 1 ? " try)" : " tries in a row)"));
  if (failure.retry_after && *failure.retry_after > options_.max_retry_after)
    return Error(failure.error.code(),
                 StrCat(failure.error.message(), ", and wants ", *failure.retry_after,
                        " seconds before the next request; try again then"));
  return std::nullopt;
}

MaybeFailure Fetch::WaitBeforeNextTry(const Failure& failure) {
  const double seconds = failure.retry_after.value_or(Backoff(options_, failures_));
  Notice(StrCat(failure.error.message(), "; trying again in ", seconds, " s"));
  return Wait(seconds);
}

MaybeFailure Fetch::Wait(double seconds) {
  while (seconds > 0) {
    if (!GoesOn()) return Stopped();
    const double slice = std::min(seconds, kLongestWait);
    if (options_.wait)
      options_.wait(slice);
    else
      std::this_thread::sleep_for(std::chrono::duration<double>(slice));
    seconds -= slice;
  }
  return std::nullopt;
}

bool Fetch::GoesOn() { return !progress_ || progress_(here_, size_.value_or(0)); }

/// Progress, but not for every few kilobytes.
bool Fetch::Report() {
  if (SecondsSince(last_report_) < 0.1 && here_ != size_.value_or(0)) return true;
  last_report_ = Clock::now();
  return GoesOn();
}

Failure Fetch::Stopped() const {
  return GiveUp(Code::kIo, StrCat(What(), ": the download was stopped; the ", here_,
                                  " bytes that have arrived are kept, and the next download "
                                  "goes on from there"));
}

Failure Fetch::CacheFailure(const Error& error) const {
  return GiveUp(error.code(), StrCat(error.message(),
                                     " (another cache folder can be named in "
                                     "HF_HUB_CACHE)"));
}

Failure Fetch::WriteFailure() const {
  const std::string reason = std::generic_category().message(errno);
  return CacheFailure(
      Error(Code::kIo, StrCat(places_.incomplete, ": cannot be written: ", reason)));
}

// One try: what is the file, is it here, and if not, bring it.

MaybeFailure Fetch::Try() {
  received_ = 0;
  in_one_piece_ = false;
  if (MaybeFailure failure = AskForMetadata()) return failure;
  places_ = PlacesOf(file_, name_, options_.cache);
  if (FileExists(places_.pointer)) {
    // The folder may be one that we can only read: noting the branch's commit is a kindness.
    const Result<std::string> published = Publish(file_, name_, options_);
    result_ = published.ok() ? *published : places_.pointer;
    return std::nullopt;
  }
  if (MaybeFailure failure = PrepareFolders()) return failure;
  std::optional<FileLock> lock;
  if (MaybeFailure failure = WaitForLock(&lock)) return failure;
  if (FileExists(places_.blob)) return Published();
  return Download();
}

MaybeFailure Fetch::Download() {
  here_ = SizeOf(places_.incomplete);
  const bool whole = size_ && here_ == *size_ && here_ > 0;
  if (!whole) {
    MaybeFailure failure = ReceiveRest();
    partial_.reset();
    if (failure) return failure;
  }
  if (MaybeFailure failure = Finish()) return failure;
  return Published();
}

MaybeFailure Fetch::Published() {
  Result<std::string> path = Publish(file_, name_, options_);
  if (!path.ok()) return CacheFailure(path.error());
  result_ = std::move(path).value();
  return std::nullopt;
}

MaybeFailure Fetch::PrepareFolders() {
  for (const std::string& path : {places_.blob, places_.lock})
    if (const Status made = MakeDirectories(DirName(path)); !made.ok())
      return CacheFailure(made.error());
  return std::nullopt;
}

MaybeFailure Fetch::WaitForLock(std::optional<FileLock>* lock) {
  for (bool told = false;; told = true) {
    Result<std::optional<FileLock>> taken = FileLock::TryAcquire(places_.lock);
    if (!taken.ok()) return CacheFailure(taken.error());
    if (taken->has_value()) {
      *lock = std::move(*taken);
      return std::nullopt;
    }
    if (!told) Notice(StrCat(What(), ": another program is downloading this file; waiting for it"));
    here_ = SizeOf(places_.incomplete);
    if (MaybeFailure stopped = Wait(0.1)) return stopped;
  }
}

// Asking.

/// Sends `method` to the file's address and follows redirects. on_reply decides about each answer;
/// with Step::kFail it has set failure_.
template <class OnReply, class OnBody>
MaybeFailure Fetch::Ask(const std::string& method, const HttpHeaders& extra,
                        const OnReply& on_reply, const OnBody& on_body) {
  current_ = hub_;
  bool with_token = !options_.token.empty();
  for (int hops = 0; hops <= kMaxRedirects; ++hops) {
    HttpRequest request{.method = method, .url = current_, .headers = extra};
    request.headers["accept-encoding"] = "identity";
    request.headers["user-agent"] = "needle.cpp";
    if (with_token) request.headers["authorization"] = StrCat("Bearer ", options_.token);
    failure_.reset();
    HttpReply reply;
    Step step = Step::kFail;
    const HttpOutcome outcome = Exchange(
        request, options_,
        [&](const HttpReply& answer) {
          reply = answer;
          step = on_reply(answer);
          return step == Step::kReadBody;
        },
        on_body);
    if (failure_) return std::move(failure_);
    if (outcome.error != HttpError::kNone && outcome.error != HttpError::kStopped)
      return FailureOfConnection(file_, outcome);
    if (step != Step::kFollow) return std::nullopt;
    if (MaybeFailure failure = MoveTo(reply, &current_)) return failure;
    // Once another host is involved the token stays out, even should it lead back to ours.
    with_token = with_token && SameOrigin(hub_, current_);
  }
  return GiveUp(Code::kUnavailable, StrCat(hub_.Text(), ": more than ", kMaxRedirects,
                                           " redirects; check HF_ENDPOINT"));
}

MaybeFailure Fetch::MoveTo(const HttpReply& reply, Url* url) const {
  const Result<Url> next = ResolveLocation(*url, reply.Header("location"));
  if (!next.ok())
    return GiveUp(Code::kUnavailable, StrCat(url->Text(), ": answered ", reply.status,
                                             " with an address to go on to that is none; check "
                                             "HF_ENDPOINT"));
  if (url->scheme == "https" && next->scheme != "https")
    return GiveUp(Code::kUnavailable,
                  StrCat(url->Text(), ": sends its readers on to ", next->Origin(),
                         ", which is not encrypted; this is refused"));
  *url = *next;
  return std::nullopt;
}

MaybeFailure Fetch::AskForMetadata() {
  name_ = {};
  size_.reset();
  MaybeFailure failure = Ask(
      "HEAD", {}, [&](const HttpReply& reply) { return OnMetadata(reply); },
      [](std::string_view) { return true; });
  if (failure) return failure;
  if (name_.commit.empty() || name_.etag.empty())
    return GiveUp(Code::kUnavailable,
                  StrCat(hub_.Text(),
                         ": the answer names no commit or no tag of the file, as a "
                         "hub's answer does; check HF_ENDPOINT"));
  if (const Status checked = CheckBlobName(file_, name_); !checked.ok())
    return GiveUp(checked.error().code(), checked.error().message());
  return std::nullopt;
}

/// For a large file the hub's first answer, a redirect to a store, already says all; for a small
/// one the last answer does.
Step Fetch::OnMetadata(const HttpReply& reply) {
  if (name_.commit.empty()) name_.commit = reply.Header("x-repo-commit");
  if (name_.etag.empty()) name_.etag = WithoutQuotes(reply.Header("x-linked-etag"));
  if (!size_) size_ = ParseInteger<uint64_t>(reply.Header("x-linked-size"));
  if (!name_.commit.empty() && !name_.etag.empty() && reply.status < 400) return Step::kDone;
  if (IsRedirect(reply.status)) return Step::kFollow;
  if (reply.status != 200)
    return Fail(FailureOfStatus(file_, options_, current_, SameOrigin(hub_, current_), reply));
  if (name_.etag.empty()) name_.etag = WithoutQuotes(reply.Header("etag"));
  if (!size_) size_ = ParseInteger<uint64_t>(reply.Header("content-length"));
  return Step::kDone;
}

// Receiving.

MaybeFailure Fetch::ReceiveRest() {
  if (!ranges_work_ || (size_ && here_ > *size_)) here_ = 0;
  const uint64_t from = here_;
  HttpHeaders extra;
  if (from > 0) extra["range"] = StrCat("bytes=", from, "-");
  MaybeFailure failure = Ask(
      "GET", extra, [&](const HttpReply& reply) { return OnFileReply(reply, from); },
      [&](std::string_view bytes) { return OnBytes(bytes); });
  if (failure) return failure;
  if (std::fflush(partial_.get()) != 0) return WriteFailure();
  if (size_ && here_ < *size_)
    return TryAgain(StrCat(What(), ": the answer ended after ", here_, " of ", *size_, " bytes"));
  return std::nullopt;
}

Step Fetch::OnFileReply(const HttpReply& reply, uint64_t asked_from) {
  const std::string etag = WithoutQuotes(reply.Header("x-linked-etag"));
  if (!etag.empty() && etag != name_.etag)
    return Fail(TryAgain(StrCat(What(), ": the file has changed while it was downloaded")));
  if (IsRedirect(reply.status)) return Step::kFollow;
  if (reply.status == 206 && asked_from > 0) {
    const auto range = ParseContentRange(reply.Header("content-range"));
    if (range && range->begin == asked_from && (!range->total || !size_ || range->total == size_)) {
      if (!size_) size_ = range->total;
      return OpenPartial("ab");
    }
  }
  if (reply.status == 206 || reply.status == 416) {
    ranges_work_ = false;  // not the part that was asked for: from now on the whole
    return Fail(TryAgain(StrCat(What(),
                                ": the server answered with another part of the file than "
                                "the one from byte ",
                                asked_from)));
  }
  if (reply.status != 200)
    return Fail(FailureOfStatus(file_, options_, current_, SameOrigin(hub_, current_), reply));
  const std::optional<uint64_t> length = ParseInteger<uint64_t>(reply.Header("content-length"));
  if (length && size_ && *length != *size_)
    return Fail(GiveUp(Code::kCorruptFile,
                       StrCat(What(), ": the hub announced ", *size_, " bytes, but ",
                              current_.Origin(), " sends ", *length, "; the file was refused")));
  if (!size_) size_ = length;
  here_ = 0;
  in_one_piece_ = true;
  return OpenPartial("wb");
}

Step Fetch::OpenPartial(const char* mode) {
  partial_.reset(OpenStream(places_.incomplete, mode));
  if (!partial_) return Fail(WriteFailure());
  window_start_ = Clock::now();
  window_bytes_ = 0;
  if (!Report()) return Fail(Stopped());
  return Step::kReadBody;
}

/// Slower than min_speed over a whole stall_timeout. A server that sends a byte now and then would
/// never time out otherwise.
bool Fetch::TooSlow(size_t bytes) {
  window_bytes_ += bytes;
  const double seconds = SecondsSince(window_start_);
  if (seconds < options_.stall_timeout) return false;
  const bool slow = static_cast<double>(window_bytes_) < options_.min_speed * seconds;
  window_start_ = Clock::now();
  window_bytes_ = 0;
  return slow;
}

bool Fetch::OnBytes(std::string_view bytes) {
  if (size_ && bytes.size() > *size_ - here_) {
    Fail(GiveUp(Code::kCorruptFile, StrCat(What(), ": the hub announced ", *size_, " bytes, but ",
                                           current_.Origin(), " sends more; nothing was kept")));
    partial_.reset();
    (void)RemoveFile(places_.incomplete).ok();
    return false;
  }
  if (std::fwrite(bytes.data(), 1, bytes.size(), partial_.get()) != bytes.size()) {
    Fail(WriteFailure());
    return false;
  }
  here_ += bytes.size();
  received_ += bytes.size();
  ever_received_ = true;
  if (!Report()) {
    Fail(Stopped());
    return false;
  }
  if (here_ != size_.value_or(0) && TooSlow(bytes.size())) {
    Fail(TryAgain(StrCat(What(), ": ", current_.Origin(), " sends less than ", options_.min_speed,
                         " bytes a second")));
    return false;
  }
  return true;
}

// Checking.

/// What the bytes in <etag>.incomplete should be and are not; removes them then.
MaybeFailure Fetch::Check() {
  const ChecksumKind kind = KindOf(name_.etag);
  if (kind == ChecksumKind::kNone) {
    Notice(StrCat(What(), ": the hub gave no checksum for this file; only its length was checked"));
    return std::nullopt;
  }
  const Result<std::string> found = ChecksumOf(places_.incomplete, kind);
  if (!found.ok()) return CacheFailure(found.error());
  if (*found == name_.etag) return std::nullopt;
  if (const Status removed = RemoveFile(places_.incomplete); !removed.ok())
    return CacheFailure(removed.error());
  here_ = 0;
  const std::string sentence = StrCat(What(), ": the bytes that arrived have the checksum ", *found,
                                      ", but the hub announced ", name_.etag, "; nothing was kept");
  // Pieces of two downloads may not fit together; one whole answer should be right.
  return in_one_piece_ ? GiveUp(Code::kCorruptFile, sentence) : TryAgain(sentence);
}

/// The whole file is in <etag>.incomplete: check it, sync it, give it its name.
MaybeFailure Fetch::Finish() {
  if (MaybeFailure failure = Check()) return failure;
  const FilePtr file(OpenStream(places_.incomplete, "ab"));
  if (!file) return WriteFailure();
  if (const Status synced = SyncStream(file.get(), places_.incomplete); !synced.ok())
    return CacheFailure(synced.error());
  if (const Status renamed = RenameFile(places_.incomplete, places_.blob); !renamed.ok())
    return CacheFailure(renamed.error());
  return std::nullopt;
}

}  // namespace

Result<std::string> FetchFile(const HubFile& file, const HubOptions& options,
                              const ProgressFn& progress) {
  return Fetch(file, options, progress).Run();
}

}  // namespace needle
