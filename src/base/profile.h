// Where the time of a run goes: tasks (a piece of a phase on one thread) and the operations inside
// them. Nothing is recorded, and a scope costs one load, unless a Profile is alive.
// Seconds are processor time of the thread, so that a busy machine shows what an idle one would;
// only the trace shows wall time. FLOP count a multiply-add as two.
// Thread-safety: one Profile at a time; scopes on any thread; results are read when no scope is
// open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace needle {

class Profile {
 public:
  /// Begins to record. At most one may be alive.
  Profile();
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  static bool Active();

  /// One operation in one phase, summed over calls and threads. The row with an empty operation is
  /// what the phase's tasks spent outside of operations.
  struct Row {
    std::string phase, operation;
    uint64_t calls = 0;
    double seconds = 0, flop = 0;
  };
  /// Largest first.
  std::vector<Row> Rows() const;
  /// Since the Profile began.
  double WallSeconds() const;

  /// The tasks as events of Chrome's trace viewer (JSON). The first `kMaxEvents` of each thread.
  std::string ChromeTrace() const;
  static constexpr size_t kMaxEvents = 200000;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

/// A piece of `phase` on this thread. Phases do not nest. `phase` must outlive the Profile.
class ProfileTask {
 public:
  explicit ProfileTask(const char* phase);
  ~ProfileTask();
  ProfileTask(const ProfileTask&) = delete;
  ProfileTask& operator=(const ProfileTask&) = delete;

 private:
  void* thread_ = nullptr;
  uint64_t begin_ = 0, cpu_begin_ = 0;
};

/// An operation inside the task of this thread. Operations do not nest.
class ProfileOperation {
 public:
  ProfileOperation(const char* operation, double flop);
  ~ProfileOperation();
  ProfileOperation(const ProfileOperation&) = delete;
  ProfileOperation& operator=(const ProfileOperation&) = delete;

 private:
  void* thread_ = nullptr;
  const char* operation_;
  double flop_;
  uint64_t begin_ = 0;
};

}  // namespace needle
