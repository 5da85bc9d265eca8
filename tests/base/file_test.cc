#include "base/file.h"

#include <gtest/gtest.h>
#ifdef _WIN32
#include <process.h>
#else
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/env.h"
#include "base/link.h"
#include "base/native_path.h"
#include "base/pattern.h"
#include "base/process.h"
#include "base/str_cat.h"
#include "support/scratch.h"

namespace needle {
namespace {

namespace fs = std::filesystem;

std::string Slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void Spill(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

using test::Pattern;

std::vector<std::string> NamesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

void ExpectError(const Status& status, Code code, const std::string& piece) {
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code(), code);
  EXPECT_NE(status.error().message().find(piece), std::string::npos) << status.error().message();
}

template <class T>
Status StatusOf(const Result<T>& result) {
  return result.ok() ? Status() : Status(result.error());
}

class File : public testing::Test {
 protected:
  std::string At(const std::string& name) const { return scratch_.File(name); }
  test::ScratchFolder scratch_;
};

TEST_F(File, ReadsTheWholeOfFilesOfManySizes) {
  for (const size_t size : {0, 1, 4095, 4096, 4097, 65536, 1000003}) {
    const std::string text = Pattern(size);
    Spill(At("f"), text);
    EXPECT_EQ(*ReadTextFile(At("f")), text);
    const auto bytes = ReadFile(At("f"));
    EXPECT_EQ(std::string(bytes->begin(), bytes->end()), text);
  }
}

#ifndef _WIN32
TEST_F(File, ReadsAPipeToItsEnd) {
  ASSERT_EQ(mkfifo(At("pipe").c_str(), 0600), 0);
  const std::string text = Pattern(300000);
  std::thread writer([&] { Spill(At("pipe"), text); });
  EXPECT_EQ(*ReadTextFile(At("pipe")), text);
  writer.join();
}
#endif

TEST_F(File, SaysWhatCannotBeRead) {
  ExpectError(StatusOf(ReadFile(At("absent"))), Code::kNotFound, At("absent"));
  ExpectError(StatusOf(ReadFile(At("absent/x"))), Code::kNotFound, "cannot be opened");
  ExpectError(StatusOf(ReadFile(scratch_.path())), Code::kInvalidArgument, "this is a folder");
  ExpectError(StatusOf(MappedFile::Open(At("absent"))), Code::kNotFound, At("absent"));
  ExpectError(StatusOf(MappedFile::Open(scratch_.path())), Code::kInvalidArgument,
              "this is a folder");
#ifndef _WIN32
  ExpectError(StatusOf(MappedFile::Open("/dev/null")), Code::kInvalidArgument,
              "not a regular file");
#endif
}

TEST_F(File, MapsFilesAndMovesMappings) {
  const std::string text = Pattern(100001);
  Spill(At("f"), text);
  Spill(At("empty"), "");
  auto mapped = MappedFile::Open(At("f"));
  auto empty = MappedFile::Open(At("empty"));
  EXPECT_EQ(empty->bytes().size(), 0u);
  MappedFile moved = *std::move(mapped);
  EXPECT_EQ(std::string(moved.bytes().begin(), moved.bytes().end()), text);
  moved = *std::move(empty);
  EXPECT_EQ(moved.bytes().size(), 0u);
}

#ifndef _WIN32  // there a file that is mapped cannot be replaced
TEST_F(File, AMappingKeepsTheOldBytesWhenTheFileIsReplaced) {
  Spill(At("f"), "old");
  const auto mapped = MappedFile::Open(At("f"));
  ASSERT_TRUE(WriteFileAtomically(At("f"), std::string_view("new and longer")).ok());
  EXPECT_EQ(std::string(mapped->bytes().begin(), mapped->bytes().end()), "old");
}
#endif

TEST_F(File, WritesFilesOfManySizesAndLeavesNothingBeside) {
  for (const size_t size : {0, 1, 65535, 65536, 65537, 131072, 300001}) {
    const std::string text = Pattern(size);
    ASSERT_TRUE(WriteFileAtomically(At("f"), std::string_view(text)).ok());
    EXPECT_EQ(Slurp(At("f")), text);
  }
  EXPECT_EQ(NamesIn(scratch_.path()), std::vector<std::string>{"f"});
}

TEST_F(File, MakesMissingParentFolders) {
  ASSERT_TRUE(WriteFileAtomically(At("a/b/c/f"), std::string_view("x")).ok());
  EXPECT_EQ(Slurp(At("a/b/c/f")), "x");
  EXPECT_TRUE(MakeDirectories(At("a/b/c")).ok());
  EXPECT_TRUE(MakeDirectories(At("d/e/")).ok());
  EXPECT_TRUE(IsDirectory(At("d/e")));
  ExpectError(MakeDirectories(At("a/b/c/f")), Code::kIo, "cannot be made a folder");
  ExpectError(WriteFileAtomically(At("a/b/c/f/g"), std::string_view("x")), Code::kIo, "c/f");
}

TEST_F(File, AppendsInPiecesAndShowsNothingBeforeTheCommit) {
  Spill(At("f"), "old");
  auto file = AtomicFile::Open(At("f"));
  ASSERT_TRUE(file.ok());
  std::string want;
  for (size_t i = 0; i < 500; ++i) {
    const std::string piece = Pattern(i);
    ASSERT_TRUE(file->Append(piece).ok());
    want += piece;
  }
  EXPECT_EQ(Slurp(At("f")), "old");
  AtomicFile moved = *std::move(file);
  ASSERT_TRUE(moved.Commit().ok());
  EXPECT_EQ(Slurp(At("f")), want);
}

TEST_F(File, WithoutACommitTheOldFileStaysAndTheTemporaryGoes) {
  Spill(At("f"), "old");
  {
    auto file = AtomicFile::Open(At("f"));
    ASSERT_TRUE(file->Append(Pattern(200000)).ok());
    EXPECT_EQ(NamesIn(scratch_.path()).size(), 2u);
  }
  EXPECT_EQ(NamesIn(scratch_.path()), std::vector<std::string>{"f"});
  EXPECT_EQ(Slurp(At("f")), "old");
}

TEST_F(File, TakesNamesOutsideAscii) {
  const std::string folder = At("\xC3\xA9\xE4\xB8\xAD"),
                    path = JoinPath(folder, "\xF0\x9F\x8C\xB1.txt");
  ASSERT_TRUE(WriteFileAtomically(path, std::string_view("old")).ok());
  ASSERT_TRUE(WriteFileAtomically(path, std::string_view("new")).ok());
  EXPECT_EQ(*ReadTextFile(path), "new");
  EXPECT_TRUE(fs::exists(NativePath(path)));
  const auto names = fs::directory_iterator(NativePath(folder));
  EXPECT_EQ(Utf8Path(names->path().filename()), BaseName(path));
  ASSERT_TRUE(RenameFile(path, path + ".moved").ok());
  std::FILE* const stream = OpenStream(path + ".moved", "rb");
  ASSERT_NE(stream, nullptr);
  EXPECT_EQ(std::fgetc(stream), 'n');
  std::fclose(stream);
  EXPECT_TRUE(RemoveFile(path + ".moved").ok());
}

TEST_F(File, AFileLockExcludesASecondOneUntilItGoes) {
  auto first = FileLock::TryAcquire(At("lock"));
  ASSERT_TRUE(first.ok() && first->has_value());
  const auto second = FileLock::TryAcquire(At("lock"));
  ASSERT_TRUE(second.ok());
  EXPECT_FALSE(second->has_value());
  first->reset();
  const auto third = FileLock::TryAcquire(At("lock"));
  EXPECT_TRUE(third.ok() && third->has_value());
}

TEST_F(File, RefusesToReplaceFoldersAndDevices) {
  fs::create_directory(At("folder"));
  ExpectError(WriteFileAtomically(At("folder"), std::string_view("x")), Code::kInvalidArgument,
              "a folder");
#ifndef _WIN32
  ExpectError(WriteFileAtomically("/dev/null", std::string_view("x")), Code::kInvalidArgument,
              "a device");
#endif
}

TEST_F(File, TellsWhetherItCouldBeWrittenAndLeavesNothingBehind) {
  EXPECT_TRUE(CheckCanWrite(At("a/b/c.pkl")).ok());
  EXPECT_TRUE(CheckCanWrite(At("new")).ok());
  Spill(At("old"), "old");
  EXPECT_TRUE(CheckCanWrite(At("old")).ok());
  EXPECT_EQ(Slurp(At("old")), "old");
  fs::create_directory(At("folder"));
  ExpectError(CheckCanWrite(At("folder")), Code::kInvalidArgument, "a folder");
  ExpectError(CheckCanWrite(At("none/")), Code::kInvalidArgument, "a folder");
  ExpectError(CheckCanWrite(At("old/x")), Code::kInvalidArgument, "old");
  ExpectError(CheckCanWrite(At("old/x/y")), Code::kInvalidArgument, "old");
#ifdef __linux__
  ExpectError(CheckCanWrite("/proc/no-such-folder/a.pkl"), Code::kInvalidArgument, "/proc");
#endif
  EXPECT_EQ(NamesIn(At(".")), (std::vector<std::string>{"folder", "old"}));
}

#ifndef _WIN32  // there links need a right that not every user has
TEST_F(File, ReplacesASymbolicLinkAndLeavesItsTarget) {
  Spill(At("target"), "kept");
  fs::create_symlink("target", At("link"));
  ASSERT_TRUE(WriteFileAtomically(At("link"), std::string_view("new")).ok());
  EXPECT_EQ(Slurp(At("link")), "new");
  EXPECT_EQ(Slurp(At("target")), "kept");
}
#endif

TEST_F(File, WritersSideBySideDoNotMix) {
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w)
    writers.emplace_back([&, w] {
      const std::string text(200000, static_cast<char>('a' + w));
      for (int i = 0; i < 5; ++i)
        EXPECT_TRUE(WriteFileAtomically(At("f"), std::string_view(text)).ok());
    });
  for (auto& writer : writers) writer.join();
  const std::string text = Slurp(At("f"));
  EXPECT_EQ(text, std::string(200000, text.at(0)));
  EXPECT_EQ(NamesIn(scratch_.path()), std::vector<std::string>{"f"});
}

// A process that has ended, and one that lives.
#ifdef _WIN32
uint32_t DeadProcess() { return 0xFFFFFFF0; }  // ids are not that high
int LivingProcess() { return _getpid(); }
#else
pid_t DeadProcess() {
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  waitpid(dead, nullptr, 0);
  return dead;
}
pid_t LivingProcess() { return getppid(); }
#endif

TEST_F(File, RemovesTemporariesOfDeadProcessesOnly) {
  const auto dead = DeadProcess();
  Spill(At(StrCat(".f.needle-", dead, "-0.tmp")), "left behind");
  Spill(At(StrCat(".f.needle-", LivingProcess(), "-999999.tmp")), "of a process that lives");
  Spill(At(StrCat(".g.needle-", dead, "-0.tmp")), "of another file");
  Spill(At(StrCat(".f.needle-", dead, "-0.txt")), "not of this kind");
  Spill(At(".f.needle-x-0.tmp"), "not of this kind either");
  ASSERT_TRUE(WriteFileAtomically(At("f"), std::string_view("x")).ok());
  EXPECT_FALSE(fs::exists(At(StrCat(".f.needle-", dead, "-0.tmp"))));
  EXPECT_EQ(NamesIn(scratch_.path()).size(), 5u);
}

TEST_F(File, KnowsFilesFromFolders) {
  Spill(At("f"), "x");
  EXPECT_TRUE(FileExists(At("f")));
  EXPECT_FALSE(FileExists(At("g")));
  EXPECT_FALSE(FileExists(scratch_.path()));
  EXPECT_TRUE(IsDirectory(scratch_.path()));
  EXPECT_FALSE(IsDirectory(At("f")));
  EXPECT_TRUE(RemoveFile(At("f")).ok());
  EXPECT_TRUE(RemoveFile(At("f")).ok());
  EXPECT_FALSE(FileExists(At("f")));
  fs::create_directory(At("d"));
  EXPECT_FALSE(RemoveFile(At("d")).ok());
}

TEST(Path, TakesPathsApart) {
  struct Case {
    const char *path, *dir, *base, *stem;
  };
  for (const Case& c :
       {Case{"a/b/c.pkl", "a/b", "c.pkl", "c"}, Case{"c.tar.gz", ".", "c.tar.gz", "c.tar"},
        Case{"/c", "/", "c", "c"}, Case{"//c", "/", "c", "c"}, Case{"a//b", "a", "b", "b"},
        Case{"a/.c", "a", ".c", ".c"}, Case{"", ".", "", ""}, Case{"a/", "a", "", ""},
        Case{"/", "/", "", ""}}) {
    EXPECT_EQ(DirName(c.path), c.dir) << c.path;
    EXPECT_EQ(BaseName(c.path), c.base) << c.path;
    EXPECT_EQ(Stem(c.path), c.stem) << c.path;
  }
}

TEST(Path, JoinsPaths) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(JoinPath("a", "/b"), "/b");
  EXPECT_EQ(JoinPath("/", "b"), "/b");
}

