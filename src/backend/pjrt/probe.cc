#include "backend/pjrt/probe.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "backend/pjrt/compile_cache.h"
#include "base/env.h"
#include "base/file.h"
#include "base/library.h"
#include "base/native_path.h"
#include "base/process.h"
#include "base/str_cat.h"

namespace needle::pjrt {
namespace {

constexpr std::string_view kMark = "needle-probe ";

// x . w, small enough to know: enough to compile, copy and compute once.
const char* const kProduct = R"(module @probe {
  func.func public @main(%x: tensor<2x2xf32>, %w: tensor<2x2xf32>) -> tensor<2x2xf32> {
    %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0],
        precision = [HIGHEST, HIGHEST] : (tensor<2x2xf32>, tensor<2x2xf32>) -> tensor<2x2xf32>
    return %0 : tensor<2x2xf32>
  }
})";

Status ComputeOn(Client& client, int device) {
  const ArraySpec square{DType::kF32, {2, 2}};
  const Program program{kProduct, {square, square}, {square}, {}};
  CompileOptions options;
  options.devices = {client.Devices()[static_cast<size_t>(device)].id};
  NEEDLE_ASSIGN(Executable product, client.Compile(program, options));
  const float x[] = {1, 2, 3, 4}, w[] = {5, 6, 7, 8};
  NEEDLE_ASSIGN(Buffer xb, client.Upload(x, square, device));
  NEEDLE_ASSIGN(Buffer wb, client.Upload(w, square, device));
  NEEDLE_ASSIGN(const auto out, product.Run({{&xb, &wb}}));
  NEEDLE_ASSIGN(const std::vector<float> got, out[0][0].Floats());
  if (got == std::vector<float>{19, 22, 43, 50}) return {};
  return Error(Code::kCheckFailed,
               StrCat(client.plugin().Path(), ": device ", device,
                      " computes wrongly: the product of [1 2; 3 4] and [5 6; 7 8] came out as [",
                      got[0], " ", got[1], "; ", got[2], " ", got[3], "]"));
}

Status Look(Client& client, ProbeAnswer* answer) {
  answer->platform = client.PlatformName();
  answer->platform_version = client.PlatformVersion();
  for (size_t d = 0; d < client.Devices().size(); ++d) {
    const DeviceInfo& info = client.Devices()[d];
    answer->devices.push_back({info.id, info.kind, client.Memory(static_cast<int>(d)).limit_bytes});
  }
  for (size_t d = 0; d < client.Devices().size(); ++d)
    NEEDLE_TRY(ComputeOn(client, static_cast<int>(d)));
  return {};
}

Status Try(const Attempt& attempt, ProbeAnswer* answer) {
  NEEDLE_ASSIGN(const std::shared_ptr<Plugin> plugin, Plugin::Load(attempt.candidate.library));
  answer->api_major = plugin->ApiMajor();
  answer->api_minor = plugin->ApiMinor();
  answer->attributes = plugin->Attributes();
  NEEDLE_ASSIGN(const std::unique_ptr<Client> client, Client::Create(plugin, attempt.options));
  client->SetOverrides(attempt.overrides);
  return Look(*client, answer);
}

/// A check needs little memory: it must not take the device's while another program trains on it.
/// Options that a person wrote for a plugin of another kind are left alone: XLA's GPU plugins are
/// known by their platform_name.
Attempt Modest(Attempt attempt) {
  auto& options = attempt.options;
  const auto named = [](const char* name) {
    return [name](const NamedValue& o) { return o.name == name; };
  };
  const Kind kind = attempt.candidate.kind;
  const bool gpu = kind == Kind::kCuda || kind == Kind::kRocm || kind == Kind::kOneapi;
  if (!gpu || std::none_of(options.begin(), options.end(), named("platform_name"))) return attempt;
  options.erase(std::remove_if(options.begin(), options.end(), named("preallocate")),
                options.end());
  options.push_back({"preallocate", false});
  return attempt;
}

