// Addresses, options, names in the cache, checksums and waiting times: all that needs no server.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/link.h"
#include "base/str_cat.h"
#include "hub/cache.h"
#include "hub/checksum.h"
#include "hub/failure.h"
#include "hub/options.h"
#include "hub/retry.h"
#include "hub/url.h"
#include "support/scratch.h"

namespace needle {
namespace {

using test::ScratchFolder;

Url MustParse(std::string_view text) {
  Result<Url> url = ParseUrl(text);
  EXPECT_TRUE(url.ok()) << text;
  return url.ok() ? *url : Url{};
}

TEST(Url, SplitsAnAddressIntoItsParts) {
  const Url url = MustParse("HTTPS://Example.ORG:8443/a/b?c=d#e");
  EXPECT_EQ("https", url.scheme);
  EXPECT_EQ("example.org", url.host);
  EXPECT_EQ(8443, url.port);
  EXPECT_EQ("/a/b?c=d", url.target);
  EXPECT_EQ("https://example.org:8443/a/b?c=d", url.Text());
}

TEST(Url, TakesThePortOfTheSchemeAndLeavesItOutAgain) {
  EXPECT_EQ(443, MustParse("https://a.b").port);
  EXPECT_EQ(80, MustParse("http://a.b?q").port);
  EXPECT_EQ("http://a.b/?q", MustParse("http://a.b?q").Text());
  EXPECT_EQ("https://a.b", MustParse("https://a.b:443/x").Origin());
}

TEST(Url, ReadsAnIpv6Host) {
  const Url url = MustParse("http://[::1]:8080/x");
  EXPECT_EQ("::1", url.host);
  EXPECT_EQ("http://[::1]:8080/x", url.Text());
}

TEST(Url, RefusesWhatIsNoWebAddress) {
  for (const char* text : {"", "example.org", "ftp://a/b", "http://", "http:///x", "http://a:0/",
                           "http://a:70000/", "http://a:8x/", "http://user:secret@a/",
                           "http://a/\r\nHost: b", "http://a b/", "http://[::1", "http://[::1]x/"})
    EXPECT_FALSE(ParseUrl(text).ok()) << text;
}

TEST(Url, ResolvesEveryKindOfLocation) {
  const Url base = MustParse("https://a.org:444/x/y/z?q=1");
  const std::map<std::string, std::string> cases = {
      {"http://b.org/p", "http://b.org/p"},
      {"//b.org/p", "https://b.org/p"},
      {"/p?s=2", "https://a.org:444/p?s=2"},
      {"p", "https://a.org:444/x/y/p"},
      {"?r", "https://a.org:444/x/y/z?r"},
      {"../p", "https://a.org:444/x/p"},
      {"../../../../p", "https://a.org:444/p"},
      {"./p/.", "https://a.org:444/x/y/p/"},
      {"/p?u=http://c.org/", "https://a.org:444/p?u=http://c.org/"}};
  for (const auto& c : cases) {
    const Result<Url> url = ResolveLocation(base, c.first);
    ASSERT_TRUE(url.ok()) << c.first;
    EXPECT_EQ(c.second, url->Text()) << c.first;
  }
  for (const char* bad : {"", "javascript:alert(1)", "file:///etc/passwd", "/a b", "/a\r\nb"})
    EXPECT_FALSE(ResolveLocation(base, bad).ok()) << bad;
}

TEST(Url, HasTheSameOriginOnlyWithTheSameSchemeHostAndPort) {
  const Url base = MustParse("https://a.org/x");
  EXPECT_TRUE(SameOrigin(base, MustParse("https://A.org:443/y")));
  for (const char* other : {"http://a.org/x", "https://b.org/x", "https://a.org:444/x"})
    EXPECT_FALSE(SameOrigin(base, MustParse(other))) << other;
}

TEST(Url, EncodesAllButPlainCharacters) {
  EXPECT_EQ("refs%2Fpr%2F1", PercentEncode("refs/pr/1"));
  EXPECT_EQ("a/b%20c%3F%25-._~%C3%A4", PercentEncode("a/b c?%-._~\xc3\xa4", "/"));
}

TEST(Proxy, IsReadWithAndWithoutSchemeAndUser) {
  const Result<Proxy> plain = ParseProxy(" proxy.org:3128 ");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ("proxy.org", plain->host);
  EXPECT_EQ(3128, plain->port);
  const Result<Proxy> full = ParseProxy("http://me:p@ss@proxy.org:8080/");
  ASSERT_TRUE(full.ok());
  EXPECT_EQ("me", full->user);
  EXPECT_EQ("p@ss", full->password);
  EXPECT_EQ(8080, full->port);
}

TEST(Proxy, OfAnotherKindIsRefusedWithoutShowingItsPassword) {
  for (const char* text : {"socks5://me:secret@h:1080", "https://me:secret@h", "http://", "h:x"}) {
    const Result<Proxy> proxy = ParseProxy(text);
    ASSERT_FALSE(proxy.ok()) << text;
    EXPECT_EQ(std::string::npos, proxy.error().message().find("secret"));
  }
}

TEST(Proxy, IsNotUsedForHostsOfNoProxy) {
  const Url url = MustParse("https://cdn.example.org:8443/x");
  for (const char* yes : {"*", "example.org", ".example.org", "a, cdn.example.org ,b",
                          "Example.ORG:8443", "cdn.example.org:8443"})
    EXPECT_TRUE(ExcludedFromProxy(url, yes)) << yes;
  for (const char* no :
       {"", ",", ".", "ample.org", "example.org:443", "www.example.org", "org.example"})
    EXPECT_FALSE(ExcludedFromProxy(url, no)) << no;
}

HubOptions OptionsOf(const std::map<std::string, std::string>& variables) {
  return HubOptions::FromEnvironment([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional<std::string>(found->second);
  });
}

TEST(HubOptions, HaveTheHubsDefaults) {
  const HubOptions options = OptionsOf({{"HOME", "/home/me"}});
  EXPECT_EQ("https://huggingface.co", options.endpoint);
  EXPECT_EQ("Cactus-Compute/needle2", options.repo);
  EXPECT_EQ("/home/me/.cache/huggingface/hub", options.cache);
  EXPECT_EQ("", options.token);
  EXPECT_FALSE(options.offline);
}

TEST(HubOptions, TakeTheFirstCacheFolderThatIsNamed) {
  std::map<std::string, std::string> variables = {{"HOME", "/h"}};
  const auto next = [&](const char* name, const char* value) {
    variables[name] = value;
    return OptionsOf(variables).cache;
  };
  EXPECT_EQ("/xdg/huggingface/hub", next("XDG_CACHE_HOME", "/xdg"));
  EXPECT_EQ("/h/hf/hub", next("HF_HOME", "~/hf"));
  EXPECT_EQ("/old", next("HUGGINGFACE_HUB_CACHE", "/old"));
  EXPECT_EQ("/new", next("HF_HUB_CACHE", "/new"));
  EXPECT_EQ("/old", next("HF_HUB_CACHE", "")) << "an empty variable counts as unset";
}

TEST(HubOptions, ReadEndpointRepositoryTimeoutsAndProxies) {
  const HubOptions options = OptionsOf({{"HF_ENDPOINT", "https://mirror.org/hub//"},
                                        {"NEEDLE_HF_REPO", "me/mine"},
                                        {"HF_HUB_DOWNLOAD_TIMEOUT", "33"},
                                        {"HF_HUB_ETAG_TIMEOUT", "soon"},
                                        {"SSL_CERT_FILE", "/ca.pem"},
                                        {"HTTPS_PROXY", "p:1"},
                                        {"ALL_PROXY", "q:2"},
                                        {"NO_PROXY", "localhost"}});
  EXPECT_EQ("https://mirror.org/hub", options.endpoint);
  EXPECT_EQ("me/mine", options.repo);
  EXPECT_EQ(33, options.stall_timeout);
  EXPECT_EQ(10, options.connect_timeout);
  EXPECT_EQ("/ca.pem", options.ca_file);
  EXPECT_EQ("p:1", options.https_proxy);
  EXPECT_EQ("q:2", options.http_proxy);
  EXPECT_EQ("localhost", options.no_proxy);
}

TEST(HubOptions, AreOfflineForEverySpellingOfYes) {
  for (const char* yes : {"1", "ON", "on", "Yes", "true"})
    EXPECT_TRUE(OptionsOf({{"HF_HUB_OFFLINE", yes}}).offline) << yes;
  for (const char* no : {"", "0", "no", "2"})
    EXPECT_FALSE(OptionsOf({{"HF_HUB_OFFLINE", no}}).offline) << no;
}

TEST(HubOptions, TakeTheTokenFromTheVariableThenFromTheFile) {
  const ScratchFolder folder;
  ASSERT_TRUE(WriteFileAtomically(folder.File("token"), std::string_view("hf_file\n")).ok());
  ASSERT_TRUE(WriteFileAtomically(folder.File("other"), std::string_view("hf_other")).ok());
  std::map<std::string, std::string> variables = {{"HF_HOME", folder.path()}};
  EXPECT_EQ("hf_file", OptionsOf(variables).token);
  variables["HF_TOKEN_PATH"] = folder.File("other");
  EXPECT_EQ("hf_other", OptionsOf(variables).token);
  variables["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1";
  EXPECT_EQ("", OptionsOf(variables).token);
  variables["HF_TOKEN"] = " hf_variable\r\n";
  EXPECT_EQ("hf_variable", OptionsOf(variables).token);
}

constexpr const char* kCommit = "0123456789abcdef0123456789abcdef01234567";

TEST(Cache, RefusesNamesThatLeadElsewhere) {
  const HubFile good = {.repo = "Org/name.v2", .path = "a/b.pkl"};
  EXPECT_TRUE(CheckHubFile(good).ok());
  for (const char* repo : {"", "a/b/c", "../x", "a/..", "/a", "a/", "a b/c", "a/b?c", "a\\b/c"})
    EXPECT_FALSE(CheckHubFile({.repo = repo, .path = "f"}).ok()) << repo;
  for (const char* path :
       {"", "/etc/passwd", "../x", "a/../../x", "a//b", "a/", ".", "a\\b", "a\nb"})
    EXPECT_FALSE(CheckHubFile({.repo = "a/b", .path = path}).ok()) << path;
  for (const char* revision : {"", "..", "../../x", "/x", "a//b"})
    EXPECT_FALSE(CheckHubFile({.repo = "a/b", .revision = revision, .path = "f"}).ok()) << revision;
  EXPECT_TRUE(CheckHubFile({.repo = "a/b", .revision = "refs/pr/1", .path = "f"}).ok());
}

TEST(Cache, RefusesAnswersThatLeadElsewhere) {
  const HubFile file = {.repo = "a/b", .path = "f"};
  EXPECT_TRUE(CheckBlobName(file, {.commit = kCommit, .etag = "abc-123"}).ok());
  for (const char* etag : {"", "../x", "a/b", "..", ".hidden", "a b"})
    EXPECT_FALSE(CheckBlobName(file, {.commit = kCommit, .etag = etag}).ok()) << etag;
  for (const char* commit : {"", "main", "../../../../../../../../../../../../../x"})
    EXPECT_FALSE(CheckBlobName(file, {.commit = commit, .etag = "abc"}).ok()) << commit;
}

TEST(Cache, UsesTheHubsOwnPlaces) {
  const CachePlaces places =
      PlacesOf({.repo = "Org/name", .path = "a/b.pkl"}, {.commit = kCommit, .etag = "e"}, "/cache");
  EXPECT_EQ("/cache/models--Org--name/blobs/e", places.blob);
  EXPECT_EQ("/cache/models--Org--name/blobs/e.incomplete", places.incomplete);
  EXPECT_EQ("/cache/.locks/models--Org--name/e.lock", places.lock);
  EXPECT_EQ(StrCat("/cache/models--Org--name/snapshots/", kCommit, "/a/b.pkl"), places.pointer);
}

TEST(Cache, FindsWhatThePythonToolHasLeftThere) {
  const ScratchFolder folder;
  const std::string repo = folder.File("models--Org--name");
  const std::string snapshot = StrCat(repo, "/snapshots/", kCommit, "/a");
  ASSERT_TRUE(WriteFileAtomically(StrCat(repo, "/blobs/e"), std::string_view("bytes")).ok());
  ASSERT_TRUE(WriteFileAtomically(StrCat(repo, "/refs/main"), std::string_view(kCommit)).ok());
  std::filesystem::create_directories(snapshot);
  if (test::LinksWork())
    std::filesystem::create_symlink("../../../blobs/e", StrCat(snapshot, "/b.pkl"));
  else  // there that tool leaves the file itself
    std::filesystem::copy_file(StrCat(repo, "/blobs/e"), StrCat(snapshot, "/b.pkl"));

  HubOptions options;
  options.cache = folder.path();
  for (const std::string revision : {"main", kCommit}) {
    const auto found =
        FindInCache({.repo = "Org/name", .revision = revision, .path = "a/b.pkl"}, options);
    ASSERT_TRUE(found.ok()) << found.error().message();
    EXPECT_EQ("bytes", *ReadTextFile(*found));
  }
  for (const HubFile& missing : {HubFile{.repo = "Org/name", .path = "a/c.pkl"},
                                 HubFile{.repo = "Org/name", .revision = "v1", .path = "a/b.pkl"},
                                 HubFile{.repo = "Org/name", .path = "a"},
                                 HubFile{.repo = "Org/other", .path = "a/b.pkl"}}) {
    const auto found = FindInCache(missing, options);
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(Code::kNotFound, found.error().code());
  }
}

TEST(Cache, DoesNotFollowABranchThatNamesNoCommit) {
  const ScratchFolder folder;
  ASSERT_TRUE(WriteFileAtomically(folder.File("secret/f"), std::string_view("no")).ok());
  ASSERT_TRUE(
      WriteFileAtomically(folder.File("models--a--b/refs/main"), std::string_view("../../secret"))
          .ok());
  std::filesystem::create_directories(folder.File("models--a--b/snapshots"));
  HubOptions options;
  options.cache = folder.path();
  EXPECT_FALSE(FindInCache({.repo = "a/b", .path = "f"}, options).ok());
}

TEST(Cache, DoesNotFindALinkWhoseBlobIsGone) {
  if (!test::LinksWork()) GTEST_SKIP() << "no links on this system";
  const ScratchFolder folder;
  const std::string snapshot = folder.File(StrCat("models--a--b/snapshots/", kCommit));
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_symlink("../../blobs/gone", StrCat(snapshot, "/f"));
  HubOptions options;
  options.cache = folder.path();
  EXPECT_FALSE(FindInCache({.repo = "a/b", .revision = kCommit, .path = "f"}, options).ok());
}

TEST(Sha1, GivesTheDigestsOfTheStandardForAnySplit) {
  const auto digest = [](const std::string& text, size_t piece) {
    Sha1 sha1;
    for (size_t at = 0; at < text.size(); at += piece)
      sha1.Update(
          {reinterpret_cast<const uint8_t*>(text.data()) + at, std::min(piece, text.size() - at)});
    return sha1.HexDigest();
  };
  EXPECT_EQ("da39a3ee5e6b4b0d3255bfef95601890afd80709", digest("", 1));
  EXPECT_EQ("a9993e364706816aba3e25717850c26c9cd0d89d", digest("abc", 3));
  for (const size_t piece : {1, 7, 63, 64, 65, 119})
    EXPECT_EQ("ee971065aaa017e0632a8ca6c77bb3bf8b1dfc56", digest(std::string(119, 'a'), piece));
  EXPECT_EQ("34aa973cd4c4daa4f61eeb2bdbad27316534016f", digest(std::string(1000000, 'a'), 999));
}

TEST(Checksum, IsToldByTheLengthOfTheTag) {
  EXPECT_EQ(ChecksumKind::kSha256, KindOf(std::string(64, 'a')));
  EXPECT_EQ(ChecksumKind::kGitSha1, KindOf(std::string(40, '0')));
  for (const std::string& other :
       {std::string(), std::string(32, 'a'), std::string(64, 'g'), std::string("abc-1")})
    EXPECT_EQ(ChecksumKind::kNone, KindOf(other)) << other;
}

TEST(Checksum, EqualsGitsAndTheStandards) {
  const ScratchFolder folder;
  const std::string path = folder.File("f");
  ASSERT_TRUE(WriteFileAtomically(path, std::string_view("hello\n")).ok());
  // git hash-object; sha256sum
  EXPECT_EQ("ce013625030ba8dba906f756967f9e9ca394464a", *ChecksumOf(path, ChecksumKind::kGitSha1));
  EXPECT_EQ("5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
            *ChecksumOf(path, ChecksumKind::kSha256));
  EXPECT_FALSE(ChecksumOf(folder.File("none"), ChecksumKind::kSha256).ok());
}

TEST(Retry, ReadsSecondsAndDates) {
  constexpr int64_t kNow = 1445412420;  // Wed, 21 Oct 2015 07:27:00 GMT
  EXPECT_EQ(120, ParseRetryAfter("120", kNow));
  EXPECT_EQ(0, ParseRetryAfter("0", kNow));
  EXPECT_EQ(60, ParseRetryAfter("Wed, 21 Oct 2015 07:28:00 GMT", kNow));
  EXPECT_EQ(0, ParseRetryAfter("Wed, 21 Oct 2015 07:26:00 GMT", kNow));
  for (const char* bad : {"", "-1", "soon", "1.5", "Wed, 32 Oct 2015 07:28:00 GMT",
                          "Wed, 21 Oct 2015 07:28:00 CET", "99999999999999999999"})
    EXPECT_EQ(std::nullopt, ParseRetryAfter(bad, kNow)) << bad;
}

TEST(Retry, DoublesTheWaitUpToTheLongest) {
  HubOptions options;
  options.first_backoff = 1;
  options.max_backoff = 6;
  EXPECT_EQ(1, Backoff(options, 1));
  EXPECT_EQ(2, Backoff(options, 2));
  EXPECT_EQ(4, Backoff(options, 3));
  EXPECT_EQ(6, Backoff(options, 4));
  EXPECT_EQ(6, Backoff(options, 1000));
}

TEST(Failure, KeepsSignaturesAndControlCharactersOutOfItsSentence) {
  const Url url = MustParse("https://cdn.org/f?Signature=secret");
  const HttpReply reply = {.status = 404,
                           .headers = {{"x-error-message", "no\x1b[31m such\nfile"}}};
  const Failure failure = FailureOfStatus({.repo = "a/b", .path = "f"}, {}, url, true, reply);
  EXPECT_EQ(std::string::npos, failure.error.message().find("secret"));
  EXPECT_EQ(std::string::npos, failure.error.message().find('\x1b'));
  EXPECT_EQ(std::string::npos, failure.error.message().find('\n'));
}

TEST(FileLock, IsHeldByOneAtATimeAndGivenBack) {
  const ScratchFolder folder;
  const std::string path = folder.File("x.lock");
  auto first = FileLock::TryAcquire(path);
  ASSERT_TRUE(first.ok() && first->has_value());
  std::thread([&] {
    const auto second = FileLock::TryAcquire(path);
    EXPECT_TRUE(second.ok());
    EXPECT_FALSE(second->has_value());
  }).join();
  first->reset();
  const auto third = FileLock::TryAcquire(path);
  EXPECT_TRUE(third.ok() && third->has_value());
}

TEST(FileLock, OnARemovedFileDoesNotKeepOthersOut) {
#ifdef _WIN32
  GTEST_SKIP() << "a file that is removed while it is open keeps its name on this system";
#endif
  const ScratchFolder folder;
  const std::string path = folder.File("x.lock");
  const auto first = FileLock::TryAcquire(path);
  ASSERT_TRUE(first.ok() && first->has_value());
  ASSERT_TRUE(RemoveFile(path).ok());
  const auto second = FileLock::TryAcquire(path);
  EXPECT_TRUE(second.ok() && second->has_value());
}

TEST(Symlink, ReplacesWhatStoodThere) {
  if (!test::LinksWork()) GTEST_SKIP() << "no links on this system";
  const ScratchFolder folder;
  ASSERT_TRUE(WriteFileAtomically(folder.File("a"), std::string_view("A")).ok());
  ASSERT_TRUE(WriteFileAtomically(folder.File("b"), std::string_view("B")).ok());
  for (const char* target : {"a", "b"}) {
    ASSERT_TRUE(ReplaceWithSymlink(target, folder.File("link")).ok());
    EXPECT_EQ(target, std::filesystem::read_symlink(folder.File("link")).string());
  }
  EXPECT_EQ("B", *ReadTextFile(folder.File("link")));
  EXPECT_EQ("A", *ReadTextFile(folder.File("a")));
}

TEST(Symlink, ThatCannotBeMadeIsAnErrorAndLeavesNothing) {
  const ScratchFolder folder;
  const std::string path = folder.File("no-such-folder/link");
  const Status made = ReplaceWithSymlink("target", path);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(Code::kIo, made.error().code());
  EXPECT_NE(std::string::npos, made.error().message().find(path));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace needle
