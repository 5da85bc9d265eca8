// From a wish to an opened device: probes what Choose lists, takes the first that works, and says
// what happened to the others.
// Errors: kInvalidArgument, kUnavailable: a named device does not work, with the plugin's reason.
// Thread-safety: before other threads start (it sets environment variables for plugins).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/pjrt/choose.h"
#include "backend/pjrt/client.h"
#include "backend/pjrt/probe.h"

namespace needle::pjrt {

struct OpenOptions {
  Prober prober = ProbeHere;  // a program that can start itself again gives ProbeInChild
  std::string cache_folder;   // for answers of probes and compiled programs; "": none
  bool refresh = false;       // probe anew
};

struct OpenedDevice {
  Kind kind = Kind::kCpu;  // kCpu: the native engine, without a client
  Candidate candidate;     // where it comes from
  /// With the compile cache set; narrowed to the device that a number asked for ("cuda:1").
  std::unique_ptr<Client> client;
  /// Lines for people: better devices that failed, versions and plugins to be careful with, a GPU
  /// that is here and not used.
  std::vector<std::string> notes;
};

Result<OpenedDevice> OpenDevice(const Platform& platform, const std::string& device,
                                const OpenOptions& options);

/// The same up to the client: which attempt would be taken, with its probe's answer.
struct Picked {
  Attempt attempt;
  ProbeAnswer answer;  // of a native engine: empty
  Kind kind = Kind::kCpu;
  std::vector<std::string> notes;
};
Result<Picked> PickDevice(const Platform& platform, const std::string& device,
                          const OpenOptions& options);

/// The kind of a plugin by what it calls its platform, where its name said nothing.
Kind KindOf(const Attempt& attempt, const ProbeAnswer& answer);

/// "141 GB", "512 MB".
std::string MemoryText(int64_t bytes);

}  // namespace needle::pjrt
