#include "backend/pjrt/choose.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "base/ascii.h"
#include "base/parse_integer.h"
#include "base/str_cat.h"

namespace needle::pjrt {
namespace {

std::string WithoutBlanks(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t"), end = text.find_last_not_of(" \t");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::vector<std::string> Split(const std::string& list, char separator) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= list.size();) {
    const size_t end = std::min(list.find(separator, at), list.size());
    const std::string part = WithoutBlanks(list.substr(at, end - at));
    if (!part.empty()) parts.push_back(part);
    at = end + 1;
  }
  return parts;
}

/// As std::from_chars, which not every library has for float.
std::optional<float> ParsedFloat(const std::string& text) {
  char* end = nullptr;
  const float value = std::strtof(text.c_str(), &end);
  if (text.empty() || end != text.c_str() + text.size() || !std::isfinite(value))
    return std::nullopt;
  return value;
}

Error BadVariable(const std::string& name, const std::string& value, const char* wanted) {
  return Error(Code::kInvalidArgument, StrCat(name, " is \"", value, "\"; it must be ", wanted));
}

// ------------------------------------------------------------------ what GPU plugins take

bool IsOff(const std::string& text) {
  const std::string lower = AsciiLower(text);
  return lower == "false" || lower == "0";
}

Result<std::optional<float>> MemoryFraction(const Platform& p) {
  const std::string now = p.Env("XLA_CLIENT_MEM_FRACTION");
  const std::string before = p.Env("XLA_PYTHON_CLIENT_MEM_FRACTION");
  if (!now.empty() && !before.empty())
    return Error(Code::kInvalidArgument,
                 "XLA_CLIENT_MEM_FRACTION and XLA_PYTHON_CLIENT_MEM_FRACTION are both set; the "
                 "second is the old name of the first: unset it");
  if (now.empty() && before.empty()) return std::optional<float>();
  const std::optional<float> fraction = ParsedFloat(now.empty() ? before : now);
  if (!fraction || !(*fraction > 0))
    return BadVariable(now.empty() ? "XLA_PYTHON_CLIENT_MEM_FRACTION" : "XLA_CLIENT_MEM_FRACTION",
                       now.empty() ? before : now, "a number above 0, such as 0.5");
  return fraction;
}

Status AddAllocator(const Platform& p, std::vector<NamedValue>& options) {
  const std::string set = p.Env("XLA_PYTHON_CLIENT_ALLOCATOR");
  const std::string allocator = set.empty() ? "default" : AsciiLower(set);
  const std::vector<std::string> known = {"default",    "platform", "bfc",
                                          "cuda_async", "vmm",      "address"};
  if (std::count(known.begin(), known.end(), allocator) == 0)
    return BadVariable("XLA_PYTHON_CLIENT_ALLOCATOR", set,
                       "default, platform, bfc, cuda_async, vmm or address");
  options.push_back({"allocator", allocator});
  return {};
}

/// "0,2" as numbers; "all" and an unset variable as nothing.
Status AddVisible(const Platform& p, const std::string& variable,
                  std::vector<NamedValue>& options) {
  const std::string list = p.Env(variable);
  if (list.empty() || list == "all") return {};
  std::vector<int64_t> ids;
  for (const std::string& part : Split(list, ',')) {
    const std::optional<int64_t> id = ParseInteger<int64_t>(part);
    if (!id || *id < 0) return BadVariable(variable, list, "\"all\" or numbers such as 0,1");
    ids.push_back(*id);
  }
  if (ids.empty()) return BadVariable(variable, list, "\"all\" or numbers such as 0,1");
  options.push_back({"visible_devices", std::move(ids)});
  return {};
}

Result<std::vector<NamedValue>> GpuOptions(Kind kind, const Platform& p) {
  const bool cuda = kind == Kind::kCuda, rocm = kind == Kind::kRocm;
  std::vector<NamedValue> options = {{"platform_name", std::string(cuda   ? "cuda"
                                                                   : rocm ? "ROCM"
                                                                          : "SYCL")}};
  NEEDLE_TRY(AddAllocator(p, options));
  NEEDLE_ASSIGN(const std::optional<float> fraction, MemoryFraction(p));
  if (fraction) options.push_back({"memory_fraction", *fraction});
  const std::string preallocate = p.Env("XLA_PYTHON_CLIENT_PREALLOCATE");
  if (!preallocate.empty()) options.push_back({"preallocate", !IsOff(preallocate)});
  const std::string collective = p.Env("XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB");
  if (!collective.empty()) {
    const std::optional<int64_t> mb = ParseInteger<int64_t>(collective);
    constexpr int64_t kMostMb = int64_t{1} << 40;  // as bytes it must fit
    if (!mb || *mb < 0 || *mb > kMostMb)
      return BadVariable("XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB", collective, "a number of MB");
    options.push_back({"collective_memory_size", *mb << 20});
  }
  NEEDLE_TRY(AddVisible(p,
                        cuda   ? "JAX_CUDA_VISIBLE_DEVICES"
                        : rocm ? "JAX_ROCM_VISIBLE_DEVICES"
                               : "JAX_ONEAPI_VISIBLE_DEVICES",
                        options));
  return options;
}

/// The plugin inside metal-pjrt-core is XLA's GPU client and wants its options.
std::vector<NamedValue> MetalOptions(const Candidate& c) {
  if (c.library.find("pjrt_c_api_mtl_plugin") == std::string::npos) return {};
  return {{"platform_name", std::string("METAL")},
          {"allocator", std::string("platform")},
          {"preallocate", false},
          {"memory_fraction", 1.0f},
          {"visible_devices", std::vector<int64_t>{0}},
          {"should_stage_host_to_device_transfers", false}};
}

/// Where the compiler finds CUDA's own tools and device libraries.
std::string CudaDataFolder(const Candidate& c, const Platform& p) {
  if (!p.Env("CUDA_ROOT").empty()) return p.Env("CUDA_ROOT");
  for (const char* folder : {"/nvidia/cu13", "/nvidia/cuda_nvcc"})
    if (!c.package.empty() && p.files->Exists(c.origin + folder)) return c.origin + folder;
  return "";
}

/// NVIDIA's libraries as their Python packages hold them, in an order in which each finds those
/// that it needs already open.
std::vector<std::string> CudaLibraries(const Candidate& c, const Platform& p) {
  std::vector<std::string> found;
  if (c.package.empty()) return found;
  const std::string root = c.origin + "/nvidia";
  for (const char* stem : {"libcudart.so", "libnvJitLink.so", "libnvrtc.so", "libcublasLt.so",
                           "libcublas.so", "libnccl.so", "libcupti.so", "libcusparse.so",
                           "libcusolver.so", "libcufft.so", "libnvshmem_host.so", "libcudnn.so"})
    for (const std::string& package : p.files->List(root)) {
      const std::string lib = StrCat(root, "/", package, "/lib");
      for (const std::string& name : p.files->List(lib))
        if (name.rfind(stem, 0) == 0) found.push_back(StrCat(lib, "/", name));
    }
  return found;
}

// ------------------------------------------------------------------ names

/// The kinds that a name stands for; empty for a plugin that only the environment can name.
std::vector<Kind> KindsOf(const std::string& name) {
  const std::string lower = AsciiLower(name);
  if (lower == "gpu") return {Kind::kCuda, Kind::kRocm, Kind::kOneapi};
  if (lower == "mps" || lower == "mtl") return {Kind::kMetal};
  if (lower == "cpu") return {Kind::kCpu};
  for (const Kind kind : KnownKinds())
    if (lower == Name(kind)) return {kind};
  return {};
}

Attempt NativeEngine() {
  Attempt attempt;
  attempt.candidate.kind = Kind::kCpu;
  attempt.candidate.name = "cpu";
  return attempt;
}

bool Suits(const Candidate& c, const std::string& name, const std::vector<Kind>& kinds) {
  return c.name == name || std::count(kinds.begin(), kinds.end(), c.kind) > 0;
}

/// Why nothing suits a name, as the end of a sentence.
std::string WhyNothing(const std::vector<Kind>& kinds, const Platform& p) {
  std::string why;
  for (const Kind kind : kinds) {
    const std::string hardware = WhyNoHardware(kind, p), hint = InstallHint(kind, p);
    const std::string one =
        !hardware.empty()
            ? hardware
            : StrCat("no plugin for ", Name(kind), " is installed",
                     hint.empty() ? " (there is none for this system)" : StrCat("; try: ", hint));
    why += StrCat(why.empty() ? "" : "; ", one);
  }
  return why;
}

/// What can be tried for a name. Environment plugins are taken without a look at the hardware: who
/// names a library knows the machine.
Result<std::vector<Attempt>> GroupFor(const std::string& name,
                                      const std::vector<Candidate>& candidates, const Wish& wish,
                                      const Platform& p) {
  const std::vector<Kind> kinds = KindsOf(name);
  if (kinds == std::vector<Kind>{Kind::kCpu}) return std::vector<Attempt>{NativeEngine()};
  std::vector<Attempt> group;
  bool known = !kinds.empty();
  for (const Candidate& c : candidates) {
    if (!Suits(c, name, kinds)) continue;
    known = true;
    if (!c.package.empty() && !WhyNoHardware(c.kind, p).empty()) continue;
    NEEDLE_ASSIGN(Attempt attempt, AttemptFor(c, p));
    group.push_back(std::move(attempt));
  }
  const std::string where = StrCat(wish.from, "=", name);
  if (!known)
    return Error(Code::kInvalidArgument,
                 StrCat(where,
                        ": no such device; there are auto, cpu, gpu, cuda, rocm, oneapi, "
                        "metal, tpu, xla-cpu and the names in "
                        "PJRT_NAMES_AND_LIBRARY_PATHS"));
  if (group.empty()) return Error(Code::kUnavailable, StrCat(where, ": ", WhyNothing(kinds, p)));
  return group;
}

Status ChooseNamed(const std::vector<Candidate>& candidates, const Platform& p, Choice* choice) {
  for (const std::string& name : choice->wish.names) {
    NEEDLE_ASSIGN(std::vector<Attempt> group, GroupFor(name, candidates, choice->wish, p));
    choice->groups.push_back(std::move(group));
  }
  return {};
}

Status ChooseBest(const std::vector<Candidate>& candidates, const Platform& p, Choice* choice) {
  std::vector<Attempt> group;
  for (const Candidate& c : candidates) {
    if (c.kind == Kind::kXlaCpu) continue;  // only when it is named
    const std::string why = c.package.empty() ? "" : WhyNoHardware(c.kind, p);
    if (!why.empty()) {
      choice->passed_over.push_back(StrCat(c.name, ": ", why));
      continue;
    }
    NEEDLE_ASSIGN(Attempt attempt, AttemptFor(c, p));
    group.push_back(std::move(attempt));
  }
  group.push_back(NativeEngine());
  choice->groups.push_back(std::move(group));
  return {};
}

Status CheckBackendTarget(const Platform& p) {
  const std::string target = p.Env("JAX_BACKEND_TARGET");
  if (target.empty() || target == "local") return {};
  return BadVariable("JAX_BACKEND_TARGET", target,
                     "empty or \"local\": devices of other machines are not supported here");
}

}  // namespace

