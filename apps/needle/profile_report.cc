#include "needle/profile_report.h"

#include <fmt/core.h>

#include <cstdio>
#include <utility>

#include "base/file.h"
#include "kernels/peak.h"
#include "needle/command.h"

namespace needle::cli {

ProfileReport::ProfileReport(std::string trace_path) : path_(std::move(trace_path)) {
  if (!path_.empty()) profile_.emplace();
}

Status ProfileReport::Finish(int threads) const {
  if (!profile_) return {};
  ThreadPool pool(threads);
  const double wall = profile_->WallSeconds(), capacity = wall * pool.threads();
  const std::vector<Profile::Row> rows = profile_->Rows();
  double busy = 0, flop = 0;
  for (const Profile::Row& row : rows) {
    busy += row.seconds;
    flop += row.flop;
  }
  const double peak = MeasuredPeak(BestKernels(), pool);
  constexpr double kShown = 0.003;  // share of the time from which a row is printed
  fmt::print(stderr, "  {:<22} {:<28} {:>9} {:>9} {:>6} {:>9}\n", "phase", "operation", "calls",
             "seconds", "share", "GFLOP/s");
  double small = 0;
  for (const Profile::Row& row : rows) {
    if (row.seconds < kShown * capacity) {
      small += row.seconds;
      continue;
    }
    const std::string speed =
        row.flop > 0 ? fmt::format("{:.1f}", 1e-9 * row.flop / row.seconds) : "";
    fmt::print(stderr, "  {:<22} {:<28} {:>9} {:>9.3f} {:>5.1f}% {:>9}\n", row.phase,
               row.operation.empty() ? "(outside operations)" : row.operation, row.calls,
               row.seconds, 100 * row.seconds / capacity, speed);
  }
  const auto rest = [&](const char* what, double seconds) {
    fmt::print(stderr, "  {:<51} {:>9} {:>9.3f} {:>5.1f}%\n", what, "", seconds,
               100 * seconds / capacity);
  };
  rest("smaller rows", small);
  rest("outside phases, and waiting for threads or processors", capacity - busy);
  fmt::print(stderr,
             "  {:.3f} s on {} thread{} of {}; {:.1f} GFLOP in products and attention, {:.1f} "
             "GFLOP/s, {:.0f} % of the {:.0f} GFLOP/s of multiply-adds measured now\n",
             wall, pool.threads(), pool.threads() == 1 ? "" : "s", Name(BestKernels().isa),
             1e-9 * flop, 1e-9 * flop / wall, 100 * flop / wall / peak, 1e-9 * peak);
  return WriteFileAtomically(path_, profile_->ChromeTrace());
}

}  // namespace needle::cli
