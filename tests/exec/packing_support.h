// Test support: the same batch packed as tree, chains and padded rows gives the same loss and
// gradients. Batches are those of an epoch of the examples' training data.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "data/examples.h"
#include "data/split.h"
#include "exec/loaded.h"
#include "support/mismatch.h"

namespace needle::test {

/// train.jsonl through the 1024-piece tokenizer, and the batches of its first epoch.
class Epoch {
 public:
  Epoch() {
    const Result<DataReport> report =
        LoadData(std::string(NEEDLE_SOURCE_DIR) + "/examples/home/train.jsonl", BadLines::kStop);
    EXPECT_TRUE(report.ok()) << report.error().message();
    const Result<Tokenizer> tokenizer = Tokenizer::Load(Golden("text/tokenizer_1024.model"));
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message();
    Result<EncodedData> data = EncodeExamples(report->examples, *tokenizer, {}, "train.jsonl");
    EXPECT_TRUE(data.ok()) << data.error().message();
    data_ = *std::move(data);
    NumpyGenerator generator(0);
    const DataSplit split = Split(data_.examples.size(), 0.1, generator);
    for (const int32_t i : EpochOrder(split.train.size(), generator))
      order_.push_back(split.train[static_cast<size_t>(i)]);
    batches_ = Batches(order_, 16);
  }
  size_t batches() const { return batches_.size(); }
  std::vector<Sequence> Batch(size_t b) const {
    std::vector<Sequence> out;
    for (const int32_t i : batches_[b])
      out.push_back(data_.examples[static_cast<size_t>(i)].sequence());
    return out;
  }
  size_t padded_length() const { return LengthBucket(data_.longest, 1024); }

 private:
  EncodedData data_;
  std::vector<int32_t> order_;
  std::vector<std::span<const int32_t>> batches_;
};

/// A loss and its LoRA gradients.
struct Gradient {
  double loss = 0;
  std::map<std::string, std::vector<float>> leaves;
};

/// An executor with LoRA factors that are all non-zero.
struct Adapted {
  Adapted(const std::string& name, const Numerics& numerics, Isa isa = SupportedIsas().back())
      : model(name, isa, numerics), lora(model.base, 4, 2.0f) {
    lora.Load(ReferenceNpz(name + "/lora_init.npz"), "");
    model.weights.PackAdapted(lora.const_view(), model.pool);
  }
  Gradient Of(const Forest& forest) {
    LoraArrays grads(model.base, 4, 2.0f);
    Gradient g;
    g.loss = model.LoraLoss(forest, lora, &grads);
    g.leaves = grads.arrays();
    return g;
  }
  Loaded model;
  LoraArrays lora;
};

inline Forest Pack(const std::vector<Sequence>& batch, Packing packing, size_t padded_length) {
  return BuildForest(batch, packing, static_cast<float>(std::max(1.0, CountedWeight(batch))),
                     padded_length);
}

/// `loss`, `gradient`: relative.
inline void ExpectNear(const Gradient& got, const Gradient& want, double loss, double gradient,
                       const std::string& what) {
  EXPECT_NEAR(got.loss, want.loss, loss * want.loss) << what;
  for (const auto& [path, values] : got.leaves)
    EXPECT_LE(RelativeL2(values, want.leaves.at(path)), gradient) << what << " " << path;
}

/// Tree and padded rows against chains.
inline void ExpectPackingsAgree(Adapted& m, const Epoch& epoch, size_t b, double loss,
                                double gradient) {
  const std::vector<Sequence> batch = epoch.Batch(b);
  const Gradient chain = m.Of(Pack(batch, Packing::kChain, 0));
  const std::string at = "batch " + std::to_string(b);
  const Forest tree = Pack(batch, Packing::kTree, 0);
  EXPECT_EQ(tree.rows(), DistinctPrefixes(batch));
  ExpectNear(m.Of(tree), chain, loss, gradient, at + ", tree");
  ExpectNear(m.Of(Pack(batch, Packing::kPadded, epoch.padded_length())), chain, loss, gradient,
             at + ", padded");
}

// Without quantisation: rows in another order, so float32 sums in another order.
inline constexpr double kPackedLoss = 1e-6, kPackedGradient = 1e-5;
// With it: the same, and an activation within that rounding of a code's edge may flip (shown to be
// the only cause in packing_test.cc).
inline constexpr double kPackedQatLoss = 1e-4, kPackedQatGradient = 2e-2;

}  // namespace needle::test