Result<Wish> ReadWish(const std::string& device, const Platform& p) {
  Wish wish;
  std::string text = WithoutBlanks(device);
  wish.from = "--device";
  if (text.empty() || text == "auto") {
    text = WithoutBlanks(p.Env("NEEDLE_DEVICE"));
    wish.from = "NEEDLE_DEVICE";
  }
  if (text.empty() || text == "auto") {
    wish.names = Split(p.Env("JAX_PLATFORMS"), ',');
    wish.from = wish.names.empty() ? "" : "JAX_PLATFORMS";
    return wish;
  }
  const size_t colon = text.find(':');
  if (colon != std::string::npos) {
    const std::optional<int> index = ParseInteger<int>(text.substr(colon + 1));
    if (!index || *index < 0 || colon == 0)
      return Error(Code::kInvalidArgument, StrCat(wish.from, "=", text,
                                                  ": wanted is a device's name, or a name and a "
                                                  "number such as cuda:1"));
    wish.numbered = true;
    wish.index = *index;
    text.resize(colon);
    if (*index > 0 && KindsOf(text) == std::vector<Kind>{Kind::kCpu})
      return Error(Code::kInvalidArgument,
                   StrCat(wish.from, "=", text, ":", *index, ": the native engine is one device, ",
                          text, "; --threads says how many threads it takes"));
  }
  wish.names = {text};
  return wish;
}