std::string LastLines(const std::string& text, size_t most) {
  std::string kept = text.size() > most ? text.substr(text.size() - most) : text;
  while (!kept.empty() && (kept.back() == '\n' || kept.back() == '\r')) kept.pop_back();
  return kept;
}

std::string LineWith(const std::string& text, const std::string& word) {
  const size_t at = text.find(word);
  if (at == std::string::npos) return "";
  return text.substr(at, text.find_first_of("\r\n", at) - at);
}

/// What XLA says of its flags before it ends the process: an unknown one, a value that is none, a
/// file of flags that is not there. "" when it says nothing of them.
std::string RefusedFlag(const std::string& err) {
  const std::string unknown = LineWith(err, "Unknown flag");
  if (!unknown.empty()) return unknown;
  if (!LineWith(err, "Flag parsing failed").empty())
    return StrCat("the value of a flag cannot be read: ", GetEnvOr("XLA_FLAGS", ""));
  const std::string file = LineWith(err, "Could not open file");
  return file.find("XLA_FLAGS") == std::string::npos ? "" : file;
}

ProbeAnswer Ended(const Attempt& attempt, const ChildOutcome& child, double seconds) {
  ProbeAnswer answer;
  answer.ended = true;
  const std::string& library = attempt.candidate.library;
  const std::string flag = RefusedFlag(child.err);
  if (!flag.empty()) {
    answer.error = Error(Code::kInvalidArgument,
                         StrCat("XLA_FLAGS: ", library, " refuses it and ends its process: ", flag,
                                ". Correct XLA_FLAGS or unset it"));
    return answer;
  }
  const std::string said = LastLines(child.err, 600);
  answer.error =
      Error(Code::kUnavailable,
            StrCat(library, ": a process that tried the plugin ", Describe(child),
                   child.timed_out ? StrCat(" after ", seconds, " s (NEEDLE_PROBE_SECONDS)") : "",
                   said.empty() ? "" : StrCat("; it last wrote: ", said)));
  return answer;
}

ProbeAnswer Failed(Error error) {
  ProbeAnswer answer;
  answer.error = std::move(error);
  return answer;
}

ProbeAnswer ReadAnswer(const Attempt& attempt, const ChildOutcome& child, double seconds) {
  const std::string line = LineWith(child.out, std::string(kMark));
  if (line.empty() || child.exit_code != 0) return Ended(attempt, child, seconds);
  const Result<json::Value> parsed = json::Parse(line.substr(kMark.size()));
  if (!parsed.ok()) return Ended(attempt, child, seconds);
  Result<ProbeAnswer> answer = AnswerFromJson(*parsed);
  return answer.ok() ? *std::move(answer) : Failed(answer.error());
}

std::string StampOf(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(NativePath(path), error);
  if (error) return "absent";
  const auto time = std::filesystem::last_write_time(NativePath(path), error);
  const auto since = std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch());
  return StrCat(size, "@", error ? 0 : int64_t{since.count()});
}

/// All that may change what a plugin does.
std::string KeyOf(const Attempt& attempt, const Platform& platform) {
  std::vector<std::string> parts = {"probe 2", json::Dump(ToJson(attempt)),
                                    StampOf(attempt.candidate.library)};
  for (const auto& [name, value] : platform.env)
    for (const char* prefix : {"XLA_", "JAX_", "CUDA_", "NVIDIA_", "HIP_", "ROCR_", "HSA_", "ZE_",
                               "TPU_", "PJRT_", "METALJAX_", "LD_", "DYLD_", "NEEDLE_PROBE_"})
      if (name.rfind(prefix, 0) == 0) parts.push_back(StrCat(name, "=", value));
  // A new driver is a new machine.
  parts.push_back(platform.files->Read("/proc/driver/nvidia/version").value_or(""));
  return DigestOf(parts);
}

