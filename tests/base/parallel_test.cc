#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>
#include <vector>

#include "base/cgroup.h"
#include "support/scratch.h"

namespace needle {
namespace {

TEST(ThreadPool, CallsEachTaskOnceWithAValidWorker) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    for (const size_t tasks : {0, 1, 2, 7, 1000}) {
      std::vector<int> calls(tasks, 0);  // plain ints: each is written by one task
      std::atomic<int> bad_workers{0};
      pool.Run(tasks, [&](size_t task, int worker) {
        ++calls[task];
        if (worker < 0 || worker >= threads) ++bad_workers;
      });
      EXPECT_EQ(calls, std::vector<int>(tasks, 1));
      EXPECT_EQ(bad_workers, 0);
    }
  }
}

TEST(ThreadPool, NoTwoTasksShareAWorkerAtATime) {
  ThreadPool pool(4);
  std::vector<long> scratch(4, 0);  // unguarded: the sanitizer would see two tasks here
  for (int run = 0; run < 200; ++run)
    pool.Run(64, [&](size_t, int worker) { ++scratch[static_cast<size_t>(worker)]; });
  EXPECT_EQ(std::accumulate(scratch.begin(), scratch.end(), 0L), 200 * 64);
}

// Long pauses put the workers to sleep, short ones keep them spinning, none catch them leaving.
TEST(ThreadPool, ManyRunsWithAndWithoutPausesLoseNothing) {
  ThreadPool pool(3);
  std::vector<uint64_t> sums(5, 0);
  uint64_t want = 0;
  for (uint64_t run = 0; run < 3000; ++run) {
    pool.Run(sums.size(), [&](size_t task, int) { sums[task] += run; });
    want += run;
    if (run % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(run % 300));
  }
  EXPECT_EQ(sums, std::vector<uint64_t>(5, want));
}

TEST(ThreadPool, WorkersHelpWithLongTasks) {
  ThreadPool pool(2);
  std::atomic<int> arrived{0};
  std::atomic<bool> met{true};
  // Two tasks that wait for each other can only end on two threads.
  for (int run = 0; run < 20; ++run) {
    arrived = 0;
    pool.Run(2, [&](size_t, int) {
      ++arrived;
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
      while (arrived < 2 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
      if (arrived < 2) met = false;
    });
  }
  EXPECT_TRUE(met);
}

TEST(ThreadPool, OneTaskRunsOnTheCaller) {
  ThreadPool pool(2);
  const auto caller = std::this_thread::get_id();
  pool.Run(1, [&](size_t, int worker) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(worker, 0);
  });
}

TEST(ThreadPool, DifferentThreadsMayCallOneAfterTheOther) {
  ThreadPool pool(2);
  std::vector<int> calls(10, 0);
  for (int i = 0; i < 5; ++i)
    std::thread([&] { pool.Run(10, [&](size_t task, int) { ++calls[task]; }); }).join();
  EXPECT_EQ(calls, std::vector<int>(10, 5));
}

TEST(ThreadPool, PoolsComeAndGo) {
  for (int i = 0; i < 100; ++i) {
    ThreadPool pool(3);
    if (i % 2) pool.Run(4, [](size_t, int) {});
  }
  EXPECT_GE(ThreadPool(0).threads(), 1);
}

TEST(AvailableThreads, IsAtLeastOneAndAtMostTheMachine) {
  EXPECT_GE(AvailableThreads(), 1);
  EXPECT_LE(AvailableThreads(), static_cast<int>(std::thread::hardware_concurrency()));
}

// Lays out a control-group file system in a scratch folder.
class Cgroup : public testing::Test {
 protected:
  void Put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = std::filesystem::path(scratch_.path()) / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::optional<double> Processors() {
    return CgroupProcessors(scratch_.path() + "/membership", scratch_.path());
  }
  test::ScratchFolder scratch_;
};

TEST_F(Cgroup, VersionTwoTakesTheSmallestQuotaUpToTheRoot) {
  Put("membership", "0::/a/b\n");
  EXPECT_EQ(Processors(), std::nullopt);
  Put("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(Processors(), std::nullopt);
  Put("a/cpu.max", "150000 100000\n");
  EXPECT_EQ(Processors(), 1.5);
  Put("a/b/cpu.max", "400000 100000\n");
  EXPECT_EQ(Processors(), 1.5);
  Put("cpu.max", "50000 100000\n");
  EXPECT_EQ(Processors(), 0.5);
}

#ifdef __linux__  // groups of processes are Linux's
TEST_F(Cgroup, VersionOneReadsTheCpuController) {
  Put("membership", "12:cpuset:/x\n4:cpu,cpuacct:/docker/1\n0::/\n");
  Put("cpu/docker/1/cpu.cfs_quota_us", "-1\n");
  Put("cpu/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Processors(), std::nullopt);
  Put("cpu/cpu.cfs_quota_us", "300000\n");  // a container sees its own group as the root
  Put("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Processors(), 3.0);
  Put("cpu,cpuacct/docker/1/cpu.cfs_quota_us", "200000\n");
  Put("cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Processors(), 2.0);
}
#endif

TEST_F(Cgroup, OddFilesAreNoQuota) {
  EXPECT_EQ(Processors(), std::nullopt);
  Put("membership", "nonsense\n::\n0::\n0::/a\n");
  Put("a/cpu.max", "100000 0\n");
  EXPECT_EQ(Processors(), std::nullopt);
  Put("a/cpu.max", "\n");
  EXPECT_EQ(Processors(), std::nullopt);
}

}  // namespace
}  // namespace needle
