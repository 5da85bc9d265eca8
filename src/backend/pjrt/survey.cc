#include "backend/pjrt/survey.h"

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "base/str_cat.h"

namespace needle::pjrt {
namespace {

/// Answers each library's probe from what was seen already, so that nothing is tried twice.
class Remembered {
 public:
  explicit Remembered(Prober prober) : prober_(std::move(prober)) {}
  ProbeAnswer operator()(const Attempt& attempt) {
    const std::string key = json::Dump(ToJson(attempt));
    for (const auto& [known, answer] : seen_)
      if (known == key) return answer;
    return seen_.emplace_back(key, prober_(attempt)).second;
  }

 private:
  Prober prober_;
  std::vector<std::pair<std::string, ProbeAnswer>> seen_;
};

SurveyedPlugin TryPlugin(const Candidate& candidate, const Platform& platform,
                         const OpenOptions& options) {
  SurveyedPlugin plugin;
  plugin.candidate = candidate;
  if (!candidate.package.empty() && !WhyNoHardware(candidate.kind, platform).empty()) return plugin;
  plugin.tried = true;
  const Result<Attempt> attempt = AttemptFor(candidate, platform);
  if (!attempt.ok()) {
    plugin.answer.error = attempt.error();
    return plugin;
  }
  const std::string folder =
      options.cache_folder.empty() ? "" : JoinPath(options.cache_folder, "plugins");
  plugin.answer = CachedProbe(*attempt, platform, options.prober, folder, options.refresh);
  return plugin;
}

void Judge(const Platform& platform, SurveyRow& row) {
  const std::string hardware = WhyNoHardware(row.kind, platform);
  std::string failure;
  for (const SurveyedPlugin& plugin : row.plugins) {
    if (!plugin.tried) continue;
    if (plugin.answer.ok()) {
      row.standing = Standing::kReady;
      return;
    }
    if (failure.empty()) failure = plugin.answer.error->message();
  }
  if (!failure.empty()) {
    row.standing = Standing::kFails;
    row.reason = failure;
  } else if (!hardware.empty()) {
    row.standing = Standing::kNoHardware;
    row.reason = hardware;
  } else {
    const bool optional = row.kind == Kind::kXlaCpu;
    row.install = InstallHint(row.kind, platform);
    row.standing = optional ? Standing::kOptional : Standing::kMissing;
    row.reason =
        row.install.empty() ? "there is no plugin for this system" : "no plugin is installed";
  }
}

std::vector<SurveyRow> Rows(const Platform& platform, const std::vector<Candidate>& candidates,
                            const OpenOptions& options) {
  std::vector<SurveyRow> rows;
  const auto row_of = [&](Kind kind, const std::string& name) -> SurveyRow& {
    for (SurveyRow& row : rows)
      if (kind == Kind::kOther ? row.name == name : row.kind == kind) return row;
    SurveyRow& row = rows.emplace_back();
    row.kind = kind;
    row.name = name;
    return row;
  };
  for (const Kind kind : KnownKinds()) row_of(kind, std::string(Name(kind)));
  for (const Candidate& candidate : candidates)
    row_of(candidate.kind, candidate.name)
        .plugins.push_back(TryPlugin(candidate, platform, options));
  for (SurveyRow& row : rows) Judge(platform, row);
  return rows;
}

std::string WhyPicked(const Choice& choice, const Picked& picked, const Survey& survey) {
  if (!choice.automatic())
    return StrCat("asked for by ", choice.wish.from, "=", picked.attempt.candidate.name);
  if (picked.kind != Kind::kCpu) return "the best device that works";
  for (const SurveyRow& row : survey.rows)
    if (row.kind != Kind::kXlaCpu && row.standing == Standing::kFails)
      return StrCat(row.name, " does not work");
  return "no other device can be used";
}

}  // namespace

std::string_view Name(Standing standing) {
  switch (standing) {
    case Standing::kReady:
      return "ready";
    case Standing::kFails:
      return "fails";
    case Standing::kMissing:
      return "missing";
    case Standing::kOptional:
      return "not installed";
    case Standing::kNoHardware:
      break;
  }
  return "no hardware";
}

Survey LookAround(const Platform& platform, const std::string& device, const OpenOptions& given) {
  OpenOptions options = given;
  options.prober = Remembered(given.prober);
  Survey survey;
  const Result<std::vector<Candidate>> candidates = Discover(platform, /*thorough=*/true);
  survey.rows = Rows(platform, candidates.ok() ? *candidates : std::vector<Candidate>(), options);
  const Result<Choice> choice = Choose(platform, device);
  if (!choice.ok()) {
    survey.error = choice.error();
    return survey;
  }
  options.refresh = false;  // all that can be tried has just been tried
  Result<Picked> picked = PickDevice(platform, device, options);
  if (!picked.ok()) {
    survey.error = picked.error();
    return survey;
  }
  survey.notes = picked->notes;
  survey.why = WhyPicked(*choice, *picked, survey);
  survey.picked = *std::move(picked);
  return survey;
}

}  // namespace needle::pjrt
