// What finetune and pretrain show and log while they train: upstream's lines, a bar with rate and
// time left on a terminal, and the file of --log.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "needle/command.h"

namespace needle::cli {

/// The files that a training run with this --out writes: checked by CheckOutputs before it begins.
std::vector<std::string> TrainingFiles(const std::string& out);

class TrainingOutput {
 public:
  explicit TrainingOutput(size_t batch_size) : batch_(static_cast<double>(batch_size)) {}

  /// Prints the schedule, opens the log ("" for none; a resumed run's goes on behind the line of
  /// the step that it goes on from) and starts the clock of the rate. `Plan` is FinetuneStart or
  /// the trainer's TrainPlan.
  template <class Plan>
  void OnStart(const Plan& plan, const std::string& log, bool resumed) {
    PrintLine("schedule", fmt::format("{} steps  warmup {}  cosine decay  clip 1.0",
                                      plan.total_steps, plan.warmup_steps));
    if (plan.first_step > 0) PrintLine("resumed", fmt::format("after step {}", plan.first_step));
    if (!plan.set_aside.empty()) PrintNote(plan.set_aside);
    Open(log, resumed, plan.first_step);
  }

  /// One update. `Step` is FinetuneStep or the trainer's StepEvent: the fields are the same.
  template <class Step>
  void OnStep(const Step& s) {
    Log(Record(s));
    if (s.step % std::max<int64_t>(1, s.total / 50) == 0) {
      bar_.Clear();
      PrintLine("step", fmt::format("{}/{}  loss {:.4f}", s.step, s.total, s.loss));
    }
    ShowBar(s.step, s.total);
  }
  /// One pass over the data; FinetuneEpoch or the trainer's EpochEvent.
  template <class Epoch>
  void OnEpoch(const Epoch& e) {
    using json::Value;
    const Value val_loss = e.val_loss ? Value::Float(*e.val_loss) : Value::Null();
    Log(Value::Object({{"epoch", Value::Int(e.epoch)}, {"val_loss", val_loss}}));
    bar_.Clear();
    PrintLine("epoch", fmt::format("{}/{}  loss {:.4f}{}", e.epoch, e.epochs, e.loss,
                                   e.val_loss ? fmt::format("  val {:.4f}", *e.val_loss) : ""));
  }

  /// True when the user asked for a stop or the log could not be opened.
  bool ShouldStop() const;
  /// Takes the bar away; whether every line of the log could be written.
  Status Finish();

 private:
  template <class Step>
  static json::Value Record(const Step& s) {
    using json::Value;
    std::vector<Value> rows;
    for (const int32_t row : s.rows) rows.push_back(Value::Int(row));
    return Value::Object({{"step", Value::Int(s.step)},
                          {"epoch", Value::Int(s.epoch)},
                          {"loss", Value::Float(s.loss)},
                          {"lr", Value::Float(double{s.lr})},
                          {"grad_norm", Value::Float(s.grad_norm)},
                          {"rows", Value::Array(std::move(rows))},
                          {"target_tokens", Value::Int(static_cast<int64_t>(s.target_tokens))},
                          {"tokens_computed", Value::Int(static_cast<int64_t>(s.tokens_computed))},
                          {"seconds", Value::Float(s.seconds)}});
  }
  void Open(const std::string& log, bool resumed, int64_t first_step);
  void Log(const json::Value& line);
  void ShowBar(int64_t step, int64_t total);

  std::string path_;
  std::ofstream file_;
  Status status_;
  ProgressLine bar_;
  double batch_, started_ = 0;
  int64_t first_step_ = 0;
};

}  // namespace needle::cli