Result<Attempt> AttemptFor(const Candidate& c, const Platform& p) {
  Attempt attempt;
  attempt.candidate = c;
  attempt.options = c.options;  // a .json file says all that is wanted
  if (c.options.empty()) {
    if (c.kind == Kind::kCuda || c.kind == Kind::kRocm || c.kind == Kind::kOneapi) {
      NEEDLE_ASSIGN(attempt.options, GpuOptions(c.kind, p));
    } else if (c.kind == Kind::kMetal) {
      attempt.options = MetalOptions(c);
    } else if (c.kind == Kind::kXlaCpu) {
      NEEDLE_ASSIGN(const int count, HostDeviceCount(p));
      attempt.options = {{"cpu_device_count", int64_t{count}}};
    }
  }
  if (c.kind == Kind::kCuda) {
    attempt.preload = CudaLibraries(c, p);
    const std::string folder = CudaDataFolder(c, p);
    if (!folder.empty()) attempt.overrides["xla_gpu_cuda_data_dir"] = folder;
  }
  return attempt;
}

Result<Choice> Choose(const Platform& p, const std::string& device) {
  Choice choice;
  NEEDLE_TRY(CheckBackendTarget(p));
  NEEDLE_ASSIGN(choice.wish, ReadWish(device, p));
  // The native engine alone needs no look at the disk.
  if (choice.wish.names == std::vector<std::string>{"cpu"}) {
    choice.groups = {{NativeEngine()}};
    return choice;
  }
  NEEDLE_ASSIGN(const std::vector<Candidate> candidates, Discover(p, !choice.automatic()));
  NEEDLE_TRY(choice.automatic() ? ChooseBest(candidates, p, &choice)
                                : ChooseNamed(candidates, p, &choice));
  return choice;
}

