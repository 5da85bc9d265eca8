#include "backend/pjrt/client.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <utility>

#include "backend/pjrt/client_core.h"
#include "backend/pjrt/compile_cache.h"
#include "backend/pjrt/compile_options.h"
#include "base/env.h"
#include "base/file.h"
#include "base/native_path.h"
#include "base/str_cat.h"

namespace needle::pjrt {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Status ReadNames(ClientCore& core) {
  const std::string& where = core.plugin->Path();
  auto name = abi::Args<abi::ClientPlatformNameArgs>();
  name.client = core.client;
  NEEDLE_TRY(Check(core.api(), where, core.api().client_platform_name(&name), "asking for a name"));
  core.platform_name.assign(name.platform_name, name.platform_name_size);
  auto version = abi::Args<abi::ClientPlatformVersionArgs>();
  version.client = core.client;
  NEEDLE_TRY(Check(core.api(), where, core.api().client_platform_version(&version),
                   "asking for a version"));
  core.platform_version.assign(version.platform_version, version.platform_version_size);
  return {};
}

/// What is only for show (kind, attributes) may be missing; the id may not.
Result<DeviceInfo> ReadDevice(const ClientCore& core, abi::Device* device) {
  const abi::Api& api = core.api();
  const std::string& where = core.plugin->Path();
  constexpr const char* kAsking = "asking about a device";
  DeviceInfo info;
  auto get = abi::Args<abi::DeviceGetDescriptionArgs>();
  get.device = device;
  NEEDLE_TRY(Check(api, where, api.device_get_description(&get), kAsking));
  auto id = abi::Args<abi::DeviceDescriptionIdArgs>();
  id.description = get.description;
  NEEDLE_TRY(Check(api, where, api.device_description_id(&id), kAsking));
  info.id = id.id;
  auto hardware = abi::Args<abi::DeviceLocalHardwareIdArgs>();
  hardware.device = device;
  if (Check(api, where, api.device_local_hardware_id(&hardware), kAsking).ok())
    info.hardware = hardware.local_hardware_id;
  auto kind = abi::Args<abi::DeviceDescriptionKindArgs>();
  kind.description = get.description;
  if (Check(api, where, api.device_description_kind(&kind), kAsking).ok())
    info.kind.assign(kind.kind, kind.kind_size);
  auto debug = abi::Args<abi::DeviceDescriptionDebugStringArgs>();
  debug.description = get.description;
  if (Check(api, where, api.device_description_debug_string(&debug), kAsking).ok())
    info.debug.assign(debug.debug_string, debug.debug_string_size);
  auto attributes = abi::Args<abi::DeviceDescriptionAttributesArgs>();
  attributes.description = get.description;
  if (Check(api, where, api.device_description_attributes(&attributes), kAsking).ok())
    for (size_t i = 0; i < attributes.num_attributes; ++i)
      info.attributes.push_back(FromAbi(attributes.attributes[i]));
  return info;
}

Status ReadDevices(ClientCore& core) {
  auto args = abi::Args<abi::ClientAddressableDevicesArgs>();
  args.client = core.client;
  NEEDLE_TRY(Check(core.api(), core.plugin->Path(), core.api().client_addressable_devices(&args),
                   "listing the devices"));
  for (size_t i = 0; i < args.num_devices; ++i) {
    NEEDLE_ASSIGN(DeviceInfo info, ReadDevice(core, args.devices[i]));
    core.handles.push_back(args.devices[i]);
    core.devices.push_back(std::move(info));
  }
  if (!core.devices.empty()) return {};
  return Error(Code::kUnavailable, StrCat(core.plugin->Path(), ": the plugin finds no device"));
}

Error NoDevice(const ClientCore& core, int device) {
  return Error(Code::kInvalidArgument, StrCat("there is no device ", device, "; the plugin has ",
                                              core.handles.size(), ", counted from 0"));
}

/// Says which device each replica runs on, where the caller did not.
Result<CompileOptions> WithDevices(CompileOptions options, const ClientCore& core) {
  if (!options.devices.empty()) return options;
  if (options.replicas < 1 || static_cast<size_t>(options.replicas) > core.devices.size())
    return NoDevice(core, options.replicas - 1);
  for (int r = 0; r < options.replicas; ++r)
    options.devices.push_back(core.devices[static_cast<size_t>(r)].id);
  return options;
}

/// What a host's own processor is: a program compiled for one may hold instructions that another
/// lacks, and home folders travel.
std::string ProcessorName() {
  const Result<std::string> text = ReadTextFile("/proc/cpuinfo");
  if (!text.ok()) return "";
  const size_t flags = text->find("flags");
  return flags == std::string::npos ? "" : text->substr(flags, text->find('\n', flags) - flags);
}

std::string FileSizeOf(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(NativePath(path), error);
  return error ? "?" : StrCat(size);
}

}  // namespace

