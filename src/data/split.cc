#include "data/split.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace needle {

DataSplit Split(size_t n, double val_split, NumpyGenerator& generator) {
  assert(val_split >= 0 && val_split <= 1);
  const auto wanted = static_cast<int64_t>(static_cast<double>(n) * val_split);
  const int64_t validation = std::min(wanted, static_cast<int64_t>(n) - 1);
  DataSplit split;
  if (validation <= 0) {
    split.train.resize(n);
    std::iota(split.train.begin(), split.train.end(), 0);
    return split;
  }
  const std::vector<int32_t> order = generator.Permutation(n);
  split.validation.assign(order.begin(), order.begin() + validation);
  split.train.assign(order.begin() + validation, order.end());
  return split;
}

std::vector<int32_t> EpochOrder(size_t n, NumpyGenerator& generator) {
  return generator.Permutation(n);
}

std::vector<std::span<const int32_t>> Batches(std::span<const int32_t> order, size_t batch) {
  assert(batch > 0);
  std::vector<std::span<const int32_t>> out;
  for (size_t at = 0; at < order.size(); at += batch)
    out.push_back(order.subspan(at, std::min(batch, order.size() - at)));
  return out;
}

}  // namespace needle
