#include "backend/pjrt/discover.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/ascii.h"
#include "base/file.h"
#include "base/str_cat.h"
#include "json/json.h"

namespace needle::pjrt {
namespace {

struct KindRow {
  Kind kind;
  int priority;
  std::string_view name, jax;
};
constexpr KindRow kKinds[] = {
    {Kind::kCuda, 500, "cuda", "gpu"},     {Kind::kRocm, 500, "rocm", "gpu"},
    {Kind::kOneapi, 500, "oneapi", "gpu"}, {Kind::kMetal, 500, "metal", "metal"},
    {Kind::kTpu, 300, "tpu", "tpu"},       {Kind::kXlaCpu, 0, "xla-cpu", "cpu"},
    {Kind::kCpu, 0, "cpu", "cpu"},         {Kind::kOther, 400, "other", "other"},
};

const KindRow& RowOf(Kind kind) {
  return *std::find_if(std::begin(kKinds), std::end(kKinds),
                       [&](const KindRow& row) { return row.kind == kind; });
}

/// A plugin that a Python package holds. `path` is below site-packages; a '*' stands for digits, of
/// which the highest number wins.
struct Place {
  Kind kind;
  Os os;
  std::string_view package, path;
  std::string_view caution = {};
};
constexpr std::string_view kYoung =
    "a young plugin by a single maintainer, which could not be tested here; check it with "
    "\"needle doctor\"";
// Of several for one kind the first wins.
constexpr Place kPlaces[] = {
    {Kind::kCuda, Os::kLinux, "jax-cuda*-pjrt", "jax_plugins/xla_cuda*/xla_cuda_plugin.so"},
    {Kind::kRocm, Os::kLinux, "jax-rocm*-pjrt", "jax_plugins/xla_rocm*/xla_rocm_plugin.so"},
    {Kind::kOneapi, Os::kLinux, "jax-oneapi-pjrt", "jax_plugins/xla_oneapi/xla_oneapi_plugin.so"},
    {Kind::kTpu, Os::kLinux, "libtpu", "libtpu/libtpu.so"},
    {Kind::kMetal, Os::kMacOs, "metaljax", "metaljax/lib/libmetal_pjrt_native.dylib", kYoung},
    {Kind::kMetal, Os::kMacOs, "metal-pjrt-core", "metal_pjrt_core/pjrt_c_api_mtl_plugin.dylib",
     kYoung},
    {Kind::kMetal, Os::kMacOs, "jax-mps", "jax_plugins/mps/lib/libpjrt_plugin_mps.dylib", kYoung},
    {Kind::kMetal, Os::kMacOs, "jax-metal", "jax_plugins/metal_plugin/pjrt_plugin_metal_14.dylib",
     "jax-metal has had no release since 2024 and fails with newer programs; install metaljax "
     "instead"},
    {Kind::kXlaCpu, Os::kLinux, "lammps-jax-pjrt-cpu",
     "lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so"},
    {Kind::kXlaCpu, Os::kLinux, "fastatomstruct-xla-cpu", "fastatomstruct_xla_cpu/libpjrt_cpu.so"},
    {Kind::kXlaCpu, Os::kLinux, "xla-cpu-pjrt", "xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"},
};

std::string Replaced(std::string text, char from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, 1, to);
  return text;
}

/// The digits for the '*' of a place that are there, the highest number first; {""} without '*'.
std::vector<std::string> Numbers(const Place& place, const std::string& site,
                                 const FileView& files) {
  const std::string path(place.path);
  const size_t star = path.find('*');
  if (star == std::string::npos) return {""};
  const size_t slash = path.rfind('/', star);
  const std::string prefix = path.substr(slash + 1, star - slash - 1);
  std::vector<std::string> numbers;
  for (const std::string& name : files.List(StrCat(site, "/", path.substr(0, slash)))) {
    if (name.rfind(prefix, 0) != 0) continue;
    const std::string digits = name.substr(prefix.size());
    if (!digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos)
      numbers.push_back(digits);
  }
  std::sort(numbers.begin(), numbers.end(), [](const std::string& a, const std::string& b) {
    return std::pair(a.size(), a) > std::pair(b.size(), b);
  });
  return numbers;
}

/// "jax-cuda13-pjrt" has a folder "jax_cuda13_pjrt-0.11.2.dist-info" beside it.
std::string VersionOf(const std::string& package, const std::string& site, const FileView& files) {
  const std::string prefix = Replaced(package, '-', "_") + "-";
  constexpr std::string_view kSuffix = ".dist-info";
  for (const std::string& name : files.List(site)) {
    if (name.rfind(prefix, 0) != 0 || name.size() < prefix.size() + kSuffix.size()) continue;
    if (name.compare(name.size() - kSuffix.size(), kSuffix.size(), kSuffix) == 0)
      return name.substr(prefix.size(), name.size() - kSuffix.size() - prefix.size());
  }
  return "";
}

void SearchSite(const Platform& p, const std::string& site, std::vector<Candidate>& found) {
  for (const Place& place : kPlaces) {
    if (place.os != p.os) continue;
    for (const std::string& number : Numbers(place, site, *p.files)) {
      Candidate c;
      c.kind = place.kind;
      c.name = Name(place.kind);
      c.library = StrCat(site, "/", Replaced(std::string(place.path), '*', number));
      if (!p.files->Exists(c.library)) continue;
      c.package = Replaced(std::string(place.package), '*', number);
      c.version = VersionOf(c.package, site, *p.files);
      c.origin = site;
      c.caution = place.caution;
      c.priority = RowOf(place.kind).priority;
      found.push_back(std::move(c));
    }
  }
}

// ------------------------------------------------------------------ PJRT_NAMES_AND_LIBRARY_PATHS

Result<NamedValue> OptionOf(const std::string& name, const json::Value& value,
                            const std::string& path) {
  if (value.is_string()) return NamedValue{name, value.as_string()};
  if (value.is_bool()) return NamedValue{name, value.as_bool()};
  if (value.is_float()) return NamedValue{name, static_cast<float>(value.as_double())};
  if (value.is_int() && value.as_int64()) return NamedValue{name, *value.as_int64()};
  if (value.is_array()) {
    std::vector<int64_t> list;
    for (const json::Value& item : value.items()) {
      if (!item.is_int() || !item.as_int64()) break;
      list.push_back(*item.as_int64());
    }
    if (list.size() == value.items().size()) return NamedValue{name, std::move(list)};
  }
  return Error(Code::kInvalidArgument,
               StrCat(path, ": create_options.", name,
                      " must be a string, a number, true, false or a list of integers"));
}

/// {"library_path": "...", "create_options": {...}}
Status ReadConfig(const Platform& p, Candidate* candidate) {
  const std::string path = candidate->library;
  const std::optional<std::string> text = p.files->Read(path);
  if (!text) return Error(Code::kNotFound, StrCat(path, ": the file cannot be read"));
  const Result<json::Value> parsed = json::Parse(*text);
  if (!parsed.ok())
    return Error(Code::kInvalidArgument, StrCat(path, ": ", parsed.error().message()));
  const json::Value* library = parsed->is_object() ? parsed->Find("library_path") : nullptr;
  if (library == nullptr || !library->is_string() || library->as_string().empty())
    return Error(Code::kInvalidArgument,
                 StrCat(path, ": \"library_path\" is missing; it names the plugin's library"));
  candidate->library = library->as_string();
  const json::Value* options = parsed->Find("create_options");
  if (options == nullptr) return {};
  if (!options->is_object())
    return Error(Code::kInvalidArgument,
                 StrCat(path, R"(: "create_options" must be an object, such as {"name": 1})"));
  for (const auto& [name, value] : options->members()) {
    NEEDLE_ASSIGN(NamedValue option, OptionOf(name, value, path));
    candidate->options.push_back(std::move(option));
  }
  return {};
}

Result<Candidate> EnvironmentCandidate(const std::string& entry, const Platform& p) {
  constexpr const char* kVariable = "PJRT_NAMES_AND_LIBRARY_PATHS";
  const size_t colon = entry.find(':');  // the first: a path may hold others
  if (colon == std::string::npos || colon == 0 || colon + 1 == entry.size())
    return Error(Code::kInvalidArgument,
                 StrCat(kVariable, " has \"", entry, "\"; wanted is NAME:PATH,NAME:PATH"));
  Candidate c;
  c.name = entry.substr(0, colon);
  c.library = entry.substr(colon + 1);
  c.kind = KindNamed(c.name);
  c.origin = kVariable;
  c.priority = RowOf(c.kind).priority;
  const std::string name = AsciiLower(c.name);
  if (name == "cpu" || name == "auto")
    return Error(Code::kInvalidArgument,
                 StrCat(kVariable, " names a plugin \"", c.name, "\"; that name means ",
                        name == "cpu" ? "the built-in engine. Call it xla-cpu"
                                      : "that a device is chosen. Give it another"));
  if (c.library.size() > 5 && c.library.compare(c.library.size() - 5, 5, ".json") == 0)
    NEEDLE_TRY(ReadConfig(p, &c));
  return c;
}

Result<std::vector<Candidate>> FromEnvironment(const Platform& p) {
  std::vector<Candidate> found;
  const std::string list = p.Env("PJRT_NAMES_AND_LIBRARY_PATHS");
  for (size_t at = 0; at < list.size();) {
    const size_t end = std::min(list.find(',', at), list.size());
    if (end > at) {
      NEEDLE_ASSIGN(Candidate c, EnvironmentCandidate(list.substr(at, end - at), p));
      found.push_back(std::move(c));
    }
    at = end + 1;
  }
  if (!p.Env("TPU_LIBRARY_PATH").empty()) {
    Candidate c;
    c.kind = Kind::kTpu;
    c.name = Name(c.kind);
    c.library = p.Env("TPU_LIBRARY_PATH");
    c.origin = "TPU_LIBRARY_PATH";
    c.priority = RowOf(c.kind).priority;
    found.push_back(std::move(c));
  }
  return found;
}

/// "" unless the variable hides every device.
std::string HiddenBy(const Platform& p, std::initializer_list<const char*> variables) {
  for (const char* variable : variables)
    if (p.HasEnv(variable) && (p.Env(variable).empty() || p.Env(variable) == "-1"))
      return StrCat("hidden by ", variable, "=", p.Env(variable));
  return "";
}

std::string WhyNoHardwareIn(const Hardware& hardware, Kind kind, const Platform& p) {
  switch (kind) {
    case Kind::kCuda:
      if (!hardware.nvidia) return "no NVIDIA GPU";
      return HiddenBy(p, {"CUDA_VISIBLE_DEVICES"});
    case Kind::kRocm:
      if (!hardware.amd) return "no AMD GPU";
      return HiddenBy(p, {"HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"});
    case Kind::kOneapi:
      return hardware.intel ? "" : "no Intel GPU";
    case Kind::kMetal:
      return hardware.apple ? "" : "no Apple GPU";
    case Kind::kTpu:
      return hardware.tpu ? "" : "no TPU";
    case Kind::kCpu:
    case Kind::kXlaCpu:
    case Kind::kOther:
      break;
  }
  return "";
}

/// Whether there is hardware of a kind of which there is no plugin.
bool LacksAPlugin(const Platform& p, const std::vector<Candidate>& named,
                  const std::vector<Candidate>& packaged) {
  const auto has = [](const std::vector<Candidate>& candidates, Kind kind) {
    return std::any_of(candidates.begin(), candidates.end(),
                       [kind](const Candidate& c) { return c.kind == kind; });
  };
  const Hardware hardware = HardwareOf(p);
  return std::any_of(KnownKinds().begin(), KnownKinds().end(), [&](Kind kind) {
    return kind != Kind::kXlaCpu && WhyNoHardwareIn(hardware, kind, p).empty() &&
           !has(named, kind) && !has(packaged, kind);
  });
}

}  // namespace

