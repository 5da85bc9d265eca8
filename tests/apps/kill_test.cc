// A process that is killed at any time leaves each output file absent, as it was, or whole.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "apps/program.h"

namespace needle::test {
namespace {

constexpr const char* kOld = "what stood here before";

/// A command that writes one file, and the bytes that it writes when nothing happens.
struct Writer {
  Arguments arguments;
  std::string output;
  std::string whole;
  double seconds = 0;
};

class Kills : public testing::Test {
 protected:
  void SetUp() override {
    AddWriter({"build", "base.pkl", "--out", "m.cact"}, "m.cact");
    AddWriter(Workplace::Finetune({"--epochs", "1", "--lora-rank", "64"}), "a.pkl");
    for (const Writer& w : writers_) ASSERT_FALSE(w.whole.empty());
  }

  void AddWriter(const Arguments& arguments, const std::string& output) {
    const auto start = std::chrono::steady_clock::now();
    const Finished f = work_.Needle(arguments);
    ASSERT_EQ(f.status, 0) << f.err;
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    writers_.push_back({arguments, output, Contents(work_.File(output)), seconds});
  }

  /// Puts an old file in place, or none.
  void Prepare(const Writer& w, bool old) {
    std::filesystem::remove(work_.File(w.output));
    if (old) Write(work_.File(w.output), kOld);
  }

  void ExpectUnbroken(const Writer& w, bool old, const std::string& what) {
    const std::string path = work_.File(w.output);
    if (!Exists(path)) {
      EXPECT_FALSE(old) << what << ": the old file is gone";
      return;
    }
    const std::string now = Contents(path);
    EXPECT_TRUE(now == w.whole || (old && now == kOld)) << what << ": " << now.size() << " bytes";
  }

  std::set<std::string> Names() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(work_.folder()))
      names.insert(entry.path().filename().string());
    return names;
  }

  Workplace work_;
  std::vector<Writer> writers_;
};

TEST_F(Kills, InsideAWriteLeaveTheOldFileOrTheWholeNewOne) {
  const std::set<std::string> names = Names();
  int killed = 0;
  for (const Writer& w : writers_)
    for (const char* point :
         {"open:1", "write:1", "write:2", "write:3", "sync:1", "rename:1", "folder:1"})
      for (const char* action : {":kill", ":short"})
        for (const bool old : {false, true}) {
          const std::string fault = std::string(point) + action;
          Prepare(w, old);
          const Finished f = work_.Needle(w.arguments, {{"NEEDLE_FAULT", fault}});
          killed += f.status == kKilled;
          ExpectUnbroken(w, old, w.arguments.front() + " at " + fault);
        }
  EXPECT_GE(killed, 20) << "too few of the points were inside a write";
  for (const Writer& w : writers_) {  // what dead processes left is cleared by the next write
    ASSERT_EQ(work_.Needle(w.arguments).status, 0);
    EXPECT_EQ(Contents(work_.File(w.output)), w.whole);
  }
  EXPECT_EQ(Names(), names);
}

TEST_F(Kills, AFullDiskLeavesTheOldFileAndExitsWith1) {
  for (const Writer& w : writers_)
    for (const char* fault : {"open:1:error", "write:1:error", "sync:1:error", "rename:1:error"}) {
      Prepare(w, true);
      const Finished f = work_.Needle(w.arguments, {{"NEEDLE_FAULT", fault}});
      EXPECT_EQ(f.status, 1) << fault << f.err;
      EXPECT_EQ(Contents(work_.File(w.output)), kOld) << fault;
    }
}

TEST_F(Kills, AtRandomTimesLeaveTheOldFileOrTheWholeNewOne) {
  std::mt19937 random(20260101);
  int killed = 0;
  for (int i = 0; i < 30; ++i) {
    const Writer& w = writers_[static_cast<size_t>(i) % writers_.size()];
    const bool old = i % 4 < 2;
    Prepare(w, old);
    const double delay = std::uniform_real_distribution<double>(0, 1.1 * w.seconds)(random);
    Running run(work_.folder(), w.arguments);
    std::this_thread::sleep_for(std::chrono::duration<double>(delay));
    run.Kill();
    killed += run.Wait().status == kKilled;
    ExpectUnbroken(w, old, w.arguments.front() + " after " + std::to_string(delay) + " s");
  }
  EXPECT_GE(killed, 10) << "most runs ended before they were killed";
}

}  // namespace
}  // namespace needle::test