std::optional<ProbeAnswer> ReadKept(const std::string& path) {
  if (!FileExists(path)) return std::nullopt;
  const Result<std::string> text = ReadTextFile(path);
  if (!text.ok()) return std::nullopt;
  const Result<json::Value> parsed = json::Parse(*text);
  if (!parsed.ok()) return std::nullopt;
  Result<ProbeAnswer> answer = AnswerFromJson(*parsed);
  if (!answer.ok()) return std::nullopt;
  return *std::move(answer);
}

/// The answer from disk, or of the plugin itself, which is kept where that is worth it.
ProbeAnswer KeptOrAsked(const Attempt& attempt, const Platform& platform, const Prober& prober,
                        const std::string& folder, bool refresh) {
  if (folder.empty()) return prober(attempt);
  const std::string path = JoinPath(folder, StrCat(KeyOf(attempt, platform), ".json"));
  if (!refresh)
    if (std::optional<ProbeAnswer> kept = ReadKept(path)) return *std::move(kept);
  ProbeAnswer answer = prober(attempt);
  // Not being able to keep it only costs the next run a probe.
  if (answer.ok() || answer.ended) {
    (void)WriteFileAtomically(path, std::string_view(json::Dump(ToJson(answer))));
  } else if (refresh) {
    (void)RemoveFile(path);
  }
  return answer;
}

}  // namespace

ProbeAnswer ProbeHere(const Attempt& given) {
  const Attempt attempt = Modest(given);
  for (const auto& [name, value] :
       MissingEnvironment(ThisPlatform(), attempt.candidate.kind == Kind::kXlaCpu))
    SetEnv(name, value);
  for (const std::string& path : attempt.preload)
    (void)Library::Open(path, LibraryScope::kShared);  // absent ones are the plugin's to report
  ProbeAnswer answer;
  const Status status = Try(attempt, &answer);
  if (!status.ok()) answer.error = status.error();
  return answer;
}

std::string ProbeLine(const ProbeAnswer& answer) {
  return StrCat("\n", kMark, json::Dump(ToJson(answer)), "\n");
}

std::string ProbeFromText(const std::string& text) {
  const Result<json::Value> parsed = json::Parse(text);
  if (!parsed.ok()) return ProbeLine(Failed(parsed.error()));
  const Result<Attempt> attempt = AttemptFromJson(*parsed);
  return ProbeLine(attempt.ok() ? ProbeHere(*attempt) : Failed(attempt.error()));
}

Result<double> ProbeSeconds(const Platform& platform) {
  const std::string set = platform.Env("NEEDLE_PROBE_SECONDS");
  if (set.empty()) return 30.0;
  constexpr double kDay = 86400;
  char* end = nullptr;
  const double seconds = std::strtod(set.c_str(), &end);
  if (end == set.c_str() + set.size() && seconds > 0 && seconds <= kDay) return seconds;
  return Error(Code::kInvalidArgument,
               StrCat("NEEDLE_PROBE_SECONDS is \"", set,
                      "\"; it must be a number of seconds above 0 and at most a day, such as 120"));
}

Prober ProbeInChild(const std::string& program, double timeout_seconds) {
  return [program, timeout_seconds](const Attempt& attempt) {
    ChildOptions options;
    options.timeout_seconds = timeout_seconds;
    const Result<ChildOutcome> child =
        RunChild({program, "probe-plugin", json::Dump(ToJson(attempt))}, options);
    return child.ok() ? ReadAnswer(attempt, *child, timeout_seconds) : Failed(child.error());
  };
}

ProbeAnswer CachedProbe(const Attempt& attempt, const Platform& platform, const Prober& prober,
                        const std::string& folder, bool refresh) {
  ProbeAnswer answer = KeptOrAsked(attempt, platform, prober, folder, refresh);
  const Kind kind = attempt.candidate.kind;
  if (answer.ok() && answer.platform == "cpu" && kind != Kind::kXlaCpu && kind != Kind::kOther)
    answer.error = Error(Code::kUnavailable,
                         StrCat(attempt.candidate.library, ": a plugin for the processor, not for ",
                                Name(kind), "; call it xla-cpu"));
  return answer;
}

}  // namespace needle::pjrt
