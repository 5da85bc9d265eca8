#include "base/profile.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/parallel.h"

namespace needle {
namespace {

const Profile::Row* Find(const std::vector<Profile::Row>& rows, const std::string& phase,
                         const std::string& operation) {
  for (const Profile::Row& row : rows)
    if (row.phase == phase && row.operation == operation) return &row;
  return nullptr;
}

TEST(Profile, NothingIsRecordedWhileNoneIsAlive) {
  EXPECT_FALSE(Profile::Active());
  { const ProfileTask task("before"); }
  const Profile profile;
  EXPECT_TRUE(Profile::Active());
  EXPECT_TRUE(profile.Rows().empty());
}

TEST(Profile, OperationsAreSummedInTheirPhaseOverAllThreads) {
  ThreadPool pool(3);
  const Profile profile;
  std::atomic<uint64_t> sink{0};
  pool.Run("phase", 30, [&](size_t task, int) {
    const ProfileOperation operation(task % 2 ? "odd" : "even", 10);
    for (int i = 0; i < 100000; ++i) sink.fetch_add(1, std::memory_order_relaxed);
  });
  const auto rows = profile.Rows();
  const Profile::Row *odd = Find(rows, "phase", "odd"), *even = Find(rows, "phase", "even");
  const Profile::Row* outside = Find(rows, "phase", "");
  ASSERT_TRUE(odd && even && outside);
  EXPECT_EQ(odd->calls, 15u);
  EXPECT_EQ(even->calls, 15u);
  EXPECT_EQ(odd->flop, 150);
#ifndef _WIN32  // there a thread's time moves in steps of 10 ms and more
  EXPECT_GT(odd->seconds, 0);
#endif
  EXPECT_EQ(outside->calls, 30u);
  // Nearly all of the tasks' time is inside their operations.
  EXPECT_LT(outside->seconds, odd->seconds + even->seconds);
  for (size_t i = 1; i < rows.size(); ++i) EXPECT_GE(rows[i - 1].seconds, rows[i].seconds);
}

TEST(Profile, TheTraceHasAnEventForEachTask) {
  ThreadPool pool(2);
  const Profile profile;
  pool.Run("traced", 5, [](size_t, int) {});
  const std::string trace = profile.ChromeTrace();
  size_t events = 0;
  for (size_t at = trace.find("\"traced\""); at != std::string::npos;
       at = trace.find("\"traced\"", at + 1))
    ++events;
  EXPECT_EQ(events, 5u);
  EXPECT_EQ(trace.front(), '[');
}

TEST(Profile, ASecondOneBeginsEmpty) {
  {
    const Profile first;
    const ProfileTask task("old");
  }
  const Profile second;
  { const ProfileTask task("new"); }
  EXPECT_EQ(Find(second.Rows(), "old", ""), nullptr);
  EXPECT_NE(Find(second.Rows(), "new", ""), nullptr);
}

}  // namespace
}  // namespace needle