TEST(Env, TellsUnsetFromEmpty) {
  EXPECT_EQ(GetEnv("NEEDLE_TEST_VARIABLE"), std::nullopt);
  SetEnv("NEEDLE_TEST_VARIABLE", "");
  EXPECT_EQ(GetEnv("NEEDLE_TEST_VARIABLE"), "");
  EXPECT_EQ(GetEnvOr("NEEDLE_TEST_VARIABLE", "x"), "x");
  SetEnv("NEEDLE_TEST_VARIABLE", "v");
  EXPECT_EQ(GetEnvOr("NEEDLE_TEST_VARIABLE", "x"), "v");
}

TEST(Env, KeepsLongValuesAndCharactersOutsideAscii) {
  const std::string value = "\xE4\xB8\xAD " + std::string(1000, 'x');
  SetEnv("NEEDLE_TEST_LONG", value);
  EXPECT_EQ(GetEnv("NEEDLE_TEST_LONG"), value);
}

// ---- crashes: write_file_child writes Pattern(kSize) to a file, with a fault armed ----

constexpr size_t kSize = 5 * 65536 + 100;  // six chunks

class FileFault : public File {
 protected:
  // Runs the child with NEEDLE_FAULT=fault.
  ChildOutcome WriteWithFault(const std::string& fault) {
    ChildOptions options;
    options.environment = {{"NEEDLE_FAULT", fault}};
    const Result<ChildOutcome> child = RunChild({NEEDLE_WRITE_FILE_CHILD, At("f")}, options);
    if (!child.ok()) throw std::runtime_error(child.error().message());
    return *child;
  }
  void ExpectKilled(const std::string& fault) {
    const ChildOutcome child = WriteWithFault(fault);
#ifdef _WIN32
    EXPECT_EQ(child.exit_code, 137) << fault << ": " << Describe(child);
#else
    EXPECT_EQ(child.signal, SIGKILL) << fault << ": " << Describe(child);
#endif
  }
};