ClientCore::~ClientCore() {
  if (client == nullptr || whole) return;
  auto args = abi::Args<abi::ClientDestroyArgs>();
  args.client = client;
  (void)Check(api(), plugin->Path(), api().client_destroy(&args), "closing");
}

int ClientCore::IndexOf(const abi::Device* device) const {
  const auto it = std::find(handles.begin(), handles.end(), device);
  return it == handles.end() ? -1 : static_cast<int>(it - handles.begin());
}

Client::Client(std::shared_ptr<ClientCore> core) : core_(std::move(core)) {}
Client::~Client() = default;

Result<std::unique_ptr<Client>> Client::Create(std::shared_ptr<Plugin> plugin,
                                               std::span<const NamedValue> options) {
  std::vector<abi::NamedValue> values;
  for (const NamedValue& option : options) values.push_back(ToAbi(option));
  auto core = std::make_shared<ClientCore>();
  core->plugin = std::move(plugin);
  auto args = abi::Args<abi::ClientCreateArgs>();
  args.create_options = values.data();
  args.num_options = values.size();
  const Status created = Check(core->api(), core->plugin->Path(), core->api().client_create(&args),
                               "the device cannot be opened");
  // Whatever the plugin calls it: the device cannot be used.
  if (!created.ok()) return Error(Code::kUnavailable, created.error().message());
  core->client = args.client;
  NEEDLE_TRY(ReadNames(*core));
  NEEDLE_TRY(ReadDevices(*core));
  return std::unique_ptr<Client>(new Client(std::move(core)));
}

const Plugin& Client::plugin() const { return *core_->plugin; }
const std::string& Client::PlatformName() const { return core_->platform_name; }
const std::string& Client::PlatformVersion() const { return core_->platform_version; }
const std::vector<DeviceInfo>& Client::Devices() const { return core_->devices; }
int64_t Client::bytes_to_host() const { return core_->bytes_to_host; }
int64_t Client::bytes_to_device() const { return core_->bytes_to_device; }
void Client::SetCache(const std::string& folder) { cache_ = folder; }
void Client::SetOverrides(std::map<std::string, FlagValue> overrides) {
  overrides_ = std::move(overrides);
}

Result<std::unique_ptr<Client>> Client::Only(int device) const {
  const auto d = static_cast<size_t>(device);
  if (device < 0 || d >= core_->devices.size()) return NoDevice(*core_, device);
  auto core = std::make_shared<ClientCore>();
  core->plugin = core_->plugin;
  core->whole = core_;
  core->client = core_->client;
  core->platform_name = core_->platform_name;
  core->platform_version = core_->platform_version;
  core->devices = {core_->devices[d]};
  core->handles = {core_->handles[d]};
  std::unique_ptr<Client> only(new Client(std::move(core)));
  only->cache_ = cache_;
  only->overrides_ = overrides_;
  return only;
}

DeviceMemory Client::Memory(int device) const {
  DeviceMemory memory;
  auto args = abi::Args<abi::DeviceMemoryStatsArgs>();
  args.device = core_->handles.at(static_cast<size_t>(device));
  if (!Check(core_->api(), core_->plugin->Path(), core_->api().device_memory_stats(&args),
             "asking for memory")
           .ok())
    return memory;  // a plugin need not know
  memory.bytes_in_use = args.bytes_in_use;
  if (args.peak_bytes_in_use_is_set) memory.peak_bytes = args.peak_bytes_in_use;
  if (args.bytes_limit_is_set) memory.limit_bytes = args.bytes_limit;
  return memory;
}

Result<Buffer> Client::Upload(const void* data, const ArraySpec& spec, int device) {
  if (device < 0 || static_cast<size_t>(device) >= core_->handles.size())
    return Error(Code::kInvalidArgument,
                 StrCat("there is no device ", device, "; the plugin has ", core_->handles.size()));
  auto args = abi::Args<abi::ClientBufferFromHostBufferArgs>();
  args.client = core_->client;
  args.data = data;
  args.type = TypeOf(spec.dtype);
  args.dims = spec.shape.data();
  args.num_dims = spec.shape.size();
  args.host_buffer_semantics = abi::kImmutableUntilTransferCompletes;
  args.device = core_->handles[static_cast<size_t>(device)];
  const std::string& where = core_->plugin->Path();
  NEEDLE_TRY(Check(core_->api(), where, core_->api().client_buffer_from_host_buffer(&args),
                   "copying an array to the device"));
  Buffer buffer;
  buffer.core_ = core_;
  buffer.handle_ = args.buffer;
  buffer.spec_ = spec;
  buffer.device_ = device;
  NEEDLE_TRY(
      Await(core_->api(), where, args.done_with_host_buffer, "copying an array to the device"));
  core_->bytes_to_device += static_cast<int64_t>(spec.bytes());
  return buffer;
}

