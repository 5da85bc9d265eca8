// FetchFile against a hub on this machine that answers well, badly, or not at all.
#include "hub/download.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#ifdef NEEDLE_HTTP
#include <httplib.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#endif

#include "base/file.h"
#include "base/link.h"
#include "base/str_cat.h"
#include "hub/cache.h"
#include "hub/fake_hub.h"
#include "support/scratch.h"

namespace needle {
namespace {

using test::FakeConnection;
using test::FakeHub;
using test::FakeRequest;
using test::Head;
using test::HubEntry;
using test::ScratchFolder;

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";
constexpr const char* kTarget = "/Org/name/resolve/main/checkpoints/x.pkl";

// 200000 bytes; the two sums come from sha256sum and git hash-object.
std::string Content() {
  std::string content(200000, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 + i / 251);
  return content;
}
HubEntry Entry() {
  return {.content = Content(),
          .commit = kCommit,
          .etag = "e870fec3223bac8f6147b08b31e6e6e4bb9abd783820bcd212b7737af6a02174"};
}

class Download : public testing::Test {
 protected:
  Download() {
    options_.cache = folder_.File("hub");
    options_.stall_timeout = 0.3;
    options_.connect_timeout = 2;
    options_.wait = [this](double seconds) { waited_ = waited_ + seconds; };
    options_.notice = [this](const std::string& sentence) { notices_ += sentence + "\n"; };
  }

  /// Serves until the test ends.
  FakeHub& Serve(FakeHub::Handler handler) {
    hub_ = std::make_unique<FakeHub>(std::move(handler));
    options_.endpoint = hub_->url();
    return *hub_;
  }
  /// Answers HEAD rightly, and GET in the test's own way.
  FakeHub& ServeGet(FakeHub::Handler get) {
    return Serve([this, get](const FakeRequest& request, FakeConnection& connection) {
      if (request.method == "HEAD")
        entry_.Answer(request, connection);
      else
        get(request, connection);
    });
  }
  FakeHub& ServeWell() {
    return Serve([this](const FakeRequest& request, FakeConnection& connection) {
      entry_.Answer(request, connection);
    });
  }
  FakeHub& ServeStatus(int status, const std::string& headers = "") {
    return Serve([=](const FakeRequest&, FakeConnection& connection) {
      connection.Send(Head(status, StrCat(headers, "Content-Length: 0\r\n")));
    });
  }

  Result<std::string> Fetch(const ProgressFn& progress = {}) {
    return FetchFile(file_, options_, progress);
  }
  /// Fetches, and expects the right bytes in the right place, checked and alone.
  void ExpectFetched() {
    const Result<std::string> path = Fetch();
    ASSERT_TRUE(path.ok()) << path.error().message();
    ExpectWhole(*path);
  }
  void ExpectWhole(const std::string& path) {
    EXPECT_EQ(places().pointer, path);
    EXPECT_EQ(entry_.content, *ReadTextFile(path));
    EXPECT_EQ(test::LinksWork(), std::filesystem::is_symlink(path)) << "a copy where links fail";
    EXPECT_EQ(kCommit, *ReadTextFile(StrCat(options_.cache, "/models--Org--name/refs/main")));
    EXPECT_FALSE(FileExists(places().incomplete));
  }
  /// Fetches, and expects an error of this code that says each of these; nothing is published.
  void ExpectError(Code code, const std::vector<std::string>& words) {
    const Result<std::string> path = Fetch();
    ASSERT_FALSE(path.ok()) << *path;
    EXPECT_EQ(code, path.error().code()) << path.error().message();
    for (const std::string& word : words)
      EXPECT_NE(std::string::npos, path.error().message().find(word))
          << word << " is missing in: " << path.error().message();
    EXPECT_FALSE(FileExists(places().blob));
    EXPECT_FALSE(FileExists(places().pointer));
  }
  /// Makes <etag>.incomplete, as an earlier download left it.
  void Leave(std::string_view bytes) {
    ASSERT_TRUE(WriteFileAtomically(places().incomplete, bytes).ok());
  }
  /// Makes the whole file, as an earlier download left it.
  void FillCache() {
    ASSERT_TRUE(WriteFileAtomically(places().blob, entry_.content).ok());
    ASSERT_TRUE(Publish(file_, {.commit = kCommit, .etag = entry_.etag}, options_).ok());
  }
  CachePlaces places() const {
    return PlacesOf(file_, {.commit = kCommit, .etag = entry_.etag}, options_.cache);
  }

