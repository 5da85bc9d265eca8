#include "needle/training_output.h"

#include "base/native_path.h"

namespace needle::cli {

void TrainingOutput::Open(const std::string& log, bool append, int64_t first_step) {
  started_ = Now();
  first_step_ = first_step;
  path_ = log;
  if (log.empty()) return;
  file_.open(NativePath(log), append ? std::ios::app : std::ios::trunc);
  if (!file_) status_ = Error(Code::kInvalidArgument, log + ": cannot be opened to write the log");
}

void TrainingOutput::Log(const json::Value& line) {
  if (file_.is_open()) file_ << json::Dump(line) << '\n' << std::flush;
}

void TrainingOutput::ShowBar(int64_t step, int64_t total) {
  const double seconds = Now() - started_;
  const auto done = static_cast<double>(step - first_step_);
  bar_.Show(fmt::format("{}  {:.1f} examples/s  {} left", Bar(step, total), done * batch_ / seconds,
                        Duration(seconds / done * static_cast<double>(total - step))));
}

bool TrainingOutput::ShouldStop() const { return StopRequested() || !status_.ok(); }

Status TrainingOutput::Finish() {
  bar_.Clear();
  NEEDLE_TRY(status_);
  if (!file_.is_open()) return {};
  file_.close();
  if (!file_) return Error(Code::kIo, path_ + ": the log could not be written whole");
  return {};
}

}  // namespace needle::cli
