// needle devices: what is there, what will be used and why. And the hidden command that tries a
// plugin in a process of its own.
#include <fmt/core.h>

#include <cstdio>
#include <utility>

#include "backend/pjrt/survey.h"
#include "base/parallel.h"
#include "base/process.h"
#include "kernels/isa.h"
#include "needle/command.h"

namespace needle::cli {
namespace {

using json::Value;
using pjrt::Standing;

Value Text(const std::string& text) { return text.empty() ? Value::Null() : Value::String(text); }

std::string Native() {
  return fmt::format("built in, {}, {} threads", Name(BestIsa()), AvailableThreads());
}

std::string DevicesText(const pjrt::ProbeAnswer& answer) {
  std::string out;
  for (const auto& device : answer.devices) {
    out += fmt::format("{}{}", out.empty() ? "" : ", ", device.kind);
    if (device.memory_bytes) out += fmt::format(" {}", pjrt::MemoryText(*device.memory_bytes));
  }
  return out;
}

std::string PluginText(const pjrt::SurveyedPlugin& plugin) {
  const pjrt::Candidate& c = plugin.candidate;
  const std::string what = c.package.empty() ? fmt::format("from {}", c.origin)
                                             : fmt::format("{} {}", c.package, c.version);
  if (!plugin.tried) return fmt::format("{}, not tried", what);
  if (!plugin.answer.ok()) return fmt::format("{}: {}", what, plugin.answer.error->message());
  return fmt::format("{}, PJRT {}.{}: {}", what, plugin.answer.api_major, plugin.answer.api_minor,
                     DevicesText(plugin.answer));
}

void PrintRow(const std::string& name, std::string_view standing, const std::string& what) {
  PrintText(fmt::format("  {:<9} {:<13} {}\n", name, standing, what));
}

void Print(const pjrt::SurveyRow& row) {
  std::string what = row.reason;
  if (!row.install.empty()) what += fmt::format("; {}", row.install);
  if (row.plugins.empty() || row.standing == Standing::kNoHardware)
    PrintRow(row.name, Name(row.standing), what);
  if (row.standing == Standing::kNoHardware) return;
  std::string name = row.name;
  for (const pjrt::SurveyedPlugin& plugin : row.plugins) {
    const bool ok = plugin.tried && plugin.answer.ok();
    PrintRow(name, ok ? "ready" : Name(row.standing), PluginText(plugin));
    PrintRow("", "", plugin.candidate.library);
    name.clear();
  }
}

std::string FinetuneText(const pjrt::Survey& survey) {
  if (!survey.picked) return "would stop: " + survey.error->message();
  if (survey.trains_on_gpu())
    return fmt::format("would run on a GPU ({})", survey.picked->attempt.candidate.name);
  const bool tpu = survey.picked->kind == pjrt::Kind::kTpu;
  return fmt::format("would run on the {}, not on a GPU", tpu ? "TPU" : "processor");
}

void Print(const pjrt::Survey& survey) {
  PrintRow("cpu", "ready", Native());
  for (const pjrt::SurveyRow& row : survey.rows) Print(row);
  PrintText("\n");
  if (survey.picked)
    PrintLine("default", fmt::format("{}: {}", survey.picked->attempt.candidate.name, survey.why));
  PrintLine("finetune", FinetuneText(survey));
  for (const std::string& note : survey.notes) PrintNote(note);
}

Value Document(const pjrt::SurveyedPlugin& plugin) {
  const pjrt::Candidate& c = plugin.candidate;
  const pjrt::ProbeAnswer& a = plugin.answer;
  std::vector<Value> devices;
  for (const auto& device : a.devices)
    devices.push_back(
        Value::Object({{"id", Value::Int(device.id)},
                       {"kind", Value::String(device.kind)},
                       {"memory_bytes",
                        device.memory_bytes ? Value::Int(*device.memory_bytes) : Value::Null()}}));
  std::vector<std::pair<std::string, Value>> attributes;
  for (const pjrt::NamedValue& attribute : a.attributes)
    attributes.emplace_back(attribute.name, Value::String(Describe(attribute)));
  return Value::Object(
      {{"library", Value::String(c.library)},
       {"package", Text(c.package)},
       {"version", Text(c.version)},
       {"origin", Value::String(c.origin)},
       {"caution", Text(c.caution)},
       {"tried", Value::Bool(plugin.tried)},
       {"error", a.ok() ? Value::Null() : Value::String(a.error->message())},
       {"api", a.api_minor > 0 ? Value::String(fmt::format("{}.{}", a.api_major, a.api_minor))
                               : Value::Null()},
       {"platform", Text(a.platform)},
       {"platform_version", Text(a.platform_version)},
       {"attributes", Value::Object(std::move(attributes))},
       {"devices", Value::Array(std::move(devices))}});
}

Value Document(const pjrt::SurveyRow& row) {
  std::vector<Value> plugins;
  for (const pjrt::SurveyedPlugin& plugin : row.plugins) plugins.push_back(Document(plugin));
  return Value::Object({{"name", Value::String(row.name)},
                        {"backend", Value::String(std::string(JaxName(row.kind)))},
                        {"status", Value::String(std::string(Name(row.standing)))},
                        {"reason", Text(row.reason)},
                        {"install", Text(row.install)},
                        {"plugins", Value::Array(std::move(plugins))}});
}

Value Document(const pjrt::Survey& survey) {
  std::vector<Value> rows = {Value::Object({{"name", Value::String("cpu")},
                                            {"backend", Value::String("cpu")},
                                            {"status", Value::String("ready")},
                                            {"reason", Value::Null()},
                                            {"install", Value::Null()},
                                            {"plugins", Value::Array()},
                                            {"isa", Value::String(std::string(Name(BestIsa())))},
                                            {"threads", Value::Int(AvailableThreads())}})};
  for (const pjrt::SurveyRow& row : survey.rows) rows.push_back(Document(row));
  std::vector<Value> notes;
  for (const std::string& note : survey.notes) notes.push_back(Value::String(note));
  return Value::Object(
      {{"success", Value::Bool(!survey.error)},
       {"default",
        survey.picked ? Value::String(survey.picked->attempt.candidate.name) : Value::Null()},
       {"why", Text(survey.why)},
       {"trains_on_gpu", Value::Bool(survey.trains_on_gpu())},
       {"finetune", Value::String(FinetuneText(survey))},
       {"error", survey.error ? Value::String(survey.error->message()) : Value::Null()},
       {"notes", Value::Array(std::move(notes))},
       {"backends", Value::Array(std::move(rows))}});
}

Status Run(const std::string& device) {
  const pjrt::Platform platform = pjrt::ThisPlatform();
  pjrt::OpenOptions options;
  NEEDLE_ASSIGN(const std::string program, ProgramPath());
  NEEDLE_ASSIGN(const double seconds, pjrt::ProbeSeconds(platform));
  options.prober = pjrt::ProbeInChild(program, seconds);
  options.cache_folder = pjrt::CacheFolder(platform);
  options.refresh = true;  // who asks wants to know how it is now
  const pjrt::Survey survey = pjrt::LookAround(platform, device, options);
  Print(survey);
  if (JsonMode()) PrintJson(Document(survey));
  if (survey.error) return *survey.error;
  return {};
}

}  // namespace

Result<Device> OpenDevice(const std::string& device) {
  DeviceOptions options;
  options.device = device;
  NEEDLE_ASSIGN(options.probe_program, ProgramPath());
  return Device::Open(options);
}

void AddDevices(Options& app, Command* chosen) {
  auto device = std::make_shared<std::string>("auto");
  Options c = app.Group("devices", "Show what could train, what will, and why");
  c.Add("--device", device.get(), "as finetune takes it");
  c.AddJson();
  c.Runs(chosen, [device] { return Run(*device); });

  auto request = std::make_shared<std::string>();
  Options probe = app.Hidden("probe-plugin");
  probe.Add("request", request.get(), "what to try, as JSON").Required();
  probe.Runs(chosen, [request]() -> Status {
    // Past the parser and its modes: the parent reads this line, whatever else is printed.
    std::fputs(pjrt::ProbeFromText(*request).c_str(), stdout);
    return {};
  });
}

}  // namespace needle::cli