  ScratchFolder folder_;
  HubEntry entry_ = Entry();
  HubFile file_ = {.repo = "Org/name", .path = "checkpoints/x.pkl"};
  HubOptions options_;
  double waited_ = 0;
  std::string notices_;
  std::unique_ptr<FakeHub> hub_;
};

// What needs no connection.

TEST_F(Download, OfflineTakesTheCopyOfTheCache) {
  FillCache();
  const FakeHub& hub = ServeWell();
  options_.offline = true;
  ExpectFetched();
  EXPECT_TRUE(hub.requests().empty());
}

TEST_F(Download, OfflineWithoutACopyNeverTouchesTheNetwork) {
  const FakeHub& hub = ServeWell();
  options_.offline = true;
  ExpectError(Code::kUnavailable,
              {"Org/name: checkpoints/x.pkl", "HF_HUB_OFFLINE", options_.cache});
  EXPECT_TRUE(hub.requests().empty());
  EXPECT_FALSE(IsDirectory(options_.cache));
}

TEST_F(Download, DoesNotAskForACommitThatIsInTheCache) {
  FillCache();
  const FakeHub& hub = ServeWell();
  file_.revision = kCommit;
  ExpectFetched();
  EXPECT_TRUE(hub.requests().empty());
}

TEST_F(Download, RefusesNamesThatCannotBeBeforeAsking) {
  const FakeHub& hub = ServeWell();
  file_.path = "../../../etc/passwd";
  const Result<std::string> path = Fetch();
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(Code::kInvalidArgument, path.error().code());
  EXPECT_TRUE(hub.requests().empty());
}

TEST_F(Download, WithoutAnyFolderSaysWhichVariableToSet) {
  options_.cache = "";
  const Result<std::string> path = Fetch();
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(Code::kInvalidArgument, path.error().code());
  EXPECT_NE(std::string::npos, path.error().message().find("HF_HUB_CACHE"));
}

#ifndef NEEDLE_HTTP

TEST_F(Download, BuiltWithoutHttpNamesTheBuildOption) {
  options_.endpoint = "http://127.0.0.1:1";
  ExpectError(Code::kUnavailable, {"NEEDLE_HTTP=ON"});
}

TEST_F(Download, BuiltWithoutHttpStillFindsTheCopyOfTheCache) {
  FillCache();
  options_.endpoint = "http://127.0.0.1:1";
  ExpectFetched();
  EXPECT_NE(std::string::npos, notices_.find("NEEDLE_HTTP=ON"));
}

#else

// Answers as they should be.

TEST_F(Download, BringsAFileAndAsksForItRightly) {
  options_.token = "hf_secret";
  const FakeHub& hub = ServeWell();
  ExpectFetched();
  ASSERT_EQ(2u, hub.requests().size());
  for (const FakeRequest& request : hub.requests()) {
    EXPECT_EQ(kTarget, request.target);
    EXPECT_EQ("Bearer hf_secret", request.Header("authorization"));
    EXPECT_EQ("identity", request.Header("accept-encoding"));
    EXPECT_EQ("", request.Header("range"));
  }
  EXPECT_EQ(0, waited_);
}

TEST_F(Download, WithoutATokenSendsNone) {
  const FakeHub& hub = ServeWell();
  ExpectFetched();
  for (const FakeRequest& request : hub.requests())
    EXPECT_EQ(0u, request.headers.count("authorization"));
}

TEST_F(Download, OfWhatIsHereAlreadyAsksOnlyWhetherItHasChanged) {
  FillCache();
  const FakeHub& hub = ServeWell();
  ExpectFetched();
  ASSERT_EQ(1u, hub.requests().size());
  EXPECT_EQ("HEAD", hub.requests()[0].method);
}

TEST_F(Download, OfANewCommitWithTheSameBytesBringsNothing) {
  ASSERT_TRUE(WriteFileAtomically(places().blob, entry_.content).ok());
  const FakeHub& hub = ServeWell();
  ExpectFetched();
  EXPECT_TRUE(hub.requests("GET").empty());
}

TEST_F(Download, ChecksASmallFileByGitsChecksum) {
  entry_.etag = "e14557067d44d346f33644e0deb839ce2cfa37ec";
  ServeWell();
  ExpectFetched();
}

TEST_F(Download, OfAFileWithoutAChecksumSaysThatOnlyItsLengthWasChecked) {
  entry_.etag = "opaque-tag";
  ServeWell();
  ExpectFetched();
  EXPECT_NE(std::string::npos, notices_.find("no checksum"));
}

TEST_F(Download, BringsAnEmptyFile) {
  entry_.content = "";
  entry_.etag = "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391";  // git's empty blob
  ServeWell();
  ExpectFetched();
}

TEST_F(Download, TakesAnAnswerInChunksWithoutALength) {
  ServeGet([this](const FakeRequest&, FakeConnection& connection) {
    connection.Send(Head(200, "Transfer-Encoding: chunked\r\n"));
    connection.Send(StrCat("186a0\r\n", entry_.content.substr(0, 100000), "\r\n"));
    connection.Send(StrCat("186a0\r\n", entry_.content.substr(100000), "\r\n0\r\n\r\n"));
  });
  ExpectFetched();
}

TEST_F(Download, EncodesTheNamesOfTheAddress) {
  file_.revision = "refs/pr/1";
  file_.path = "a b/ä.pkl";
  const FakeHub& hub = ServeWell();
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ("/Org/name/resolve/refs%2Fpr%2F1/a%20b/%C3%A4.pkl", hub.requests()[0].target);
  EXPECT_EQ(kCommit, *ReadTextFile(StrCat(options_.cache, "/models--Org--name/refs/refs/pr/1")));
}

TEST_F(Download, ReportsItsProgressFromZeroToTheWhole) {
  ServeWell();
  std::vector<uint64_t> seen;
  ASSERT_TRUE(Fetch([&](uint64_t bytes, uint64_t total) {
                EXPECT_EQ(200000u, total);
                seen.push_back(bytes);
                return true;
              }).ok());
  ASSERT_GE(seen.size(), 2u);
  EXPECT_EQ(0u, seen.front());
  EXPECT_EQ(200000u, seen.back());
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

// Redirects.

TEST_F(Download, FollowsARedirectToAStoreWithoutTakingTheTokenThere) {
  FakeHub store([this](const FakeRequest& request, FakeConnection& connection) {
    const HubEntry blob = {.content = entry_.content, .commit = "", .etag = "the-stores-own"};
    blob.Answer(request, connection);
  });
  options_.token = "hf_secret";
  const FakeHub& hub = Serve([&](const FakeRequest&, FakeConnection& connection) {
    connection.Send(
        Head(302, StrCat("X-Repo-Commit: ", kCommit, "\r\nX-Linked-Etag: \"", entry_.etag,
                         "\"\r\nX-Linked-Size: 200000\r\nLocation: ", store.url(),
                         "/blob?sig=a%2Fb%26%3D%25+%20c%22\r\nContent-Length: 0\r\n")));
  });
  ExpectFetched();
  for (const FakeRequest& request : hub.requests())
    EXPECT_EQ("Bearer hf_secret", request.Header("authorization"));
  ASSERT_EQ(1u, store.requests().size()) << "the hub's first answer says all that HEAD is for";
  EXPECT_EQ("GET", store.requests()[0].method);
  EXPECT_EQ("/blob?sig=a%2Fb%26%3D%25+%20c%22", store.requests()[0].target);
  EXPECT_EQ(0u, store.requests()[0].headers.count("authorization"));
}

TEST_F(Download, KeepsTheTokenOnARelativeRedirect) {
  options_.token = "hf_secret";
  const FakeHub& hub = Serve([this](const FakeRequest& request, FakeConnection& connection) {
    if (request.target == kTarget)
      connection.Send(Head(307, "Location: /moved/x.pkl?a=b\r\nContent-Length: 0\r\n"));
    else
      entry_.Answer(request, connection);
  });
  ExpectFetched();
  ASSERT_EQ(4u, hub.requests().size());
  EXPECT_EQ("/moved/x.pkl?a=b", hub.requests()[3].target);
  EXPECT_EQ("Bearer hf_secret", hub.requests()[3].Header("authorization"));
}

TEST_F(Download, DoesNotTakeTheTokenBackUpWhenAnotherHostSendsItHome) {
  options_.token = "hf_secret";
  std::string home;
  FakeHub other([&](const FakeRequest&, FakeConnection& connection) {
    connection.Send(Head(302, StrCat("Location: ", home, "/again\r\nContent-Length: 0\r\n")));
  });
  const FakeHub& hub = Serve([&](const FakeRequest& request, FakeConnection& connection) {
    if (request.target == "/again")
      entry_.Answer(request, connection);
    else
      connection.Send(Head(302, StrCat("Location: ", other.url(), "/\r\nContent-Length: 0\r\n")));
  });
  home = hub.url();
  ExpectFetched();
  ASSERT_EQ(4u, hub.requests().size());
  for (const FakeRequest& request : hub.requests())
    EXPECT_EQ(request.target == "/again" ? "" : "Bearer hf_secret",
              request.Header("authorization"));
}

TEST_F(Download, GivesUpOnACircleOfRedirects) {
  const FakeHub& hub = ServeStatus(302, "Location: /round\r\n");
  ExpectError(Code::kUnavailable, {"more than 5 redirects"});
  EXPECT_EQ(6u, hub.requests().size());
}

TEST_F(Download, GivesUpOnARedirectToNowhere) {
  for (const char* location : {"", "Location: gopher://x/\r\n", "Location: http://\r\n"}) {
    ServeStatus(302, location);
    ExpectError(Code::kUnavailable, {"302"});
  }
}

// Downloads that break off.

TEST_F(Download, GoesOnAfterABreakWhereItStopped) {
  std::atomic<int> gets{0};
  const FakeHub& hub = ServeGet([&](const FakeRequest& request, FakeConnection& connection) {
    if (++gets > 1) return entry_.Answer(request, connection);
    connection.Send(Head(200, "Content-Length: 200000\r\n"));
    connection.Send(std::string_view(entry_.content).substr(0, 80000));
  });
  ExpectFetched();
  ASSERT_EQ(2u, hub.requests("GET").size());
  EXPECT_EQ(80000u, hub.requests("GET")[1].RangeBegin());
  EXPECT_EQ(1, waited_);
  EXPECT_NE(std::string::npos, notices_.find("trying again in 1 s"));
}

TEST_F(Download, GoesOnAfterAReset) {
  std::atomic<int> gets{0};
  ServeGet([&](const FakeRequest& request, FakeConnection& connection) {
    if (++gets > 1) return entry_.Answer(request, connection);
    connection.Send(Head(200, "Content-Length: 200000\r\n"));
    connection.Send(std::string_view(entry_.content).substr(0, 80000));
    connection.Reset();
  });
  ExpectFetched();
}

TEST_F(Download, GoesOnWithWhatAnEarlierRunHasLeft) {
  Leave(entry_.content.substr(0, 150000));
  const FakeHub& hub = ServeWell();
  ExpectFetched();
  ASSERT_EQ(1u, hub.requests("GET").size());
  EXPECT_EQ(150000u, hub.requests("GET")[0].RangeBegin());
}

TEST_F(Download, OfWhatHasArrivedWholeOnlyChecksIt) {
  Leave(entry_.content);
  const FakeHub& hub = ServeWell();
  ExpectFetched();
  EXPECT_TRUE(hub.requests("GET").empty());
}

TEST_F(Download, BeginsAnewWhenWhatWasLeftIsWrong) {
  Leave(std::string(150000, 'x'));
  const FakeHub& hub = ServeWell();
  ExpectFetched();
  ASSERT_EQ(2u, hub.requests("GET").size());
  EXPECT_EQ(0u, hub.requests("GET")[1].RangeBegin());
}

TEST_F(Download, BeginsAnewWhenWhatWasLeftIsTooLong) {
  Leave(std::string(300000, 'x'));
  const FakeHub& hub = ServeWell();
  ExpectFetched();
  ASSERT_EQ(1u, hub.requests("GET").size());
  EXPECT_EQ(0u, hub.requests("GET")[0].RangeBegin());
}

TEST_F(Download, BeginsAnewWhenTheServerKnowsNoRanges) {
  Leave(entry_.content.substr(0, 150000));
  ServeGet([this](const FakeRequest&, FakeConnection& connection) {
    connection.Send(Head(200, "Content-Length: 200000\r\n"));
    connection.Send(entry_.content);
  });
  ExpectFetched();
}

TEST_F(Download, BeginsAnewWhenTheServerSendsAnotherRange) {
  for (const char* range :
       {"Content-Range: bytes 5-199999/200000\r\n", "",
        "Content-Range: bytes 150000-199999/200001\r\n", "Content-Range: bytes 150000\r\n"}) {
    std::filesystem::remove_all(options_.cache);
    Leave(entry_.content.substr(0, 150000));
    ServeGet([&](const FakeRequest& request, FakeConnection& connection) {
      if (request.RangeBegin() == 0) return entry_.Answer(request, connection);
      connection.Send(Head(206, StrCat(range, "Content-Length: 50000\r\n")));
      connection.Send(std::string_view(entry_.content).substr(150000));
    });
    ExpectFetched();
    EXPECT_NE(std::string::npos, notices_.find("another part of the file"));
    EXPECT_EQ(std::string::npos, notices_.find("checksum")) << "noticed before a byte was taken";
    notices_.clear();
  }
}

TEST_F(Download, BeginsAnewWhenTheRangeIsRefused) {
  Leave(entry_.content.substr(0, 150000));
  ServeGet([this](const FakeRequest& request, FakeConnection& connection) {
    if (request.RangeBegin() == 0) return entry_.Answer(request, connection);
    connection.Send(Head(416, "Content-Length: 0\r\n"));
  });
  ExpectFetched();
}

TEST_F(Download, GivesUpAfterSoManyBreaksAndKeepsWhatCame) {
  options_.max_tries = 3;
  const FakeHub& hub = ServeGet([this](const FakeRequest& request, FakeConnection& connection) {
    const size_t begin = request.RangeBegin();
    connection.Send(
        Head(begin > 0 ? 206 : 200, StrCat("Content-Range: bytes ", begin, "-199999/200000\r\n",
                                           "Content-Length: ", 200000 - begin, "\r\n")));
    connection.Send(std::string_view(entry_.content).substr(begin, 10000));
  });
  ExpectError(Code::kUnavailable, {"after 3 tries"});
  EXPECT_EQ(3u, hub.requests("GET").size());
  EXPECT_EQ(entry_.content.substr(0, 30000), *ReadTextFile(places().incomplete));
  EXPECT_EQ(1 + 2, waited_);
}

TEST_F(Download, DoesNotCountABreakThatCameWithMuch) {
  options_.max_tries = 2;
  options_.progress_that_counts = 10000;
  ServeGet([this](const FakeRequest& request, FakeConnection& connection) {
    const size_t begin = request.RangeBegin();
    connection.Send(
        Head(begin > 0 ? 206 : 200, StrCat("Content-Range: bytes ", begin, "-199999/200000\r\n",
                                           "Content-Length: ", 200000 - begin, "\r\n")));
    connection.Send(std::string_view(entry_.content).substr(begin, 40000));
  });
  ExpectFetched();
}

TEST_F(Download, TakesSilenceForABreak) {
  std::atomic<int> gets{0};
  ServeGet([&](const FakeRequest& request, FakeConnection& connection) {
    if (++gets > 1) return entry_.Answer(request, connection);
    connection.Send(Head(200, "Content-Length: 200000\r\n"));
    connection.Send(std::string_view(entry_.content).substr(0, 80000));
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
  });
  ExpectFetched();
  EXPECT_EQ(2, gets);
}

TEST_F(Download, TakesATrickleForABreak) {
  std::atomic<int> gets{0};
  ServeGet([&](const FakeRequest& request, FakeConnection& connection) {
    if (++gets > 1) return entry_.Answer(request, connection);
    connection.Send(Head(200, "Content-Length: 200000\r\n"));
    for (size_t i = 0; i < 100 && connection.Send(entry_.content.substr(i, 1)); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  ExpectFetched();
  EXPECT_EQ(2, gets);
  EXPECT_NE(std::string::npos, notices_.find("bytes a second"));
}

TEST_F(Download, StoppedByTheCallerKeepsWhatCameAndGoesOnLater) {
  const FakeHub& hub = ServeGet([this](const FakeRequest& request, FakeConnection& connection) {
    if (request.RangeBegin() > 0) return entry_.Answer(request, connection);
    connection.Send(Head(200, "Content-Length: 200000\r\n"));
    connection.Send(std::string_view(entry_.content).substr(0, 80000));
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    connection.Send(std::string_view(entry_.content).substr(80000));
  });
  const Result<std::string> path = Fetch([](uint64_t bytes, uint64_t) { return bytes < 80000; });
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(Code::kIo, path.error().code());
  EXPECT_NE(std::string::npos, path.error().message().find("was stopped"));
  const size_t kept = std::filesystem::file_size(places().incomplete);
  EXPECT_GE(kept, 80000u);
  EXPECT_LT(kept, 200000u);
  EXPECT_FALSE(FileExists(places().blob));
  ExpectFetched();
  EXPECT_EQ(kept, hub.requests("GET")[1].RangeBegin());
}

TEST_F(Download, StoppedWhileWaitingEndsAtOnce) {
  ServeStatus(503, "Retry-After: 100\r\n");
  int calls = 0;
  const Result<std::string> path = Fetch([&](uint64_t, uint64_t) { return ++calls < 3; });
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(Code::kIo, path.error().code());
  EXPECT_LE(waited_, 1);
}

TEST_F(Download, KilledInTheMiddleLeavesOnlyWhatIsIncomplete) {
  // The child process runs this whole test again, so the folder's name goes to it.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const char* given = ::getenv("NEEDLE_TEST_HUB_FOLDER");
  options_.cache = given != nullptr ? given : folder_.File("hub");
  ::setenv("NEEDLE_TEST_HUB_FOLDER", options_.cache.c_str(), 1);
  const auto die_half_way = [this] {
    ServeGet([this](const FakeRequest&, FakeConnection& connection) {
      connection.Send(Head(200, "Content-Length: 200000\r\n"));
      connection.Send(std::string_view(entry_.content).substr(0, 80000));
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      connection.Send(std::string_view(entry_.content).substr(80000, 80000));
      std::this_thread::sleep_for(std::chrono::milliseconds(150));
      connection.Send(std::string_view(entry_.content).substr(160000));
    });
    (void)Fetch([](uint64_t bytes, uint64_t) {
      if (bytes > 80000) ::raise(SIGKILL);
      return true;
    }).ok();
  };
  EXPECT_EXIT(die_half_way(), testing::KilledBySignal(SIGKILL), "");
  ::unsetenv("NEEDLE_TEST_HUB_FOLDER");

  EXPECT_TRUE(FileExists(places().incomplete));
  EXPECT_FALSE(FileExists(places().blob));
  EXPECT_FALSE(FileExists(places().pointer));
  EXPECT_FALSE(FindInCache(file_, options_).ok());
  const FakeHub& hub = ServeWell();  // and the lock of the dead process is free
  ExpectFetched();
  EXPECT_GT(hub.requests("GET")[0].RangeBegin(), 0u);
}

// Servers that lie.

TEST_F(Download, RefusesALengthLongerThanAnnounced) {
  ServeGet([this](const FakeRequest&, FakeConnection& connection) {
    connection.Send(Head(200, "Content-Length: 200007\r\n"));
    connection.Send(entry_.content + "surplus");
  });
  ExpectError(Code::kCorruptFile, {"announced 200000 bytes", "sends 200007"});
}

TEST_F(Download, RefusesALengthShorterThanAnnounced) {
  ServeGet([this](const FakeRequest&, FakeConnection& connection) {
    connection.Send(Head(200, "Content-Length: 199999\r\n"));
    connection.Send(std::string_view(entry_.content).substr(0, 199999));
  });
  ExpectError(Code::kCorruptFile, {"announced 200000 bytes", "sends 199999"});
}

TEST_F(Download, RefusesMoreBytesThanAnnounced) {
  ServeGet([this](const FakeRequest&, FakeConnection& connection) {
    connection.Send(Head(200, ""));  // no length: the end of the connection is the end
    connection.Send(entry_.content + "surplus");
  });
  ExpectError(Code::kCorruptFile, {"announced 200000 bytes", "sends more"});
  EXPECT_FALSE(FileExists(places().incomplete));
}

TEST_F(Download, GivesUpOnFewerBytesThanAnnounced) {
  options_.max_tries = 2;
  ServeGet([this](const FakeRequest&, FakeConnection& connection) {
    connection.Send(Head(200, ""));
    connection.Send(std::string_view(entry_.content).substr(0, 199999));
  });
  ExpectError(Code::kUnavailable, {"after 199999 of 200000 bytes"});
}

TEST_F(Download, RefusesWrongBytesAndKeepsNothing) {
  const std::string announced = entry_.etag;
  for (const char* etag : {announced.c_str(), "e14557067d44d346f33644e0deb839ce2cfa37ec"}) {
    entry_.etag = etag;
    const FakeHub& hub = ServeGet([this](const FakeRequest&, FakeConnection& connection) {
      std::string wrong = entry_.content;
      wrong[123456] ^= 1;
      connection.Send(Head(200, "Content-Length: 200000\r\n"));
      connection.Send(wrong);
    });
    ExpectError(Code::kCorruptFile, {"checksum", entry_.etag, "nothing was kept"});
    EXPECT_FALSE(FileExists(places().incomplete));
    EXPECT_EQ(1u, hub.requests("GET").size()) << "a whole wrong answer is not asked for again";
  }
}

TEST_F(Download, RefusesTagsAndCommitsThatLeadOutOfTheFolder) {
  entry_.etag = "../../../../evil";
  ServeWell();
  const Result<std::string> tag = Fetch();
  ASSERT_FALSE(tag.ok());
  EXPECT_EQ(Code::kUnavailable, tag.error().code());
  entry_ = Entry();
  entry_.commit = "../../../../evil";
  ServeWell();
  EXPECT_FALSE(Fetch().ok());
  EXPECT_FALSE(IsDirectory(options_.cache));
}

TEST_F(Download, RefusesAServerThatIsNoHub) {
  ServeStatus(200, "Content-Type: text/html\r\n");
  ExpectError(Code::kUnavailable, {"names no commit", "HF_ENDPOINT"});
}

TEST_F(Download, RefusesAServerThatDoesNotSpeakHttp) {
  options_.max_tries = 2;
  Serve(
      [](const FakeRequest&, FakeConnection& connection) { connection.Send("SSH-2.0-x\r\n\r\n"); });
  ExpectError(Code::kUnavailable, {"after 2 tries"});
}

TEST_F(Download, BeginsAnewWhenTheFileChangesMeanwhile) {
  const std::string old_etag(64, 'a');
  std::atomic<int> heads{0};
  Serve([&](const FakeRequest& request, FakeConnection& connection) {
    const bool old_answer = request.method == "HEAD" && ++heads == 1;
    const std::string linked =
        StrCat("X-Linked-Etag: \"", old_answer ? old_etag : entry_.etag, "\"\r\n");
    connection.Send(Head(
        200, StrCat("X-Repo-Commit: ", kCommit, "\r\n", linked, "Content-Length: 200000\r\n")));
    if (request.method == "GET") connection.Send(entry_.content);
  });
  ExpectFetched();
  EXPECT_EQ(2, heads);
  EXPECT_NE(std::string::npos, notices_.find("has changed"));
}

// Refusals.

TEST_F(Download, RefusedWithoutATokenNamesTheRepositoryAndTheVariable) {
  const FakeHub& hub = ServeStatus(401, "X-Error-Message: Repository not found\r\n");
  ExpectError(Code::kInvalidArgument, {kTarget, "401", "Repository not found", "\"Org/name\"",
                                       "NEEDLE_HF_REPO", "HF_TOKEN"});
  EXPECT_EQ(1u, hub.requests().size());
}

TEST_F(Download, RefusedWithATokenSaysSoWithoutShowingIt) {
  options_.token = "hf_secret";
  ServeStatus(403);
  ExpectError(Code::kInvalidArgument, {"403", "token that was sent", "HF_TOKEN"});
  EXPECT_EQ(std::string::npos, Fetch().error().message().find("hf_secret"));
}

TEST_F(Download, OfAGatedRepositoryNamesThePageToGoTo) {
  ServeStatus(403, "X-Error-Code: GatedRepo\r\n");
  ExpectError(Code::kInvalidArgument, {"conditions", StrCat(options_.endpoint, "/Org/name")});
}

TEST_F(Download, OfWhatIsNotThereSaysWhatIsNotThere) {
  const FakeHub& hub = ServeStatus(404, "X-Error-Code: EntryNotFound\r\n");
  ExpectError(Code::kNotFound, {"404", "has no file \"checkpoints/x.pkl\" at \"main\""});
  EXPECT_EQ(1u, hub.requests().size());
  ServeStatus(404, "X-Error-Code: RepoNotFound\r\n");
  ExpectError(Code::kNotFound, {"no repository \"Org/name\""});
  ServeStatus(404, "X-Error-Code: RevisionNotFound\r\n");
  ExpectError(Code::kNotFound, {"no branch, tag or commit \"main\""});
}

TEST_F(Download, DoesNotTakeACachedCopyAgainstTheHubsNo) {
  FillCache();
  ServeStatus(404);
  const Result<std::string> path = Fetch();
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(Code::kNotFound, path.error().code());
}

TEST_F(Download, WaitsAsLongAsTheServerAsks) {
  std::atomic<int> heads{0};
  Serve([&](const FakeRequest& request, FakeConnection& connection) {
    if (request.method == "HEAD" && ++heads == 1)
      connection.Send(Head(429, "Retry-After: 7\r\nContent-Length: 0\r\n"));
    else
      entry_.Answer(request, connection);
  });
  ExpectFetched();
  EXPECT_DOUBLE_EQ(7, waited_);
}

TEST_F(Download, DoesNotWaitForHours) {
  const FakeHub& hub = ServeStatus(429, "Retry-After: 7200\r\n");
  ExpectError(Code::kUnavailable, {"429", "too many requests", "7200 seconds"});
  EXPECT_EQ(1u, hub.requests().size());
  EXPECT_EQ(0, waited_);
}

TEST_F(Download, TriesAgainWhenTheServerIsInTrouble) {
  std::atomic<int> requests{0};
  Serve([&](const FakeRequest& request, FakeConnection& connection) {
    if (++requests == 1 || requests == 3)
      connection.Send(Head(requests == 1 ? 500 : 503, "Content-Length: 0\r\n"));
    else
      entry_.Answer(request, connection);
  });
  ExpectFetched();
  EXPECT_EQ(1 + 2, waited_);
}

TEST_F(Download, GivesUpOnAServerThatStaysInTrouble) {
  const FakeHub& hub = ServeStatus(500);
  ExpectError(Code::kUnavailable, {"500", "after 5 tries"});
  EXPECT_EQ(5u, hub.requests().size());
  EXPECT_EQ(1 + 2 + 4 + 8, waited_);
}

TEST_F(Download, AsksTheHubForANewAddressWhenTheStoreRefusesTheOld) {
  std::atomic<int> asked{0};
  FakeHub store([&](const FakeRequest& request, FakeConnection& connection) {
    if (++asked == 1)
      connection.Send(Head(403, "Content-Length: 0\r\n"));
    else
      entry_.Answer(request, connection);
  });
  Serve([&](const FakeRequest&, FakeConnection& connection) {
    connection.Send(Head(302, StrCat(entry_.Headers(), "X-Linked-Etag: \"", entry_.etag,
                                     "\"\r\nX-Linked-Size: 200000\r\nLocation: ", store.url(),
                                     "/\r\nContent-Length: 0\r\n")));
  });
  ExpectFetched();
  EXPECT_EQ(2, asked);
}

// No network.

/// A port of this machine at which nobody listens.
std::string SilentEndpoint() {
  const FakeHub gone([](const FakeRequest&, FakeConnection&) {});
  return gone.url();
}

TEST_F(Download, WithoutANetworkSaysSoAtOnce) {
  options_.endpoint = SilentEndpoint();
  ExpectError(Code::kUnavailable, {"no connection to http://127.0.0.1:", "HTTPS_PROXY"});
  EXPECT_EQ(0, waited_);
}

TEST_F(Download, WithoutANetworkTakesTheCachedCopyAndSaysSo) {
  FillCache();
  options_.endpoint = SilentEndpoint();
  ExpectFetched();
  EXPECT_NE(std::string::npos, notices_.find("taking the copy in the cache"));
}

TEST_F(Download, GoesThroughAProxyAndRespectsNoProxy) {
  FakeHub proxy([this](const FakeRequest& request, FakeConnection& connection) {
    entry_.Answer(request, connection);
  });
  options_.http_proxy = StrCat("http://me:pass@127.0.0.1:", proxy.port());
  options_.endpoint = "http://hub.invalid";
  ExpectFetched();
  ASSERT_EQ(2u, proxy.requests().size());
  EXPECT_EQ(StrCat("http://hub.invalid:80", kTarget), proxy.requests()[0].target);
  EXPECT_EQ("Basic bWU6cGFzcw==", proxy.requests()[0].Header("proxy-authorization"));

  std::filesystem::remove_all(options_.cache);
  options_.no_proxy = "hub.invalid";
  ExpectError(Code::kUnavailable, {"no connection to http://hub.invalid"});
  EXPECT_EQ(2u, proxy.requests().size());
}

TEST_F(Download, RefusesAProxyOfAnotherKind) {
  options_.http_proxy = "socks5://127.0.0.1:1";
  options_.endpoint = "http://hub.invalid";
  ExpectError(Code::kInvalidArgument, {"HTTPS_PROXY", "socks"});
}

TEST_F(Download, RefusesAnEndpointThatIsNoAddress) {
  options_.endpoint = "huggingface.co";
  ExpectError(Code::kInvalidArgument, {"huggingface.co", "https://host/path"});
}

// Encryption.

/// A key and a certificate for 127.0.0.1 that it has signed itself.
class SelfSigned {
 public:
  SelfSigned() : key_(EVP_EC_gen("P-256"), EVP_PKEY_free), certificate_(X509_new(), X509_free) {
    X509* const x = certificate_.get();
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, key_.get());
    X509_NAME* const name = X509_get_subject_name(x);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("test"), -1, -1, 0);
    X509_set_issuer_name(x, name);
    X509_EXTENSION* const names =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "IP:127.0.0.1");
    X509_add_ext(x, names, -1);
    X509_EXTENSION_free(names);
    X509_sign(x, key_.get(), EVP_sha256());
  }
  X509* certificate() const { return certificate_.get(); }
  EVP_PKEY* key() const { return key_.get(); }
  void WritePem(const std::string& path) const {
    std::FILE* const file = std::fopen(path.c_str(), "w");
    ASSERT_NE(nullptr, file);
    PEM_write_X509(file, certificate_.get());
    std::fclose(file);
  }

 private:
  std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key_;
  std::unique_ptr<X509, void (*)(X509*)> certificate_;
};

/// A hub that speaks TLS: a redirect at the file's address, the file behind it.
class TlsHub {
 public:
  TlsHub(const SelfSigned& who, const HubEntry& entry)
      : server_(who.certificate(), who.key()), entry_(entry) {
    server_.Get("/Org/.*", [this](const httplib::Request&, httplib::Response& response) {
      response.status = 302;
      response.set_header("Location", location_);
    });
    server_.Get("/blob", [this](const httplib::Request& request, httplib::Response& response) {
      signature_ = request.target;
      response.set_header("X-Repo-Commit", entry_.commit);
      response.set_header("ETag", entry_.etag);
      response.set_content_provider(entry_.content.size(), "application/octet-stream",
                                    [this](size_t offset, size_t length, httplib::DataSink& sink) {
                                      if (silent_)
                                        std::this_thread::sleep_for(std::chrono::milliseconds(700));
                                      return sink.write(entry_.content.data() + offset, length);
                                    });
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    while (!server_.is_running()) std::this_thread::yield();
  }
  ~TlsHub() {
    server_.stop();
    thread_.join();
  }
  std::string url() const { return StrCat("https://127.0.0.1:", port_); }
  void set_location(const std::string& location) { location_ = location; }
  void be_silent() { silent_ = true; }
  std::string signature() const { return signature_; }

 private:
  httplib::SSLServer server_;
  const HubEntry& entry_;
  std::string location_ = "/blob?sig=a%2Fb%26";
  std::atomic<bool> silent_{false};
  std::string signature_;
  int port_ = 0;
  std::thread thread_;
};

TEST_F(Download, TrustsACertificateOfTheFileThatIsNamed) {
  const SelfSigned who;
  const TlsHub hub(who, entry_);
  options_.endpoint = hub.url();
  options_.ca_file = folder_.File("ca.pem");
  who.WritePem(options_.ca_file);
  ExpectFetched();
  EXPECT_EQ("/blob?sig=a%2Fb%26", hub.signature());
}

TEST_F(Download, RefusesACertificateThatNobodyKnows) {
  const SelfSigned who, somebody_else;
  const TlsHub hub(who, entry_);
  options_.endpoint = hub.url();
  ExpectError(Code::kUnavailable, {"certificate of https://127.0.0.1", "SSL_CERT_FILE"});
  options_.ca_file = folder_.File("ca.pem");
  somebody_else.WritePem(options_.ca_file);
  ExpectError(Code::kUnavailable, {"certificate of https://127.0.0.1", "SSL_CERT_FILE"});
  options_.ca_file = folder_.File("none.pem");
  ExpectError(Code::kInvalidArgument, {"none.pem", "SSL_CERT_FILE"});
  EXPECT_EQ(0, waited_);
}

TEST_F(Download, RefusesACertificateForAnotherHost) {
  const SelfSigned who;
  const TlsHub hub(who, entry_);
  options_.endpoint = hub.url();
  options_.endpoint.replace(8, 9, "localhost");
  options_.ca_file = folder_.File("ca.pem");
  who.WritePem(options_.ca_file);
  ExpectError(Code::kUnavailable, {"certificate of https://localhost"});
}

TEST_F(Download, RefusesToGoOnWithoutEncryption) {
  const FakeHub plain([](const FakeRequest&, FakeConnection&) {});
  const SelfSigned who;
  TlsHub hub(who, entry_);
  hub.set_location(plain.url());
  options_.endpoint = hub.url();
  options_.ca_file = folder_.File("ca.pem");
  who.WritePem(options_.ca_file);
  ExpectError(Code::kUnavailable, {plain.url(), "not encrypted"});
  EXPECT_TRUE(plain.requests().empty());
}

TEST_F(Download, TakesSilenceForABreakWithEncryptionToo) {
  const SelfSigned who;
  TlsHub hub(who, entry_);
  hub.be_silent();
  options_.endpoint = hub.url();
  options_.max_tries = 1;
  options_.ca_file = folder_.File("ca.pem");
  who.WritePem(options_.ca_file);
  ExpectError(Code::kUnavailable, {"broke off or stalled"});
}

// The folder.

TEST_F(Download, IntoAFolderThatCannotBeMadeNamesItAndTheVariable) {
  ASSERT_TRUE(WriteFileAtomically(folder_.File("file"), std::string_view("x")).ok());
  options_.cache = folder_.File("file/hub");
  const FakeHub& hub = ServeWell();
  ExpectError(Code::kIo, {folder_.File("file"), "HF_HUB_CACHE"});
  EXPECT_TRUE(hub.requests("GET").empty());
}

TEST_F(Download, WithAFolderInTheWayOfThePartialFileSaysSo) {
  std::filesystem::create_directories(places().incomplete);
  ServeWell();
  ExpectError(Code::kIo, {places().incomplete, "HF_HUB_CACHE"});
}

TEST_F(Download, ByManyAtOnceBringsTheFileOnce) {
  const FakeHub& hub = ServeGet([this](const FakeRequest& request, FakeConnection& connection) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    entry_.Answer(request, connection);
  });
  options_.wait = {};  // really
  options_.notice = {};
  std::vector<std::string> paths(4);
  std::vector<std::thread> threads;
  for (std::string& path : paths)
    threads.emplace_back([&] {
      const Result<std::string> fetched = Fetch();
      path = fetched.ok() ? *fetched : fetched.error().message();
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& path : paths) ExpectWhole(path);
  EXPECT_EQ(1u, hub.requests("GET").size());
}

TEST_F(Download, WaitsForAnotherProgramAndCanBeStoppedMeanwhile) {
  ServeWell();
  ASSERT_TRUE(MakeDirectories(DirName(places().lock)).ok());
  auto other = FileLock::TryAcquire(places().lock);
  ASSERT_TRUE(other.ok() && other->has_value());
  int calls = 0;
  const Result<std::string> path = Fetch([&](uint64_t, uint64_t) { return ++calls < 3; });
  ASSERT_FALSE(path.ok());
  EXPECT_EQ(Code::kIo, path.error().code());
  EXPECT_NE(std::string::npos, notices_.find("another program"));
  other->reset();
  ExpectFetched();
}

#endif

}  // namespace
}  // namespace needle