Result<Executable> Client::CompileNow(const Program& program, const std::string& options) {
  std::string text = program.text;  // the interface takes it as mutable
  auto code = abi::Args<abi::Program>();
  code.code = text.data();
  code.code_size = text.size();
  code.format = "mlir";
  code.format_size = 4;
  auto args = abi::Args<abi::ClientCompileArgs>();
  args.client = core_->client;
  args.program = &code;
  args.compile_options = options.data();
  args.compile_options_size = options.size();
  NEEDLE_TRY(Check(core_->api(), core_->plugin->Path(), core_->api().client_compile(&args),
                   "compiling a program"));
  return Executable::Adopt(core_, args.executable, program);
}

std::optional<Executable> Client::LoadCached(const Program& program, const std::string& path) {
  const std::optional<std::string> bytes = LoadCompiled(path);
  if (!bytes || !abi::HasSlot(core_->api(), &abi::Api::executable_deserialize_and_load))
    return std::nullopt;
  auto args = abi::Args<abi::ExecutableDeserializeAndLoadArgs>();
  args.client = core_->client;
  args.serialized_executable = bytes->data();
  args.serialized_executable_size = bytes->size();
  const Status loaded =
      Check(core_->api(), core_->plugin->Path(),
            core_->api().executable_deserialize_and_load(&args), "loading a compiled program");
  if (!loaded.ok()) return std::nullopt;
  Result<Executable> executable = Executable::Adopt(core_, args.loaded_executable, program);
  if (!executable.ok()) return std::nullopt;
  executable->from_cache_ = true;
  return std::move(executable).value();
}

void Client::StoreCached(const Executable& executable, const std::string& path) {
  const abi::Api& api = core_->api();
  const std::string& where = core_->plugin->Path();
  auto get = abi::Args<abi::LoadedExecutableGetExecutableArgs>();
  get.loaded_executable = static_cast<abi::LoadedExecutable*>(executable.handle_);
  if (!Check(api, where, api.loaded_executable_get_executable(&get), "storing").ok()) return;
  auto args = abi::Args<abi::ExecutableSerializeArgs>();
  args.executable = get.executable;
  // A plugin that cannot serialise compiles each time.
  if (Check(api, where, api.executable_serialize(&args), "storing").ok()) {
    StoreCompiled(path, {args.bytes, args.bytes_size});
    args.deleter(args.serialized);
  }
  auto destroy = abi::Args<abi::ExecutableDestroyArgs>();
  destroy.executable = get.executable;
  (void)Check(api, where, api.executable_destroy(&destroy), "storing");
}

std::string Client::CacheKey(const Program& program, const std::string& options) const {
  std::vector<std::string> parts = {
      program.text,
      options,
      core_->platform_name,
      core_->platform_version,
      core_->plugin->Path(),
      FileSizeOf(core_->plugin->Path()),
      StrCat(core_->plugin->ApiMajor(), ".", core_->plugin->ApiMinor()),
      GetEnvOr("XLA_FLAGS", "")};
  for (const DeviceInfo& device : core_->devices) parts.push_back(StrCat(device.id, device.kind));
  if (core_->platform_name == "cpu") parts.push_back(ProcessorName());
  return DigestOf(parts);
}

Result<Executable> Client::Compile(const Program& program, const CompileOptions& given) {
  const auto start = Clock::now();
  NEEDLE_ASSIGN(const CompileOptions options, WithDevices(given, *core_));
  const std::string serialized = Serialize(options, overrides_);
  const std::string entry = cache_.empty() ? "" : CacheFile(cache_, CacheKey(program, serialized));
  if (!entry.empty()) {
    if (std::optional<Executable> cached = LoadCached(program, entry)) {
      cached->seconds_ = SecondsSince(start);
      return std::move(*cached);
    }
  }
  NEEDLE_ASSIGN(Executable compiled, CompileNow(program, serialized));
  compiled.seconds_ = SecondsSince(start);
  if (!entry.empty()) StoreCached(compiled, entry);
  return compiled;
}

}  // namespace needle::pjrt
