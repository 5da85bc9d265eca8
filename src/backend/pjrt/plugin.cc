#include <map>
#include <mutex>

#include "backend/pjrt/client_core.h"
#include "base/library.h"
#include "base/str_cat.h"

namespace needle::pjrt {
namespace {

/// Frees the plugin's error after its text and code were taken.
std::string TakeError(const abi::Api& api, abi::Error* error, int* code) {
  auto message = abi::Args<abi::ErrorMessageArgs>();
  message.error = error;
  api.error_message(&message);
  std::string text(message.message, message.message_size);
  auto get = abi::Args<abi::ErrorGetCodeArgs>();
  get.error = error;
  *code = api.error_get_code(&get) == nullptr ? get.code : abi::kErrorUnknown;
  auto destroy = abi::Args<abi::ErrorDestroyArgs>();
  destroy.error = error;
  api.error_destroy(&destroy);
  return text;
}

Code CodeOf(int code) {
  switch (code) {
    case abi::kErrorInvalidArgument:
    case abi::kErrorUnimplemented:
      return Code::kInvalidArgument;
    case abi::kErrorNotFound:
    case abi::kErrorResourceExhausted:
    case abi::kErrorUnavailable:
      return Code::kUnavailable;
    default:
      return Code::kInternal;
  }
}

Status CheckVersion(const std::string& path, const abi::Api* api) {
  if (api == nullptr || api->struct_size < offsetof(abi::Api, error_destroy))
    return Error(Code::kUnavailable,
                 StrCat(path, ": GetPjrtApi gives no table of calls; this is no PJRT plugin"));
  const int major = api->version.major_version, minor = api->version.minor_version;
  const std::string found = StrCat(path, ": the plugin speaks PJRT ", major, ".", minor);
  if (major != 0)
    return Error(Code::kUnavailable,
                 StrCat(found, "; this program speaks 0.", kOldestApi,
                        " and later of major version 0. Use a newer needle for it, or install an "
                        "older version of the plugin"));
  if (minor < kOldestApi)
    return Error(Code::kUnavailable, StrCat(found, ", which is too old; 0.", kOldestApi,
                                            " or later is needed. Install a newer version of it"));
  if (!abi::HasSlot(*api, &abi::Api::buffer_to_host_buffer))
    return Error(Code::kUnavailable,
                 StrCat(found, " but its table of calls ends after ", api->struct_size,
                        " bytes, before the calls that are needed. Install another version of it"));
  return {};
}

Status Initialize(const std::string& path, const abi::Api& api) {
  auto args = abi::Args<abi::PluginInitializeArgs>();
  return Check(api, path, api.plugin_initialize(&args), "the plugin could not be started");
}

std::vector<NamedValue> AttributesOf(const std::string& path, const abi::Api& api) {
  std::vector<NamedValue> attributes;
  auto args = abi::Args<abi::PluginAttributesArgs>();
  // Only for show: a plugin without them is as good.
  if (!Check(api, path, api.plugin_attributes(&args), "attributes").ok()) return attributes;
  for (size_t i = 0; i < args.num_attributes; ++i)
    attributes.push_back(FromAbi(args.attributes[i]));
  return attributes;
}

}  // namespace

Status Check(const abi::Api& api, const std::string& where, abi::Error* error, const char* what) {
  if (error == nullptr) return {};
  int code = 0;
  const std::string message = TakeError(api, error, &code);
  const char* advice =
      code == abi::kErrorResourceExhausted
          ? " (the device has too little free memory: end other programs on it, take a smaller "
            "batch, or another device)"
          : "";
  return Error(CodeOf(code), StrCat(where, ": ", what, ": ", message, advice));
}

Status Await(const abi::Api& api, const std::string& where, abi::Event* event, const char* what) {
  if (event == nullptr) return {};
  auto await = abi::Args<abi::EventAwaitArgs>();
  await.event = event;
  const Status status = Check(api, where, api.event_await(&await), what);
  auto destroy = abi::Args<abi::EventDestroyArgs>();
  destroy.event = event;
  const Status destroyed = Check(api, where, api.event_destroy(&destroy), what);
  return status.ok() ? destroyed : status;
}

bool Plugin::Tested() const { return minor_ >= kTestedFrom && minor_ <= kTestedTo; }

Result<std::shared_ptr<Plugin>> Plugin::Load(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Plugin>> loaded;
  const std::lock_guard<std::mutex> lock(mutex);
  if (const auto it = loaded.find(path); it != loaded.end()) return it->second;

  NEEDLE_ASSIGN(const Library library, Library::Open(path));
  void* const symbol = library.Symbol("GetPjrtApi");
  if (symbol == nullptr)
    return Error(Code::kUnavailable,
                 StrCat(path, ": the library has no GetPjrtApi, so it is no PJRT plugin"));
  const abi::Api* api = reinterpret_cast<const abi::Api* (*)()>(symbol)();
  NEEDLE_TRY(CheckVersion(path, api));
  NEEDLE_TRY(Initialize(path, *api));
  std::shared_ptr<Plugin> plugin(new Plugin);
  plugin->path_ = path;
  plugin->major_ = api->version.major_version;
  plugin->minor_ = api->version.minor_version;
  plugin->api_ = api;
  if (api->plugin_attributes != nullptr) plugin->attributes_ = AttributesOf(path, *api);
  return loaded[path] = plugin;
}

}  // namespace needle::pjrt
