// Which device a run asks for, and what is tried for it, in JAX's manner: GPU before TPU before the
// native engine; a device that is named is used or is an error, never replaced in silence.
// Errors: kInvalidArgument for names and variables that mean nothing, kUnavailable when a named
// device has no plugin or no hardware. Thread-safety: functions of plain values.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "backend/pjrt/client.h"
#include "backend/pjrt/discover.h"
#include "backend/pjrt/platform.h"
#include "base/result.h"

namespace needle::pjrt {

/// What was asked for, and by what.
struct Wish {
  /// Names in order, aliases as they were written; empty: the best that works.
  std::vector<std::string> names;
  std::string from;       // "--device", "NEEDLE_DEVICE", "JAX_PLATFORMS", "" when nothing was asked
  bool numbered = false;  // "cuda:1": that device alone
  int index = 0;
};

/// `device` is --device: "auto" (or "") leaves it to NEEDLE_DEVICE, then to JAX_PLATFORMS.
Result<Wish> ReadWish(const std::string& device, const Platform& platform);

/// One thing to try.
struct Attempt {
  Candidate candidate;  // kCpu: the native engine, without a library
  std::vector<NamedValue> options;
  std::map<std::string, FlagValue> overrides;  // XLA flags of every program
  std::vector<std::string> preload;            // libraries to open first, those that are there
};

struct Choice {
  Wish wish;
  /// Of each group the first that works is taken. Automatic: one group that ends with the native
  /// engine. Named: a group a name, and each needs one that works; the first is used.
  std::vector<std::vector<Attempt>> groups;
  /// Why better devices are not among the attempts, one line each.
  std::vector<std::string> passed_over;
  bool automatic() const { return wish.names.empty(); }
};

Result<Choice> Choose(const Platform& platform, const std::string& device);

/// A candidate with all that this platform gives to it.
Result<Attempt> AttemptFor(const Candidate& candidate, const Platform& platform);

/// Why a plugin of this interface version should not be used: "" when it is fine; a note when
/// `*fatal` stays false. ENABLE_PJRT_COMPATIBILITY decides: unset, versions that were not tested
/// are used with a note; true, without one; false, not at all.
std::string VersionNote(int api_minor, const Platform& platform, bool* fatal);

/// A line when hardware that could train is here and the run uses the processor; else "".
std::string UnusedGpuNote(Kind used, const Platform& platform, const std::vector<std::string>& why);

}  // namespace needle::pjrt
