// A PJRT plugin that plays what goes wrong. What it does stands in a file beside it, named like the
// library and ".mode", one key=value a line:
//   mode      healthy (the default), old, future, short-table, client-error, no-device,
//   oom-compile,
//             oom-run, crash-load, crash-client, hang-load, wrong-product, bad-initialize
//   platform, kind, devices, memory, minor    what it says of itself
//   real, swap   hands all to this plugin, after replacing "stablehlo.<a>" by "stablehlo.<b>" in
//                each program ("swap=a:b"): one operation that computes wrongly
//   oom-after    with `real`: running a program fails for want of memory after so many runs
// Alone it computes nothing but the product of two 2x2 matrices, whatever the program says. Each
// load adds a line to a file named like the library and ".log".
#ifdef _WIN32
#include <windows.h>
#else
#include <dlfcn.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "backend/pjrt/pjrt_abi.h"

namespace needle::pjrt::abi {

struct Error {
  int code;
  std::string message;
};
struct DeviceDescription {
  int id;
};
struct Device {
  DeviceDescription description;
};
struct Client {
  std::vector<Device> devices;
  std::vector<Device*> handles;
};
struct Executable {
  int unused;
};
struct LoadedExecutable {
  Client* client;
  Device* device;
};
struct Buffer {
  std::vector<float> data;
  std::vector<int64_t> dims;
};

namespace {

using GetApi = const Api* (*)();

#ifdef _WIN32
std::string OwnPath() {
  HMODULE library = nullptr;
  ::GetModuleHandleExA(
      GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
      reinterpret_cast<const char*>(&OwnPath), &library);
  char path[MAX_PATH] = "";
  ::GetModuleFileNameA(library, path, MAX_PATH);
  return path;
}
// There is no plugin for Windows to stand before.
GetApi RealPlugin(const std::string&) { return nullptr; }
#else
std::string OwnPath() {
  Dl_info info;
  return ::dladdr(reinterpret_cast<void*>(&OwnPath), &info) != 0 ? info.dli_fname : "";
}
GetApi RealPlugin(const std::string& path) {
  void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  return reinterpret_cast<GetApi>(::dlsym(library, "GetPjrtApi"));
}
#endif

std::string Setting(const std::string& key, const std::string& fallback) {
  static const std::map<std::string, std::string> settings = [] {
    std::map<std::string, std::string> read;
    std::ifstream file(OwnPath() + ".mode");
    for (std::string line; std::getline(file, line);)
      if (const size_t equals = line.find('='); equals != std::string::npos)
        read[line.substr(0, equals)] = line.substr(equals + 1);
    return read;
  }();
  const auto it = settings.find(key);
  return it == settings.end() ? fallback : it->second;
}

bool Plays(const char* mode) { return Setting("mode", "healthy") == mode; }
int Count(const char* key, int fallback) {
  return std::atoi(Setting(key, std::to_string(fallback)).c_str());
}

const std::string& Platform() {
  static const std::string name = Setting("platform", "cuda");
  return name;
}
const std::string& DeviceKind() {
  static const std::string kind = Setting("kind", "Fake GPU");
  return kind;
}

Error* OutOfMemory() { return new Error{kErrorResourceExhausted, "Out of memory allocating 7 TB"}; }

// ------------------------------------------------------------------ the calls

void DestroyError(ErrorDestroyArgs* a) { delete a->error; }
void MessageOf(ErrorMessageArgs* a) {
  a->message = a->error->message.data();
  a->message_size = a->error->message.size();
}
Error* CodeOf(ErrorGetCodeArgs* a) {
  a->code = a->error->code;
  return nullptr;
}

Error* Initialize(PluginInitializeArgs*) {
  return Plays("bad-initialize") ? new Error{kErrorInternal, "the driver is too old"} : nullptr;
}
Error* Attributes(PluginAttributesArgs* a) {
  a->num_attributes = 0;
  return nullptr;
}

Error* Create(ClientCreateArgs* a) {
  if (Plays("client-error")) return new Error{kErrorInternal, "CUDA_ERROR_NO_DEVICE"};
  if (Plays("crash-client")) std::abort();
  auto* client = new Client;
  client->devices.resize(Plays("no-device") ? 0 : static_cast<size_t>(Count("devices", 1)));
  for (size_t i = 0; i < client->devices.size(); ++i) {
    client->devices[i].description.id = static_cast<int>(i);
    client->handles.push_back(&client->devices[i]);
  }
  a->client = client;
  return nullptr;
}
Error* Destroy(ClientDestroyArgs* a) {
  delete a->client;
  return nullptr;
}
Error* PlatformName(ClientPlatformNameArgs* a) {
  a->platform_name = Platform().data();
  a->platform_name_size = Platform().size();
  return nullptr;
}
Error* PlatformVersion(ClientPlatformVersionArgs* a) {
  a->platform_version = "fake 1.0";
  a->platform_version_size = std::strlen(a->platform_version);
  return nullptr;
}
Error* Devices(ClientAddressableDevicesArgs* a) {
  a->devices = a->client->handles.data();
  a->num_devices = a->client->handles.size();
  return nullptr;
}

Error* Description(DeviceGetDescriptionArgs* a) {
  a->description = &a->device->description;
  return nullptr;
}
Error* IdOf(DeviceDescriptionIdArgs* a) {
  a->id = a->description->id;
  return nullptr;
}
Error* KindText(DeviceDescriptionKindArgs* a) {
  a->kind = DeviceKind().data();
  a->kind_size = DeviceKind().size();
  return nullptr;
}
Error* DebugText(DeviceDescriptionDebugStringArgs* a) {
  a->debug_string = DeviceKind().data();
  a->debug_string_size = DeviceKind().size();
  return nullptr;
}
Error* NoAttributes(DeviceDescriptionAttributesArgs* a) {
  a->num_attributes = 0;
  return nullptr;
}
Error* HardwareId(DeviceLocalHardwareIdArgs* a) {
  a->local_hardware_id = a->device->description.id;
  return nullptr;
}
Error* DeviceMemory(DeviceMemoryStatsArgs* a) {
  const std::string limit = Setting("memory", "");
  if (limit.empty()) return new Error{kErrorUnimplemented, "no memory statistics"};
  a->bytes_limit = std::atoll(limit.c_str());
  a->bytes_limit_is_set = true;
  return nullptr;
}

Error* Upload(ClientBufferFromHostBufferArgs* a) {
  auto* buffer = new Buffer;
  buffer->dims.assign(a->dims, a->dims + a->num_dims);
  size_t elements = 1;
  for (const int64_t n : buffer->dims) elements *= static_cast<size_t>(n);
  const auto* data = static_cast<const float*>(a->data);
  buffer->data.assign(data, data + elements);
  a->buffer = buffer;
  return nullptr;
}
Error* ReadBack(BufferToHostBufferArgs* a) {
  std::memcpy(a->dst, a->src->data.data(), a->src->data.size() * sizeof(float));
  return nullptr;
}
Error* FreeBuffer(BufferDestroyArgs* a) {
  delete a->buffer;
  return nullptr;
}
Error* TypeOfBuffer(BufferElementTypeArgs* a) {
  a->type = kTypeF32;
  return nullptr;
}
Error* DimsOfBuffer(BufferDimensionsArgs* a) {
  a->dims = a->buffer->dims.data();
  a->num_dims = a->buffer->dims.size();
  return nullptr;
}

Error* Compile(ClientCompileArgs* a) {
  if (Plays("oom-compile")) return OutOfMemory();
  // The device's id ends the device assignment, the last field of the options that the probe sets.
  const std::string options(a->compile_options, a->compile_options_size);
  const size_t ids = options.find("\x1a\x03\x0a\x01");
  const size_t id = ids == std::string::npos ? 0 : static_cast<size_t>(options.at(ids + 4));
  a->executable = new LoadedExecutable{a->client, &a->client->devices.at(id)};
  return nullptr;
}
Error* FreeLoaded(LoadedExecutableDestroyArgs* a) {
  delete a->executable;
  return nullptr;
}
Error* GetExecutable(LoadedExecutableGetExecutableArgs* a) {
  a->executable = new Executable{};
  return nullptr;
}
Error* FreeExecutable(ExecutableDestroyArgs* a) {
  delete a->executable;
  return nullptr;
}
Error* OneOutput(ExecutableNumOutputsArgs* a) {
  a->num_outputs = 1;
  return nullptr;
}
Error* NotSerialised(ExecutableSerializeArgs*) {
  return new Error{kErrorUnimplemented, "programs cannot be serialised"};
}
Error* FirstDevice(LoadedExecutableAddressableDevicesArgs* a) {
  a->devices =
      &a->executable->client->handles[static_cast<size_t>(a->executable->device->description.id)];
  a->num_devices = 1;
  return nullptr;
}
Error* Execute(LoadedExecutableExecuteArgs* a) {
  if (Plays("oom-run")) return OutOfMemory();
  const auto& x = a->argument_lists[0][0]->data;
  const auto& w = a->argument_lists[0][1]->data;
  auto* out = new Buffer{std::vector<float>(4), {2, 2}};
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < 2; ++j) out->data[2 * i + j] = x[2 * i] * w[j] + x[2 * i + 1] * w[2 + j];
  if (Plays("wrong-product")) out->data[0] += 0.5f;
  a->output_lists[0][0] = out;
  return nullptr;
}

Error* DestroyEvent(EventDestroyArgs*) { return nullptr; }
Error* AwaitEvent(EventAwaitArgs*) { return nullptr; }

Api OwnTable() {
  Api api = {};
  api.struct_size = sizeof(Api);
  api.version = Args<Version>();
  api.version.major_version = Plays("future") ? 1 : 0;
  api.version.minor_version = Plays("old") ? 7 : Count("minor", 115);
  api.error_destroy = DestroyError;
  api.error_message = MessageOf;
  api.error_get_code = CodeOf;
  api.plugin_initialize = Initialize;
  api.plugin_attributes = Attributes;
  api.event_destroy = DestroyEvent;
  api.event_await = AwaitEvent;
  api.client_create = Create;
  api.client_destroy = Destroy;
  api.client_platform_name = PlatformName;
  api.client_platform_version = PlatformVersion;
  api.client_addressable_devices = Devices;
  api.client_compile = Compile;
  api.client_buffer_from_host_buffer = Upload;
  api.device_description_id = IdOf;
  api.device_description_attributes = NoAttributes;
  api.device_description_kind = KindText;
  api.device_description_debug_string = DebugText;
  api.device_get_description = Description;
  api.device_local_hardware_id = HardwareId;
  api.device_memory_stats = DeviceMemory;
  api.executable_destroy = FreeExecutable;
  api.executable_num_outputs = OneOutput;
  api.executable_serialize = NotSerialised;
  api.loaded_executable_destroy = FreeLoaded;
  api.loaded_executable_get_executable = GetExecutable;
  api.loaded_executable_addressable_devices = FirstDevice;
  api.loaded_executable_execute = Execute;
  api.buffer_destroy = FreeBuffer;
  api.buffer_element_type = TypeOfBuffer;
  api.buffer_dimensions = DimsOfBuffer;
  api.buffer_to_host_buffer = ReadBack;
  if (Plays("short-table")) api.struct_size = offsetof(Api, client_create);
  return api;
}

// ------------------------------------------------------------------ before a real plugin

const Api* real = nullptr;
Error full{kErrorResourceExhausted, "Out of memory allocating 7 TB"};

Error* CompileSwapped(ClientCompileArgs* a) {
  std::string text(a->program->code, a->program->code_size);
  const std::string swap = Setting("swap", "");
  const size_t colon = swap.find(':');
  if (colon != std::string::npos) {
    const std::string from = "stablehlo." + swap.substr(0, colon) + " ";
    const std::string to = "stablehlo." + swap.substr(colon + 1) + " ";
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  }
  Program program = *a->program;
  program.code = text.data();
  program.code_size = text.size();
  ClientCompileArgs args = *a;
  args.program = &program;
  Error* error = real->client_compile(&args);
  a->executable = args.executable;
  return error;
}

Error* ExecuteUntilFull(LoadedExecutableExecuteArgs* a) {
  static int runs = 0;
  if (++runs <= Count("oom-after", 1 << 30)) return real->loaded_executable_execute(a);
  return &full;
}

// The real plugin knows its own errors only.
void DestroyAnyError(ErrorDestroyArgs* a) {
  if (a->error != &full) real->error_destroy(a);
}
void MessageOfAny(ErrorMessageArgs* a) {
  a->error == &full ? MessageOf(a) : real->error_message(a);
}
Error* CodeOfAny(ErrorGetCodeArgs* a) {
  return a->error == &full ? CodeOf(a) : real->error_get_code(a);
}

const Api* TableBefore(const std::string& path) {
  const GetApi get_api = RealPlugin(path);
  if (get_api == nullptr) return nullptr;
  real = get_api();
  static Api api;
  std::memcpy(&api, real, std::min(sizeof(Api), real->struct_size));
  api.struct_size = std::min(sizeof(Api), real->struct_size);
  api.client_compile = CompileSwapped;
  api.loaded_executable_execute = ExecuteUntilFull;
  api.error_destroy = DestroyAnyError;
  api.error_message = MessageOfAny;
  api.error_get_code = CodeOfAny;
  if (!Setting("platform", "").empty()) api.client_platform_name = PlatformName;
  return &api;
}

}  // namespace
}  // namespace needle::pjrt::abi

extern "C" __attribute__((visibility("default"))) const needle::pjrt::abi::Api* GetPjrtApi() {
  using namespace needle::pjrt::abi;  // NOLINT(google-build-using-namespace)
  std::ofstream(OwnPath() + ".log", std::ios::app) << "loaded\n";
  if (Plays("crash-load")) std::abort();
  if (Plays("hang-load"))
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  const std::string path = Setting("real", "");
  if (!path.empty()) return TableBefore(path);
  static const Api table = OwnTable();
  return &table;
}
