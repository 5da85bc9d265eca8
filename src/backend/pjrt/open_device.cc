#include "backend/pjrt/open_device.h"

#include <cmath>
#include <map>
#include <utility>

#include "base/file.h"
#include "base/library.h"
#include "base/process.h"
#include "base/str_cat.h"

namespace needle::pjrt {
namespace {

std::string ProbeFolder(const OpenOptions& options) {
  return options.cache_folder.empty() ? "" : JoinPath(options.cache_folder, "plugins");
}
std::string CompileFolder(const OpenOptions& options) {
  return options.cache_folder.empty() ? "" : JoinPath(options.cache_folder, "compiled");
}

/// Why an attempt cannot be taken although its probe went well; nullopt when it can.
std::optional<Error> Objection(const Choice& choice, const Attempt& attempt,
                               const ProbeAnswer& answer, const Platform& platform) {
  if (choice.automatic() && KindOf(attempt, answer) == Kind::kXlaCpu)
    return Error(Code::kUnavailable,
                 StrCat(attempt.candidate.library,
                        ": a plugin for the processor, which is taken only when it is named"));
  bool fatal = false;
  const std::string note = VersionNote(answer.api_minor, platform, &fatal);
  if (fatal) return Error(Code::kUnavailable, StrCat(attempt.candidate.library, ": ", note));
  const auto devices = static_cast<int>(answer.devices.size());
  if (choice.wish.index >= devices)
    return Error(Code::kInvalidArgument, StrCat("there is no device ", choice.wish.index,
                                                "; the plugin has ", devices, ", counted from 0"));
  return std::nullopt;
}

void AddCautions(const Attempt& attempt, const ProbeAnswer& answer, const Platform& platform,
                 std::vector<std::string>& notes) {
  bool fatal = false;
  const std::string version = VersionNote(answer.api_minor, platform, &fatal);
  if (!version.empty()) notes.push_back(StrCat(attempt.candidate.name, ": ", version));
  if (!attempt.candidate.caution.empty())
    notes.push_back(StrCat(attempt.candidate.name, ": ", attempt.candidate.caution));
}

/// A name as it was written: "cuda:1".
std::string Written(const Wish& wish, const std::string& name) {
  return wish.numbered ? StrCat(name, ":", wish.index) : name;
}

/// "JAX_PLATFORMS=cpu,cuda was asked for"
std::string AskedFor(const Wish& wish) {
  std::string names;
  for (const std::string& name : wish.names)
    names += (names.empty() ? "" : ",") + Written(wish, name);
  return StrCat(wish.from, "=", names, " was asked for");
}

/// What was picked and then could not be opened, by library.
using Unopened = std::map<std::string, Error>;

/// Walks a group; `failures` collects why the attempts before the picked one were not taken.
class GroupWalk {
 public:
  GroupWalk(const Choice& choice, const Platform& platform, const OpenOptions& options,
            const Unopened& unopened)
      : choice_(choice), platform_(platform), options_(options), unopened_(unopened) {}

  Result<Picked> Pick(const std::vector<Attempt>& group) {
    std::optional<Error> first;
    for (const Attempt& attempt : group) {
      Picked picked;
      picked.attempt = attempt;
      if (attempt.candidate.library.empty()) return Native(std::move(picked));
      if (const auto at = unopened_.find(attempt.candidate.library); at != unopened_.end()) {
        Failed(attempt, at->second);
        if (!first) first = at->second;
        continue;
      }
      picked.answer =
          CachedProbe(attempt, platform_, options_.prober, ProbeFolder(options_), options_.refresh);
      std::optional<Error> why = picked.answer.error;
      // A wrong variable is the user's to correct; going on would hide it.
      if (why && why->code() == Code::kInvalidArgument && picked.answer.ended) return *why;
      if (!why) why = Objection(choice_, attempt, picked.answer, platform_);
      if (!why) return Taken(std::move(picked));
      Failed(attempt, *why);
      if (!first) first = std::move(why);
    }
    // A group is never empty. The first is what is meant; the others are in the table.
    if (failures_.size() < 2 || first->code() == Code::kInvalidArgument) return *first;
    return Error(first->code(), StrCat(first->message(), " (and ", failures_.size() - 1,
                                       " more fail; \"needle devices\" says why)"));
  }

