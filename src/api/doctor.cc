#include "api/doctor.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "api/device_impl.h"
#include "api/device_tuning.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/pjrt/op_check.h"
#include "backend/pjrt/pjrt_backend.h"
#include "base/random.h"
#include "base/str_cat.h"

namespace needle {
namespace {

using Clock = std::chrono::steady_clock;
using Values = std::map<std::string, std::vector<float>>;

// Float32 sums of a thousand terms in another order differ by some 1e-6 of the largest; a product
// in TF32 or bf16 by 1e-3 to 1e-2. In between lies what tells them apart.
constexpr double kLoss = 1e-4, kGradient = 5e-4;
constexpr int kSteps = 3;

/// The tiny preset with every weight moved away from special values, such as the zeros of initial
/// output projections, behind which an error could hide.
Result<Checkpoint> SmallModel() {
  NEEDLE_ASSIGN(const ModelConfig config, PresetConfig("tiny"));
  Checkpoint model = RandomCheckpoint(config, /*seed=*/1, DType::kF32);
  uint64_t seed = 2;
  for (auto& [path, tensor] : model.params) {
    const std::vector<float> noise = JaxNormal(JaxPrngKey(seed++), tensor.size());
    std::vector<float> values(tensor.size());
    for (size_t i = 0; i < values.size(); ++i) values[i] = tensor.At(i) + 0.05f * noise[i];
    tensor = Tensor::FromFloats(tensor.shape, values);
  }
  return model;
}

/// Four examples of which each two share a beginning: batches are trees.
Forest SmallBatch(const ModelConfig& config) {
  std::vector<std::vector<int32_t>> ids;
  std::vector<std::vector<float>> weights;
  for (int32_t e = 0; e < 4; ++e) {
    const int32_t shared = e / 2;
    std::vector<int32_t> row;
    row.reserve(40);
    for (int32_t t = 0; t < 40; ++t)
      row.push_back(1 + (t < 24 ? 37 * shared + 11 * t : 53 * e + 7 * t) %
                            static_cast<int32_t>(config.vocab_size - 1));
    ids.push_back(std::move(row));
    std::vector<float> weight(40);
    std::fill(weight.begin() + 24, weight.end(), 1.0f);
    weights.push_back(std::move(weight));
  }
  std::vector<Sequence> batch;
  for (size_t e = 0; e < ids.size(); ++e) batch.push_back({ids[e], weights[e]});
  return BuildForest(batch, Packing::kTree, /*normaliser=*/64.0f);
}

DoctorLine Compared(const std::string& what, double got, double wanted, double allowed) {
  const double error = std::abs(got - wanted) / std::abs(wanted);
  return {what, std::isfinite(got) ? error : INFINITY, allowed, ""};
}

DoctorLine Compared(const std::string& what, const std::vector<float>& got,
                    const std::vector<float>& wanted, double largest) {
  DoctorLine line{what, 0, kGradient, ""};
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double difference = std::abs(double{got[i]} - wanted[i]);
    line.error = std::isnan(difference) ? INFINITY : std::max(line.error, difference / largest);
  }
  return line;
}

double Largest(const Values& values) {
  double largest = 0;
  for (const auto& [name, value] : values)
    for (const float v : value) largest = std::max(largest, std::abs(double{v}));
  return largest;
}

/// One line for the worst of many arrays, which is named.
DoctorLine Worst(const std::string& what, const Values& got, const Values& wanted) {
  DoctorLine worst{what, 0, kGradient, ""};
  const double largest = Largest(wanted);
  for (const auto& [name, value] : wanted) {
    const auto it = got.find(name);
    if (it == got.end() || it->second.size() != value.size())
      return {what, INFINITY, kGradient, StrCat("the device has no ", name)};
    const DoctorLine line = Compared(StrCat(what, ", worst: ", name), it->second, value, largest);
    if (line.error >= worst.error) worst = line;
  }
  return worst;
}

class Examination {
 public:
  Examination(Backend& device, Backend& native, Forest batch)
      : device_(device), native_(native), batch_(std::move(batch)) {}

