#include "exec/decoder.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace needle {
namespace {

constexpr size_t kPrefillRows = 512;  // rows of one forward: bounds memory, not the result

}  // namespace

RunModel::RunModel(const ModelConfig& config, ParamArrays<float> params,
                   const RunNumerics& numerics, ThreadPool& pool)
    : weights_(config, BestKernels(), std::move(params), numerics.numerics, /*backward=*/false,
               /*all_parameters=*/false, pool),
      window_(numerics.window) {}

Decoder::Decoder(const RunModel& model, ThreadPool& pool)
    : model_(model), executor_(model.weights(), pool) {}

std::span<const float> Decoder::Append(std::span<const int32_t> ids) {
  assert(!ids.empty() && length() + ids.size() <= max_length());
  for (size_t at = 0; at < ids.size(); at += kPrefillRows)
    AppendBlock(ids.subspan(at, std::min(kPrefillRows, ids.size() - at)));
  logits_.resize(vocab_size());
  const auto last = static_cast<int32_t>(tokens_.size()) - 1;
  executor_.Logits(rows_, acts_, {&last, 1}, {logits_.data(), 1, logits_.size()});
  return logits_;
}

void Decoder::AppendBlock(std::span<const int32_t> ids) {
  rows_.first = tokens_.size();
  tokens_.insert(tokens_.end(), ids.begin(), ids.end());
  rows_.tokens = tokens_;
  const size_t known = std::min(rows_.first, rows_.parent.size());
  for (auto* v : {&rows_.parent, &rows_.depth, &rows_.key_first, &rows_.key_end}) v->resize(known);
  for (size_t t = known; t < tokens_.size(); ++t) {
    const auto row = static_cast<int32_t>(t);
    const bool forever = model_.window() == 0 || t < sinks_;
    rows_.parent.push_back(row - 1);
    rows_.depth.push_back(row);
    rows_.key_first.push_back(row);
    rows_.key_end.push_back(forever ? std::numeric_limits<int32_t>::max() : row + model_.window());
  }
  executor_.Forward(rows_, context_, acts_);
}

void Decoder::Truncate(size_t length) {
  assert(length <= tokens_.size());
  tokens_.resize(length);
}

}  // namespace needle
