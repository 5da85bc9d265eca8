// Test support: the operations that a plugin computes wrongly, by op_check.h.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "backend/pjrt/op_check.h"

namespace needle::pjrt {

inline std::unique_ptr<Client> ClientOf(const std::string& path) {
  Result<std::shared_ptr<Plugin>> plugin = Plugin::Load(path);
  if (!plugin.ok()) throw std::runtime_error(plugin.error().message());
  Result<std::unique_ptr<Client>> client = Client::Create(*plugin, {});
  if (!client.ok()) throw std::runtime_error(client.error().message());
  return *std::move(client);
}

/// The operations that came out wrong.
inline std::vector<std::string> Wrong(const std::string& path) {
  std::vector<std::string> wrong;
  const std::unique_ptr<Client> client = ClientOf(path);
  for (const OpCheck& check : CheckOperations(*client, 0))
    if (!check.ok()) wrong.push_back(check.operation + " " + check.failure);
  return wrong;
}

}  // namespace needle::pjrt
