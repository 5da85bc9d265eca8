#include "base/profile.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <map>
#include <mutex>
#include <utility>

#include "base/os.h"
#include "base/str_cat.h"

namespace needle {
namespace {

uint64_t Nanoseconds() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

struct Sum {
  uint64_t calls = 0, nanoseconds = 0;
  double flop = 0;
  void Add(uint64_t ns, double more_flop) {
    ++calls;
    nanoseconds += ns;
    flop += more_flop;
  }
};

struct Event {
  const char* phase;
  uint64_t begin, end;
};

/// What one thread recorded; names are compared by address until they are read.
struct Thread {
  const char* phase = "";
  std::map<std::pair<const char*, const char*>, Sum> operations;
  std::map<const char*, Sum> tasks;
  std::vector<Event> events;
};

std::atomic<Profile::Impl*> active{nullptr};
std::atomic<uint64_t> profiles{0};  // tells a thread that its record belongs to an earlier Profile

}  // namespace

struct Profile::Impl {
  const uint64_t begin = Nanoseconds();
  std::mutex mutex;
  std::vector<std::unique_ptr<Thread>> threads;

  static Thread* Mine() {
    Impl* const impl = active.load(std::memory_order_acquire);
    if (!impl) return nullptr;
    thread_local Thread* mine = nullptr;
    thread_local uint64_t of = 0;
    if (const uint64_t now = profiles.load(std::memory_order_relaxed); of != now) {
      const std::lock_guard lock(impl->mutex);
      mine = impl->threads.emplace_back(std::make_unique<Thread>()).get();
      of = now;
    }
    return mine;
  }
};

Profile::Profile() : impl_(std::make_unique<Impl>()) {
  assert(!Active());
  profiles.fetch_add(1);
  active.store(impl_.get(), std::memory_order_release);
}

Profile::~Profile() { active.store(nullptr, std::memory_order_release); }

bool Profile::Active() { return active.load(std::memory_order_acquire) != nullptr; }

double Profile::WallSeconds() const {
  return 1e-9 * static_cast<double>(Nanoseconds() - impl_->begin);
}

std::vector<Profile::Row> Profile::Rows() const {
  std::map<std::pair<std::string, std::string>, Sum> sums;
  for (const auto& thread : impl_->threads) {
    for (const auto& [phase, sum] : thread->tasks) {
      Sum& to = sums[{phase, ""}];
      to.calls += sum.calls;
      to.nanoseconds += sum.nanoseconds;
    }
    for (const auto& [at, sum] : thread->operations) {
      Sum& to = sums[{at.first, at.second}];
      to.calls += sum.calls;
      to.nanoseconds += sum.nanoseconds;
      to.flop += sum.flop;
      Sum& outside = sums[{at.first, ""}];
      outside.nanoseconds -= std::min(outside.nanoseconds, sum.nanoseconds);
    }
  }
  std::vector<Row> rows;
  rows.reserve(sums.size());
  for (const auto& [at, sum] : sums)
    rows.push_back(
        {at.first, at.second, sum.calls, 1e-9 * static_cast<double>(sum.nanoseconds), sum.flop});
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Row& a, const Row& b) { return a.seconds > b.seconds; });
  return rows;
}

std::string Profile::ChromeTrace() const {
  std::string out = "[";
  for (size_t t = 0; t < impl_->threads.size(); ++t)
    for (const Event& e : impl_->threads[t]->events)
      out += StrCat(out.size() > 1 ? ",\n" : "\n", "{\"name\":\"", e.phase,
                    "\",\"ph\":\"X\",\"pid\":1,\"tid\":", t,
                    ",\"ts\":", (e.begin - impl_->begin) / 1000,
                    ",\"dur\":", (e.end - e.begin) / 1000, "}");
  return out + "\n]\n";
}

ProfileTask::ProfileTask(const char* phase) {
  Thread* const thread = Profile::Impl::Mine();
  if (!thread) return;
  thread->phase = phase;
  thread_ = thread;
  begin_ = Nanoseconds();
  cpu_begin_ = os::ThreadNanoseconds();
}

ProfileTask::~ProfileTask() {
  if (!thread_) return;
  auto& thread = *static_cast<Thread*>(thread_);
  const uint64_t end = Nanoseconds();
  thread.tasks[thread.phase].Add(os::ThreadNanoseconds() - cpu_begin_, 0);
  if (thread.events.size() < Profile::kMaxEvents)
    thread.events.push_back({thread.phase, begin_, end});
  thread.phase = "";
}

ProfileOperation::ProfileOperation(const char* operation, double flop)
    : operation_(operation), flop_(flop) {
  thread_ = Profile::Impl::Mine();
  if (thread_) begin_ = os::ThreadNanoseconds();
}

ProfileOperation::~ProfileOperation() {
  if (!thread_) return;
  auto& thread = *static_cast<Thread*>(thread_);
  thread.operations[{thread.phase, operation_}].Add(os::ThreadNanoseconds() - begin_, flop_);
}

}  // namespace needle
