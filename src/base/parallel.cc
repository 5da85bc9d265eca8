#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/cgroup.h"
#include "base/os.h"
#include "base/profile.h"

namespace needle {
namespace {

constexpr auto kSpin = std::chrono::microseconds(500);
constexpr size_t kCacheLine = 64;

// Tells the processor that this is a waiting loop.
inline void Relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#else
  std::this_thread::yield();
#endif
}

// Waits for ready() without sleeping, for about kSpin; returns what it last said.
template <class Ready>
bool SpinUntil(const Ready& ready) {
  const auto give_up = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      Relax();
    }
  } while (std::chrono::steady_clock::now() < give_up);
  return ready();
}

}  // namespace

int AvailableThreads() {
  const int processors = os::AffinityThreads();
  const auto quota = CgroupProcessors();
  if (!quota) return processors;
  return std::clamp(static_cast<int>(std::min(std::ceil(*quota), 1e6)), 1, processors);
}

// A run is a door that opens and closes: workers that are awake enter while it is open, take tasks
// until none is left, and leave. The caller closes the door when no task is left and waits for
// those inside only, so a worker that still sleeps is never waited for.
struct ThreadPool::Impl {  // NOLINT(clang-analyzer-optin.performance.Padding): cache lines
  using Task = std::function<void(size_t, int)>;

  // Written by the caller while the door is closed and nobody is inside.
  const Task* task = nullptr;
  size_t tasks = 0;

  alignas(kCacheLine) std::atomic<size_t> next{0};          // the first task not yet taken
  alignas(kCacheLine) std::atomic<uint32_t> door{kClosed};  // how many are inside; kClosed bit
  alignas(kCacheLine) std::atomic<uint64_t> run{0};         // counts runs: a change wakes workers
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};

  std::mutex mutex;
  std::condition_variable wake;   // a run began, or stop
  std::condition_variable empty;  // the door is closed and nobody is inside
  std::vector<std::thread> workers;

  static constexpr uint32_t kClosed = 1u << 31;

  void TakeTasks(int worker) {
    const size_t count = tasks;
    for (size_t i = next.fetch_add(1, std::memory_order_relaxed); i < count;
         i = next.fetch_add(1, std::memory_order_relaxed))
      (*task)(i, worker);
  }

  bool Enter() {
    uint32_t inside = door.load();
    while (!(inside & kClosed))
      if (door.compare_exchange_weak(inside, inside + 1)) return true;
    return false;
  }
  void Leave() {
    if (door.fetch_sub(1) != (kClosed | 1)) return;
    const std::lock_guard lock(mutex);  // the caller may be about to sleep
    empty.notify_one();
  }

  void OpenDoor(const Task& fn, size_t count) {
    task = &fn;
    tasks = count;
    next.store(0);
    door.store(0);
    run.fetch_add(1);
    // Either a worker that is about to sleep sees the new run, or we see the sleeper here: both
    // sides write first and read second, in one total order.
    if (sleepers.load() == 0) return;
    const std::lock_guard lock(mutex);
    wake.notify_all();
  }
  void CloseDoorAndWait() {
    door.fetch_or(kClosed);
    const auto is_empty = [&] { return door.load() == kClosed; };
    if (SpinUntil(is_empty)) return;
    std::unique_lock lock(mutex);
    empty.wait(lock, is_empty);
  }

  void WaitForRunAfter(uint64_t seen) {
    const auto called = [&] { return stop.load() || run.load() != seen; };
    if (SpinUntil(called)) return;
    std::unique_lock lock(mutex);
    sleepers.fetch_add(1);
    wake.wait(lock, called);
    sleepers.fetch_sub(1);
  }
  void Work(int worker) {
    for (uint64_t seen = 0;;) {
      WaitForRunAfter(seen);
      if (stop.load()) return;
      seen = run.load();  // before entering: a run that begins later is then not missed
      if (!Enter()) continue;
      TakeTasks(worker);
      Leave();
    }
  }
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>()) {
  const int count = threads > 0 ? threads : AvailableThreads();
  for (int worker = 1; worker < count; ++worker) {
    try {
      impl_->workers.emplace_back([impl = impl_.get(), worker] { impl->Work(worker); });
    } catch (const std::system_error&) {
      break;  // the system gives no more threads; those that are there do the work
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop.store(true);
    impl_->wake.notify_all();
  }
  for (std::thread& worker : impl_->workers) worker.join();
}

int ThreadPool::threads() const { return static_cast<int>(impl_->workers.size()) + 1; }

void ThreadPool::Run(size_t tasks, const std::function<void(size_t, int)>& fn) {
  if (tasks <= 1 || impl_->workers.empty()) {
    for (size_t task = 0; task < tasks; ++task) fn(task, 0);
    return;
  }
  impl_->OpenDoor(fn, tasks);
  impl_->TakeTasks(0);
  impl_->CloseDoorAndWait();
}

void ThreadPool::Run(const char* phase, size_t tasks, const std::function<void(size_t, int)>& fn) {
  if (!Profile::Active()) return Run(tasks, fn);
  Run(tasks, [&](size_t task, int worker) {
    const ProfileTask scope(phase);
    fn(task, worker);
  });
}

}  // namespace needle