 private:
  void Failed(const Attempt& attempt, const Error& why) {
    failures_.push_back(StrCat(attempt.candidate.name, ": ", why.message()));
  }
  Picked Native(Picked picked) {
    picked.kind = Kind::kCpu;
    AddFailures(picked);
    return picked;
  }
  Picked Taken(Picked picked) {
    picked.kind = KindOf(picked.attempt, picked.answer);
    AddFailures(picked);
    AddCautions(picked.attempt, picked.answer, platform_, picked.notes);
    return picked;
  }
  void AddFailures(Picked& picked) const {
    std::vector<std::string> why = failures_;
    if (!choice_.automatic()) why = {AskedFor(choice_.wish)};
    const std::string unused = UnusedGpuNote(picked.kind, platform_, why);
    picked.notes = failures_;
    if (unused.empty()) return;
    // In automatic choice the line tells the failure, too.
    if (choice_.automatic()) picked.notes.clear();
    picked.notes.push_back(unused);
  }

  const Choice& choice_;
  const Platform& platform_;
  const OpenOptions& options_;
  const Unopened& unopened_;
  std::vector<std::string> failures_;
};

Error Named(const Wish& wish, size_t name, const Error& error) {
  if (wish.names.empty()) return error;
  return error.In(StrCat(wish.from, "=", Written(wish, wish.names[name])));
}

Result<Picked> PickFrom(const Choice& choice, const Platform& platform, const OpenOptions& options,
                        const Unopened& unopened) {
  std::optional<Picked> first;
  for (size_t i = 0; i < choice.groups.size(); ++i) {
    Result<Picked> picked = GroupWalk(choice, platform, options, unopened).Pick(choice.groups[i]);
    if (!picked.ok()) return Named(choice.wish, i, picked.error());
    if (!first) first = *std::move(picked);
  }
  return std::move(*first);
}

Result<std::unique_ptr<Client>> OpenClient(const Picked& picked, const Wish& wish,
                                           const Platform& platform, const OpenOptions& options) {
  for (const auto& [name, value] : MissingEnvironment(platform, picked.kind == Kind::kXlaCpu))
    SetEnv(name, value);
  for (const std::string& path : picked.attempt.preload)
    (void)Library::Open(path, LibraryScope::kShared);  // absent ones are the plugin's to report
  NEEDLE_ASSIGN(std::shared_ptr<Plugin> plugin, Plugin::Load(picked.attempt.candidate.library));
  NEEDLE_ASSIGN(std::unique_ptr<Client> client,
                Client::Create(std::move(plugin), picked.attempt.options));
  if (wish.numbered) {
    NEEDLE_ASSIGN(client, client->Only(wish.index));
  }
  client->SetOverrides(picked.attempt.overrides);
  client->SetCache(CompileFolder(options));
  return client;
}

}  // namespace

Kind KindOf(const Attempt& attempt, const ProbeAnswer& answer) {
  if (attempt.candidate.kind != Kind::kOther) return attempt.candidate.kind;
  if (answer.platform == "cpu") return Kind::kXlaCpu;
  return KindNamed(answer.platform);
}

Result<Picked> PickDevice(const Platform& platform, const std::string& device,
                          const OpenOptions& options) {
  NEEDLE_ASSIGN(const Choice choice, Choose(platform, device));
  return PickFrom(choice, platform, options, {});
}

Result<OpenedDevice> OpenDevice(const Platform& platform, const std::string& device,
                                const OpenOptions& options) {
  NEEDLE_ASSIGN(const Choice choice, Choose(platform, device));
  Unopened unopened;
  for (;;) {  // ends: what cannot be opened is not picked again
    NEEDLE_ASSIGN(Picked picked, PickFrom(choice, platform, options, unopened));
    OpenedDevice opened;
    opened.kind = picked.kind;
    opened.candidate = picked.attempt.candidate;
    opened.notes = std::move(picked.notes);
    if (opened.kind == Kind::kCpu) return opened;
    Result<std::unique_ptr<Client>> client = OpenClient(picked, choice.wish, platform, options);
    if (client.ok()) {
      opened.client = *std::move(client);
      return opened;
    }
    // The probe went well, so this is a device that somebody has taken meanwhile.
    unopened.emplace(opened.candidate.library, client.error());
  }
}

std::string MemoryText(int64_t bytes) {
  const double mb = static_cast<double>(bytes) / (1 << 20);
  const double shown = mb < 1024 ? mb : mb / 1024;
  return StrCat(std::llround(shown), mb < 1024 ? " MB" : " GB");
}

}  // namespace needle::pjrt
