#include "base/process.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

#include "base/library.h"

namespace needle {
namespace {

#ifdef _WIN32

ChildOutcome Shell(const std::string& script, const ChildOptions& options = {}) {
  const Result<ChildOutcome> outcome = RunChild({"cmd.exe", "/c", script}, options);
  if (!outcome.ok()) throw std::runtime_error(outcome.error().message());
  return *outcome;
}

TEST(Process, GivesTheChildsStatusAndBothOutputs) {
  const ChildOutcome child = Shell("echo out& echo err>&2& exit 3");
  EXPECT_EQ(child.exit_code, 3);
  EXPECT_EQ(child.out, "out\r\n");
  EXPECT_EQ(child.err, "err\r\n");
  EXPECT_EQ(Describe(child), "exited with status 3");
}

TEST(Process, StopsAChildThatDoesNotEndAndWhatItStarted) {
  ChildOptions options;
  options.timeout_seconds = 0.5;
  const auto start = std::chrono::steady_clock::now();
  const ChildOutcome child = Shell("ping -n 1000 127.0.0.1", options);
  EXPECT_TRUE(child.timed_out);
  EXPECT_EQ(Describe(child), "did not answer and was stopped");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(500));
}

TEST(Process, AddsToTheEnvironmentAndReplacesInIt) {
  SetEnv("NEEDLE_TEST_OLD", "old");
  ChildOptions options;
  options.environment = {{"Needle_Test_Old", "new"}, {"NEEDLE_TEST_MORE", "a b=c"}};
  EXPECT_EQ(Shell("echo %NEEDLE_TEST_OLD% %NEEDLE_TEST_MORE%", options).out, "new a b=c\r\n");
  EXPECT_EQ(Shell("echo %NEEDLE_TEST_OLD%").out, "old\r\n");
}

#else

ChildOutcome Shell(const std::string& script, const ChildOptions& options = {}) {
  const Result<ChildOutcome> outcome = RunChild({"/bin/sh", "-c", script}, options);
  if (!outcome.ok()) throw std::runtime_error(outcome.error().message());
  return *outcome;
}

TEST(Process, GivesTheChildsStatusAndBothOutputs) {
  const ChildOutcome child = Shell("echo out; echo err >&2; exit 3");
  EXPECT_EQ(child.exit_code, 3);
  EXPECT_EQ(child.out, "out\n");
  EXPECT_EQ(child.err, "err\n");
  EXPECT_EQ(Describe(child), "exited with status 3");
}

TEST(Process, TellsWhichSignalEndedTheChild) {
  const ChildOutcome child = Shell("kill -ABRT $$");
  EXPECT_FALSE(child.exit_code.has_value());
  EXPECT_EQ(Describe(child).rfind("was ended by signal 6 (", 0), 0u) << Describe(child);
}

TEST(Process, StopsAChildThatDoesNotEndAndOneThatClosedItsOutputs) {
  ChildOptions options;
  options.timeout_seconds = 0.2;
  const auto start = std::chrono::steady_clock::now();
  for (const char* script : {"exec sleep 1000", "exec >&- 2>&-; exec sleep 1000"}) {
    const ChildOutcome child = Shell(script, options);
    EXPECT_TRUE(child.timed_out) << script;
    EXPECT_EQ(Describe(child), "did not answer and was stopped");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(500));
}

TEST(Process, AddsToTheEnvironmentAndReplacesInIt) {
  SetEnv("NEEDLE_TEST_OLD", "old");
  ChildOptions options;
  options.environment = {{"NEEDLE_TEST_OLD", "new"}, {"NEEDLE_TEST_MORE", "a b=c"}};
  EXPECT_EQ(Shell("echo $NEEDLE_TEST_OLD $NEEDLE_TEST_MORE", options).out, "new a b=c\n");
  EXPECT_EQ(Shell("echo $NEEDLE_TEST_OLD").out, "old\n");
}

TEST(Process, KeepsTheFirstMegabyteOfALongOutput) {
  const ChildOutcome child = Shell("head -c 3000000 /dev/zero; echo done >&2");
  EXPECT_EQ(child.exit_code, 0);
  EXPECT_EQ(child.out.size(), size_t{1} << 20);
  EXPECT_EQ(child.err, "done\n");
}

#endif

TEST(Process, SaysWhenThereIsNoSuchProgram) {
  const Result<ChildOutcome> outcome = RunChild({"/nowhere/program"}, {});
  ASSERT_FALSE(outcome.ok());
  EXPECT_EQ(outcome.error().code(), Code::kNotFound);
  EXPECT_NE(outcome.error().message().find("/nowhere/program"), std::string::npos);
}

TEST(Process, FindsItsOwnProgram) {
  const Result<std::string> path = ProgramPath();
  ASSERT_TRUE(path.ok());
  EXPECT_NE(path->find("base_test"), std::string::npos) << *path;
}

TEST(Process, TheArgumentsOfMainStayAsTheyAre) {
  std::string program = "program", word = "two words";
  char* argv[] = {program.data(), word.data(), nullptr};
#ifdef _WIN32  // asked of the system anew
  EXPECT_NE(ProgramArguments(2, argv).at(0).find("base_test"), std::string::npos);
#else
  EXPECT_EQ(ProgramArguments(2, argv), (std::vector<std::string>{"program", "two words"}));
#endif
}

#ifdef _WIN32
TEST(Library, OpensALibraryOfTheSystemByItsName) {
  const Result<Library> library = Library::Open("kernel32.dll");
  ASSERT_TRUE(library.ok()) << library.error().message();
  EXPECT_NE(library->Symbol("GetTickCount"), nullptr);
  EXPECT_EQ(library->Symbol("NoSuchFunction"), nullptr);
}
#endif

TEST(Library, TellsAMissingFileFromOneThatIsNoLibrary) {
  const Result<Library> missing = Library::Open("/nowhere/lib.so");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  const Result<Library> text = Library::Open(NEEDLE_SOURCE_DIR "/CMakeLists.txt");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace needle
