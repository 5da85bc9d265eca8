#include "backend/backend.h"

#include "base/str_cat.h"

namespace needle {

Result<std::vector<ParamSpec>> TrainedParams(const Checkpoint& base, TrainedSet trained) {
  if (trained == TrainedSet::kAll) return TrainingParams(base.config);
  std::vector<ParamSpec> targets = LoraTargets(base);
  if (targets.empty())
    return Error(Code::kInvalidArgument,
                 "the base has no attention projection with a weight above 1e-6, so LoRA has "
                 "nothing to adapt; is this a trained checkpoint?");
  return targets;
}

Status CheckState(const TrainState& state, const std::map<std::string, size_t>& sizes) {
  for (const auto* part : {&state.values, &state.first_moment, &state.second_moment})
    for (const auto& [name, size] : sizes) {
      const auto found = part->find(name);
      if (found == part->end() || found->second.size() != size)
        return Error(Code::kInvalidArgument,
                     StrCat("the saved training state has ",
                            found == part->end() ? "no " : "another size of ", name,
                            "; it belongs to a run with another base or other LoRA settings"));
    }
  return {};
}

}  // namespace needle
