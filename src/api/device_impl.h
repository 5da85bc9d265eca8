// What stands behind needle::Device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/pjrt/client.h"
#include "backend/pjrt/discover.h"
#include "needle/needle.hpp"

namespace needle {

struct Device::Impl {
  pjrt::Kind kind = pjrt::Kind::kCpu;
  std::string name, backend, description;
  std::vector<std::string> notes;
  std::shared_ptr<pjrt::Client> client;  // nullptr: the native engine
};

}  // namespace needle
