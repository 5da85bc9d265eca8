// What a client, its buffers and its programs share, and how a plugin's calls become Results. For
// src/backend/pjrt alone.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/pjrt/client.h"
#include "backend/pjrt/pjrt_abi.h"

namespace needle::pjrt {

struct ClientCore {
  std::shared_ptr<Plugin> plugin;
  std::shared_ptr<const ClientCore> whole;  // what `client` belongs to; nullptr: to this
  abi::Client* client = nullptr;
  std::vector<abi::Device*> handles;  // parallel to devices
  std::vector<DeviceInfo> devices;
  std::string platform_name, platform_version;
  int64_t bytes_to_host = 0, bytes_to_device = 0;

  ClientCore() = default;
  ~ClientCore();
  ClientCore(const ClientCore&) = delete;
  ClientCore& operator=(const ClientCore&) = delete;

  const abi::Api& api() const { return plugin->api(); }
  /// The index of a device, or -1.
  int IndexOf(const abi::Device* device) const;
};

/// Success when `error` is nullptr; else its message after "<where>: <what>: ". Destroys it.
Status Check(const abi::Api& api, const std::string& where, abi::Error* error, const char* what);
/// Waits for an event (nullptr: nothing to wait for) and destroys it.
Status Await(const abi::Api& api, const std::string& where, abi::Event* event, const char* what);

/// The interface's number of an element type.
int TypeOf(DType dtype);
/// A plugin's value as ours. Its text is copied.
NamedValue FromAbi(const abi::NamedValue& value);
/// Ours as the plugin takes it; points into `value`.
abi::NamedValue ToAbi(const NamedValue& value);

}  // namespace needle::pjrt
