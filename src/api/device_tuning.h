// How programs are written for a device: what the user chose, and what upstream chooses there for
// the rest. Thread-safe.
#pragma once

#include "backend/pjrt/discover.h"
#include "backend/pjrt/pjrt_backend.h"
#include "needle/needle.hpp"

namespace needle {

/// What the user left open is chosen by the device, as upstream chooses it. `found`: devices that
/// the plugin shows, which all share a batch where `tuning` asks for all.
PjrtBackendOptions PjrtOptionsFor(pjrt::Kind kind, int found, const DeviceTuning& tuning);

}  // namespace needle
