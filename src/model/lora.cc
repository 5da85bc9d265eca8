#include "model/lora.h"

#include "base/random.h"

namespace needle {

std::map<std::string, LoraPair> InitLora(const std::vector<ParamSpec>& targets, int rank,
                                         uint64_t seed) {
  std::map<std::string, LoraPair> lora;
  JaxKey key = JaxPrngKey(seed);
  for (const ParamSpec& target : targets) {
    const auto [next, sub] = JaxSplit(key);
    key = next;
    const Shape a = {target.shape[0], target.shape[1], rank};
    const Shape b = {target.shape[0], rank, target.shape[2]};
    std::vector<float> values = JaxNormal(sub, static_cast<size_t>(ElementCount(a)));
    for (float& v : values) v /= static_cast<float>(rank);
    lora[target.path] = {Tensor::FromFloats(a, values), Tensor(DType::kF32, b)};
  }
  return lora;
}

}  // namespace needle
