// One small program an operation, run on a device and compared with the same in plain loops here:
// so that a device that computes wrongly is not only caught but the operation named.
// Errors: those of the plugin are part of the answer. Thread-safety: as Client.
#pragma once

#include <string>
#include <vector>

#include "backend/pjrt/client.h"

namespace needle::pjrt {

struct OpCheck {
  std::string operation;  // "exponential", as StableHLO calls it
  double error = 0;       // max |difference| / max |wanted|
  double allowed = 0;
  std::string failure;  // the plugin's error; "" when it ran
  bool ok() const { return failure.empty() && error <= allowed; }
};

/// Checks every operation that the programs use, on one device.
std::vector<OpCheck> CheckOperations(Client& client, int device);

}  // namespace needle::pjrt
