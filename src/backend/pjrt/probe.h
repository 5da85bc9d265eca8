// A first try of a plugin, in a process of its own: a library that crashes, hangs or computes
// nonsense becomes a sentence, and the next device can be taken. The answer is kept on disk.
// Errors: are part of the answer. Thread-safety: functions; ProbeHere changes the environment.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backend/pjrt/choose.h"
#include "backend/pjrt/client.h"
#include "base/result.h"
#include "json/json.h"

namespace needle::pjrt {

/// What a plugin showed.
struct ProbeAnswer {
  struct Device {
    int64_t id = 0;
    std::string kind;
    std::optional<int64_t> memory_bytes;  // what the plugin may use
  };
  std::optional<Error> error;  // of whatever came first; empty: all went well
  bool ended = false;          // it crashed or hung, rather than telling an error
  int api_major = 0, api_minor = 0;
  std::string platform;  // "cuda", "cpu", ...
  std::string platform_version;
  std::vector<NamedValue> attributes;
  std::vector<Device> devices;

  bool ok() const { return !error.has_value(); }
};

using Prober = std::function<ProbeAnswer(const Attempt&)>;

/// Opens the plugin in this process, lists its devices and computes a small product on each.
ProbeAnswer ProbeHere(const Attempt& attempt);

/// The line that the child prints, and what the parent makes of the child's end.
std::string ProbeLine(const ProbeAnswer& answer);

/// The same in a child: `program` with the arguments "probe-plugin" and a text, which passes that
/// text to ProbeFromText and prints what it gives.
Prober ProbeInChild(const std::string& program, double timeout_seconds = 30);
/// The time-out: NEEDLE_PROBE_SECONDS, else 30. Error: it is no number above 0, or more than a day.
Result<double> ProbeSeconds(const Platform& platform);
std::string ProbeFromText(const std::string& text);

/// Asks `prober`, unless the folder holds an answer for this library (path, size, time), these
/// options and this environment. Kept are good answers, and crashes and hangs; an error that the
/// plugin told is asked anew, since it may pass. `refresh` asks in any case. An empty folder keeps
/// nothing. A plugin for the processor that goes by another device's name has failed, whatever it
/// answers.
ProbeAnswer CachedProbe(const Attempt& attempt, const Platform& platform, const Prober& prober,
                        const std::string& folder, bool refresh);

json::Value ToJson(const Attempt& attempt);
Result<Attempt> AttemptFromJson(const json::Value& value);
json::Value ToJson(const ProbeAnswer& answer);
Result<ProbeAnswer> AnswerFromJson(const json::Value& value);

}  // namespace needle::pjrt
