// One worker pool. Work is split by shape, never by the number of threads, so that sums that are
// added in task order do not depend on the threads.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

namespace needle {

inline size_t CeilDiv(size_t a, size_t b) { return (a + b - 1) / b; }

/// The number of processors this process may use (affinity and cgroup quota respected; a quota of
/// one and a half counts as two), at least 1.
int AvailableThreads();

/// A fork/join pool: the caller works too; workers spin a short while (about 500 us), then sleep.
/// Run() may be called from one thread at a time; a task must not call Run() on the same pool and
/// must not throw (the program would end). What tasks write is visible when Run() returns.
class ThreadPool {
 public:
  /// `threads` <= 0 means AvailableThreads().
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// The caller and the workers; fewer than asked for when the system gives no more.
  int threads() const;
  /// Calls fn(task, worker) for each task in [0, tasks), each once, in any order, on the workers;
  /// worker in [0, threads()) says which scratch space to use. Returns when all are done.
  void Run(size_t tasks, const std::function<void(size_t task, int worker)>& fn);
  /// The same, and a Profile (base/profile.h) that is alive hears of each task. `phase` is a
  /// literal.
  void Run(const char* phase, size_t tasks, const std::function<void(size_t task, int worker)>& fn);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace needle