  Status Run(DoctorReport* report) {
    NEEDLE_TRY(Forward(report));
    for (int step = 1; step <= kSteps; ++step) NEEDLE_TRY(Step(step, report));
    NEEDLE_ASSIGN(const TrainState wanted, native_.State());
    const std::string what = "trained values after three steps";
    const Result<TrainState> got = device_.State();
    if (Ran(got, what, report)) report->lines.push_back(Worst(what, got->values, wanted.values));
    return {};
  }

 private:
  /// A device that refuses is a line; the native engine's error is ours.
  template <class T>
  bool Ran(const Result<T>& result, const std::string& what, DoctorReport* report) {
    if (result.ok()) return true;
    report->lines.push_back({what, 0, 0, result.error().message()});
    return false;
  }

  Status Forward(DoctorReport* report) {
    NEEDLE_ASSIGN(const double wanted, native_.Evaluate(batch_));
    const Result<double> got = device_.Evaluate(batch_);
    if (Ran(got, "loss of the forward", report))
      report->lines.push_back(Compared("loss of the forward", *got, wanted, kLoss));
    return {};
  }

  Status Step(int step, DoctorReport* report) {
    const UpdateScalars scalars = ScalarsOf(AdamWOptions(), /*lr=*/1e-3f, step);
    const std::string of = StrCat(" of step ", step);
    const auto start = Clock::now();
    NEEDLE_ASSIGN(const StepResult wanted, native_.Step(batch_, scalars));
    const auto middle = Clock::now();
    const Result<StepResult> got = device_.Step(batch_, scalars);
    const auto end = Clock::now();
    report->native_step_seconds = std::chrono::duration<double>(middle - start).count();
    report->step_seconds = std::chrono::duration<double>(end - middle).count();
    if (!Ran(got, "loss" + of, report)) return {};
    report->lines.push_back(Compared("loss" + of, got->loss, wanted.loss, kLoss));
    report->lines.push_back(
        Compared("gradient norm" + of, got->grad_norm, wanted.grad_norm, kGradient));
    // After the first step the first moment is a tenth of the clipped gradient.
    return step == 1 ? Moments("gradients" + of, report) : Status();
  }

  Status Moments(const std::string& what, DoctorReport* report) {
    NEEDLE_ASSIGN(const TrainState wanted, native_.State());
    const Result<TrainState> got = device_.State();
    if (Ran(got, what, report))
      report->lines.push_back(Worst(what, got->first_moment, wanted.first_moment));
    return {};
  }

  Backend& device_;
  Backend& native_;
  Forest batch_;
};

void ExamineOperations(pjrt::Client& client, DoctorReport* report) {
  for (const pjrt::OpCheck& check : pjrt::CheckOperations(client, 0))
    report->lines.push_back({check.operation, check.error, check.allowed, check.failure});
  report->operations = report->lines.size();
}

}  // namespace

bool DoctorReport::ok() const {
  return std::all_of(lines.begin(), lines.end(), [](const DoctorLine& line) { return line.ok(); });
}

Result<DoctorReport> Examine(const Device& device, int index) {
  assert(device.impl().client != nullptr);
  NEEDLE_ASSIGN(const std::shared_ptr<pjrt::Client> client, device.impl().client->Only(index));
  DoctorReport report;
  ExamineOperations(*client, &report);
  NEEDLE_ASSIGN(const Checkpoint model, SmallModel());
  LoraOptions lora;
  lora.rank = 4;
  CpuBackendOptions native_options;
  native_options.lora = lora;
  NEEDLE_ASSIGN(const std::unique_ptr<Backend> native, MakeCpuBackend(model, native_options));
  // The programs that a training would run there.
  PjrtBackendOptions options = PjrtOptionsFor(device.impl().kind, /*found=*/1, {});
  options.lora = lora;
  const Result<std::unique_ptr<PjrtBackend>> made = MakePjrtBackend(client, model, options);
  if (!made.ok()) {
    report.lines.push_back({"a small model", 0, 0, made.error().message()});
    return report;
  }
  NEEDLE_TRY(Examination(**made, *native, SmallBatch(model.config)).Run(&report));
  report.compile_seconds = (*made)->Stats().compile_seconds;
  return report;
}

}  // namespace needle
