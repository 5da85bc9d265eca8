// needle doctor: does each device compute what the native engine computes?
#include "api/doctor.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "backend/pjrt/survey.h"
#include "needle/command.h"

namespace needle::cli {
namespace {

using json::Value;

struct Examined {
  std::string name, description;
  std::string failure;  // the device could not be opened
  DoctorReport report;
  bool ok() const { return failure.empty() && report.ok(); }
};

std::string Text(const DoctorLine& line) {
  if (!line.failure.empty()) return fmt::format("{}: {}", line.what, line.failure);
  return fmt::format("{}: error {:.1e}, allowed {:.1e}", line.what, line.error, line.allowed);
}

void PrintOperations(const DoctorReport& r) {
  size_t right = 0;
  for (size_t i = 0; i < r.operations; ++i) {
    right += r.lines[i].ok();
    if (!r.lines[i].ok()) PrintLine("WRONG", "operation " + Text(r.lines[i]));
  }
  PrintLine("ops", fmt::format("{} of {} operations are right", right, r.operations));
}

void Print(const Examined& e) {
  PrintLine("device", fmt::format("{}  {}", e.name, e.description));
  if (!e.failure.empty()) return PrintLine("FAILS", e.failure);
  PrintOperations(e.report);
  for (size_t i = e.report.operations; i < e.report.lines.size(); ++i)
    PrintLine(e.report.lines[i].ok() ? "right" : "WRONG", Text(e.report.lines[i]));
  PrintLine("speed", fmt::format("{:.2g} s a step of a small model, native engine {:.2g} s; "
                                 "programs compiled in {:.1f} s",
                                 e.report.step_seconds, e.report.native_step_seconds,
                                 e.report.compile_seconds));
}

Value Document(const Examined& e) {
  std::vector<Value> lines;
  for (size_t i = 0; i < e.report.lines.size(); ++i) {
    const DoctorLine& line = e.report.lines[i];
    lines.push_back(Value::Object(
        {{"what", Value::String(line.what)},
         {"operation", Value::Bool(i < e.report.operations)},
         {"ok", Value::Bool(line.ok())},
         {"error", Value::Float(line.error)},
         {"allowed", Value::Float(line.allowed)},
         {"failure", line.failure.empty() ? Value::Null() : Value::String(line.failure)}}));
  }
  return Value::Object({{"name", Value::String(e.name)},
                        {"description", Value::String(e.description)},
                        {"ok", Value::Bool(e.ok())},
                        {"failure", e.failure.empty() ? Value::Null() : Value::String(e.failure)},
                        {"step_seconds", Value::Float(e.report.step_seconds)},
                        {"native_step_seconds", Value::Float(e.report.native_step_seconds)},
                        {"compile_seconds", Value::Float(e.report.compile_seconds)},
                        {"checks", Value::Array(std::move(lines))}});
}

/// The devices that a plugin is there for and that have their hardware, by the name that opens
/// them.
Result<std::vector<std::string>> NamesToExamine(const std::string& device) {
  if (device != "all") return std::vector<std::string>{device};
  NEEDLE_ASSIGN(const std::vector<pjrt::Candidate> candidates,
                pjrt::Discover(pjrt::ThisPlatform(), /*thorough=*/true));
  std::vector<std::string> names;
  for (const pjrt::Candidate& c : candidates) {
    const bool gated =
        !c.package.empty() && !pjrt::WhyNoHardware(c.kind, pjrt::ThisPlatform()).empty();
    if (!gated && std::count(names.begin(), names.end(), c.name) == 0) names.push_back(c.name);
  }
  return names;
}

/// Each device that opens by a name: "cuda:0", "cuda:1" where it stands for several; none for the
/// native engine, which is the measure itself.
Result<std::vector<Examined>> ExamineNamed(const std::string& name) {
  const Result<Device> device = OpenDevice(name);
  if (!device.ok()) {
    if (device.error().code() == Code::kInvalidArgument) return device.error();
    Examined e;
    e.name = name;
    e.failure = device.error().message();
    Print(e);
    return std::vector<Examined>{e};
  }
  for (const std::string& note : device->notes()) PrintNote(note);
  std::vector<Examined> all;
  if (device->name() == "cpu") return all;
  for (int i = 0; i < device->count(); ++i) {
    Examined e;
    e.name = device->count() == 1 ? device->name() : fmt::format("{}:{}", device->name(), i);
    e.description = device->description();
    NEEDLE_ASSIGN(e.report, Examine(*device, i));
    Print(e);
    all.push_back(std::move(e));
  }
  return all;
}

void Add(std::string& list, const std::string& name) { list += (list.empty() ? "" : ", ") + name; }

Status Run(const std::string& device) {
  NEEDLE_ASSIGN(const std::vector<std::string> names, NamesToExamine(device));
  std::vector<Value> documents;
  std::string wrong, closed;
  for (const std::string& name : names) {
    NEEDLE_ASSIGN(const std::vector<Examined> all, ExamineNamed(name));
    for (const Examined& e : all) {
      if (!e.ok()) Add(e.failure.empty() ? wrong : closed, e.name);
      documents.push_back(Document(e));
    }
  }
  if (documents.empty())
    PrintLine("doctor",
              "nothing to examine: only the native engine is here, which is what others are "
              "measured by");
  const bool ok = wrong.empty() && closed.empty();
  if (JsonMode())
    PrintJson(Value::Object(
        {{"success", Value::Bool(ok)}, {"devices", Value::Array(std::move(documents))}}));
  if (ok) return {};
  std::string message;
  if (!wrong.empty())
    message = wrong +
              ": the device does not compute what the native engine computes; do not train on it "
              "(--device cpu)";
  if (!closed.empty())
    message += (message.empty() ? "" : "; ") + closed + ": the device cannot be used";
  return Error(Code::kCheckFailed, message);
}

}  // namespace

void AddDoctor(Options& app, Command* chosen) {
  auto device = std::make_shared<std::string>("all");
  Options c = app.Group("doctor", "Check that devices compute rightly");
  c.Add("--device", device.get(), "all that are here, or one as finetune takes it");
  c.AddJson();
  c.Runs(chosen, [device] { return Run(*device); });
}

}  // namespace needle::cli
