// Test support: a backend on the CPU plugin. One client a process and number of devices: a plugin
// starts threads that outlive its clients.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>

#include "backend/pjrt/pjrt_backend.h"
#include "support/pjrt.h"
#include "support/reference_set.h"

namespace needle::test {

/// The client of a plugin with so many virtual devices; null (and a failed test) when it does not
/// open.
inline std::shared_ptr<pjrt::Client> CpuClient(const std::string& plugin, int devices = 1) {
  static std::map<std::pair<std::string, int>, std::shared_ptr<pjrt::Client>> clients;
  std::shared_ptr<pjrt::Client>& client = clients[{plugin, devices}];
  if (client) return client;
  Result<std::shared_ptr<pjrt::Plugin>> loaded = pjrt::Plugin::Load(plugin);
  EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message());
  if (!loaded.ok()) return nullptr;
  const std::vector<pjrt::NamedValue> options = {{"cpu_device_count", int64_t{devices}}};
  Result<std::unique_ptr<pjrt::Client>> made = pjrt::Client::Create(*loaded, options);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message());
  if (made.ok()) client = *std::move(made);
  return client;
}

inline std::unique_ptr<PjrtBackend> MakeOn(const std::shared_ptr<pjrt::Client>& client,
                                           const Checkpoint& base,
                                           const PjrtBackendOptions& options) {
  Result<std::unique_ptr<PjrtBackend>> backend = MakePjrtBackend(client, base, options);
  EXPECT_TRUE(backend.ok()) << (backend.ok() ? "" : backend.error().message());
  return backend.ok() ? *std::move(backend) : nullptr;
}

inline PjrtBackendOptions SmallPjrtLora() {
  PjrtBackendOptions o;
  o.lora = {.rank = 4, .alpha = 8.0f, .seed = 3};
  return o;
}

/// LoRA factors from arrays "<path>/A" and ".../B" as a state with zero moments.
inline TrainState StateOf(const Backend& backend, const Npz& arrays, const std::string& prefix) {
  TrainState state = *backend.State();
  for (auto& [name, values] : state.values) {
    values = arrays.at(prefix + name).As<float>();
    std::fill(state.first_moment[name].begin(), state.first_moment[name].end(), 0.0f);
    std::fill(state.second_moment[name].begin(), state.second_moment[name].end(), 0.0f);
  }
  return state;
}

/// A chain of ids whose rows [first, n) all ask for a target: a way to see their logits.
inline Forest AskingFor(const std::vector<int32_t>& ids, size_t first) {
  Forest f;
  const auto n = static_cast<int32_t>(ids.size());
  for (int32_t t = 0; t < n; ++t) {
    f.tokens.push_back(ids[static_cast<size_t>(t)]);
    f.parent.push_back(t - 1);
    f.depth.push_back(t);
    f.subtree_end.push_back(n);
    if (static_cast<size_t>(t) < first) continue;
    f.target_row.push_back(t);
    f.target_id.push_back(0);
    f.target_weight.push_back(1);
  }
  return f;
}

}  // namespace needle::test