std::string_view Name(Kind kind) { return RowOf(kind).name; }
std::string_view JaxName(Kind kind) { return RowOf(kind).jax; }
bool IsGpu(Kind kind) { return RowOf(kind).jax == "gpu" || kind == Kind::kMetal; }

Kind KindNamed(const std::string& name) {
  const std::string lower = AsciiLower(name);
  if (lower == "mps" || lower == "mtl") return Kind::kMetal;
  if (lower == "sycl") return Kind::kOneapi;
  for (const KindRow& row : kKinds)
    if (lower == row.name && row.kind != Kind::kCpu) return row.kind;
  return Kind::kOther;
}

const std::vector<Kind>& KnownKinds() {
  static const std::vector<Kind> kinds = {Kind::kCuda,  Kind::kRocm, Kind::kOneapi,
                                          Kind::kMetal, Kind::kTpu,  Kind::kXlaCpu};
  return kinds;
}

Result<std::vector<Candidate>> Discover(const Platform& p, bool thorough) {
  NEEDLE_ASSIGN(std::vector<Candidate> found, FromEnvironment(p));
  std::vector<Candidate> packaged;
  for (const std::string& site : SitePackages(p)) SearchSite(p, site, packaged);
  if (p.ask_python && ((thorough && packaged.empty()) || LacksAPlugin(p, found, packaged)))
    for (const std::string& site : p.ask_python()) SearchSite(p, site, packaged);
  // Several of one kind may be there: the next is tried when the first fails.
  std::set<std::string> libraries;
  for (const Candidate& c : found) libraries.insert(c.library);
  for (Candidate& c : packaged)
    if (libraries.insert(c.library).second) found.push_back(std::move(c));
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return a.priority > b.priority; });
  return found;
}

std::string InstallHint(Kind kind, const Platform& p) {
  if (p.os == Os::kMacOs) return kind == Kind::kMetal ? "pip install metaljax" : "";
  if (p.os != Os::kLinux) return "";
  switch (kind) {
    case Kind::kCuda:
      return "pip install jax-cuda13-pjrt";
    case Kind::kRocm:
      return p.arch == "x86_64" ? "pip install jax-rocm7-pjrt" : "";
    case Kind::kOneapi:
      return p.arch == "x86_64" ? "pip install jax-oneapi-pjrt" : "";
    case Kind::kTpu:
      return p.arch == "x86_64" ? "pip install libtpu" : "";
    case Kind::kXlaCpu:
      return p.arch == "x86_64" ? "pip install lammps-jax-pjrt-cpu" : "";
    case Kind::kCpu:
    case Kind::kMetal:
    case Kind::kOther:
      break;
  }
  return "";
}

std::string WhyNoHardware(Kind kind, const Platform& p) {
  return WhyNoHardwareIn(HardwareOf(p), kind, p);
}

}  // namespace needle::pjrt
