#include "needle/training_output.h"

#include <filesystem>
#include <string_view>
#include <system_error>

#include "base/file.h"
#include "base/native_path.h"
#include "train/state.h"

namespace needle::cli {

namespace {

/// The step of a line of the log; 0 of any other line.
int64_t StepOfLine(std::string_view line) {
  const Result<json::Value> value = json::Parse(line);
  const json::Value* const step = value.ok() ? value->Find("step") : nullptr;
  return step != nullptr && step->is_int() ? step->as_int64().value_or(0) : 0;
}

/// How much of a log tells of the run up to `last_step`: to the end of that step's line. What
/// follows was written after the state was kept, and will be again; so would a line that a crash
/// cut short.
size_t LengthUpTo(std::string_view log, int64_t last_step) {
  size_t length = 0;
  for (size_t end; (end = log.find('\n', length)) != std::string_view::npos; length = end + 1) {
    const int64_t step = StepOfLine(log.substr(length, end - length));
    if (step > last_step) return length;
    if (step == last_step) return end + 1;
  }
  return length;
}

Status CutLog(const std::string& log, int64_t last_step) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(NativePath(log), none)) return {};
  NEEDLE_ASSIGN(const std::string text, ReadTextFile(log));
  const size_t length = LengthUpTo(text, last_step);
  if (length == text.size()) return {};
  std::error_code failed;
  std::filesystem::resize_file(NativePath(log), length, failed);
  if (!failed) return {};
  return Error(Code::kIo, log + ": the log could not be cut: " + failed.message());
}

}  // namespace

std::vector<std::string> TrainingFiles(const std::string& out) {
  const std::string state = StatePathOf(out);
  return {out, state, SetAsidePathOf(state)};
}

void TrainingOutput::Open(const std::string& log, bool resumed, int64_t first_step) {
  started_ = Now();
  first_step_ = first_step;
  path_ = log;
  if (log.empty()) return;
  if (resumed) status_ = CutLog(log, first_step);
  if (!status_.ok()) return;
  file_.open(NativePath(log), resumed ? std::ios::app : std::ios::trunc);
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
