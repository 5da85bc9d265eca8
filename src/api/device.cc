#include <utility>

#include "api/device_impl.h"
#include "backend/pjrt/open_device.h"
#include "base/str_cat.h"

namespace needle {
namespace {

std::string DescriptionOf(const pjrt::OpenedDevice& opened) {
  const std::string& kind = opened.client->Devices()[0].kind;
  const pjrt::Candidate& c = opened.candidate;
  const std::string plugin = c.package.empty() ? c.library : StrCat(c.package, " ", c.version);
  return StrCat(kind, " (", plugin, ")");
}

}  // namespace

Result<Device> Device::Open(const DeviceOptions& options) {
  const pjrt::Platform platform = pjrt::ThisPlatform();
  pjrt::OpenOptions open;
  open.cache_folder = pjrt::CacheFolder(platform);
  if (!options.probe_program.empty()) {
    NEEDLE_ASSIGN(const double seconds, pjrt::ProbeSeconds(platform));
    open.prober = pjrt::ProbeInChild(options.probe_program, seconds);
  }
  NEEDLE_ASSIGN(pjrt::OpenedDevice opened, pjrt::OpenDevice(platform, options.device, open));
  auto impl = std::make_shared<Impl>();
  impl->kind = opened.kind;
  impl->name = opened.candidate.name;
  impl->backend = pjrt::JaxName(opened.kind);
  impl->notes = std::move(opened.notes);
  if (opened.client) impl->description = DescriptionOf(opened);
  impl->client = std::move(opened.client);
  return Device(std::move(impl));
}

const std::string& Device::name() const { return impl_->name; }
const std::string& Device::backend() const { return impl_->backend; }
const std::string& Device::description() const { return impl_->description; }
const std::vector<std::string>& Device::notes() const { return impl_->notes; }
int Device::count() const {
  return impl_->client ? static_cast<int>(impl_->client->Devices().size()) : 1;
}

}  // namespace needle