std::string VersionNote(int api_minor, const Platform& p, bool* fatal) {
  *fatal = false;
  if (api_minor >= kTestedFrom && api_minor <= kTestedTo) return "";
  const std::string found = StrCat("the plugin speaks PJRT 0.", api_minor, "; tested are 0.",
                                   kTestedFrom, " to 0.", kTestedTo);
  const std::string set = p.Env("ENABLE_PJRT_COMPATIBILITY");
  if (set.empty()) return found + "; check it with \"needle doctor\"";
  *fatal = IsOff(set);
  return *fatal ? StrCat(found, ", and ENABLE_PJRT_COMPATIBILITY=", set, " allows no other") : "";
}

std::string UnusedGpuNote(Kind used, const Platform& p, const std::vector<std::string>& why) {
  if (used != Kind::kCpu && used != Kind::kXlaCpu) return "";
  const Hardware hardware = HardwareOf(p);
  // Not Intel's: most of them are small ones beside a processor, and their plugin is experimental.
  const Kind kind = hardware.nvidia  ? Kind::kCuda
                    : hardware.amd   ? Kind::kRocm
                    : hardware.apple ? Kind::kMetal
                                     : Kind::kCpu;
  if (kind == Kind::kCpu || !WhyNoHardware(kind, p).empty()) return "";
  const std::string here = kind == Kind::kCuda   ? "an NVIDIA GPU"
                           : kind == Kind::kRocm ? "an AMD GPU"
                                                 : "an Apple GPU";
  if (!why.empty()) return StrCat(here, " is here but is not used: ", why.front());
  const std::string hint = InstallHint(kind, p);
  return hint.empty() ? StrCat(here, " is here but is not used")
                      : StrCat(here, " is here but is not used; its plugin: ", hint);
}

}  // namespace needle::pjrt