TEST_F(FileFault, WithoutAFaultTheChildWritesTheFile) {
  EXPECT_EQ(WriteWithFault("").exit_code, 0);
  EXPECT_EQ(Slurp(At("f")), Pattern(kSize));
}

TEST_F(FileFault, AKillAtAnyPointLeavesTheOldFileOrTheNewOne) {
  for (const std::string action : {"kill", "short"}) {
    std::vector<std::string> points = {"open:1", "sync:1", "rename:1", "folder:1"};
    for (int i = 1; i <= 6; ++i) points.push_back(StrCat("write:", i));
    for (const std::string& point : points) {
      Spill(At("f"), "old");
      ExpectKilled(point + ":" + action);
      EXPECT_EQ(Slurp(At("f")), point == "folder:1" ? Pattern(kSize) : "old") << point;
    }
  }
  // What the dead left behind goes with the next write.
  EXPECT_GT(NamesIn(scratch_.path()).size(), 1u);
  EXPECT_EQ(WriteWithFault("write:99:kill").exit_code, 0);
  EXPECT_EQ(NamesIn(scratch_.path()), std::vector<std::string>{"f"});
  EXPECT_EQ(Slurp(At("f")), Pattern(kSize));
}

TEST_F(FileFault, AShortWriteLeavesHalfAChunkInTheTemporary) {
  ExpectKilled("write:2:short");
  const auto names = NamesIn(scratch_.path());
  ASSERT_EQ(names.size(), 1u);
  EXPECT_EQ(fs::file_size(At(names[0])), 65536u + 32768u);
}

TEST_F(FileFault, AFullDiskIsAnErrorThatLeavesTheOldFileAndNoTemporary) {
  for (const char* point : {"open:1", "write:1", "write:6", "sync:1", "rename:1"}) {
    Spill(At("f"), "old");
    const ChildOutcome child = WriteWithFault(std::string(point) + ":error");
    EXPECT_EQ(child.exit_code, 28) << point << ": " << Describe(child);
    EXPECT_EQ(NamesIn(scratch_.path()), std::vector<std::string>{"f"});
    EXPECT_EQ(Slurp(At("f")), "old");
  }
}

}  // namespace
}  // namespace needle
