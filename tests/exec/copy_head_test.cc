// The planted head does what it is for: at a token that came before, it looks at what followed it.
#include "model/copy_head.h"

#include <gtest/gtest.h>

#include "base/random.h"
#include "exec/executor.h"
#include "ops/norm.h"

namespace needle {
namespace {

ModelConfig CopyConfig() {
  ModelConfig c;
  c.vocab_size = 512;
  c.d_model = 128;
  c.num_heads = 2;
  c.num_kv_heads = 1;
  c.num_layers = 2;
  c.engram_orders = {1};
  c.engram_heads = 2;
  c.engram_slots = 512;
  c.engram_layers = {0};
  c.mhc_lanes = 1;
  return c;
}

Rows Chain(const std::vector<int32_t>& ids) {
  Rows rows;
  for (size_t t = 0; t < ids.size(); ++t) {
    const auto row = static_cast<int32_t>(t);
    rows.tokens.push_back(ids[t]);
    rows.parent.push_back(row - 1);
    rows.depth.push_back(row);
    rows.key_first.push_back(row);
    rows.key_end.push_back(static_cast<int32_t>(ids.size()));
  }
  return rows;
}

/// The key row that head 0 of layer 0 attends to most, at the last row.
size_t MostAttended(const Weights& w, Executor& executor, const std::vector<int32_t>& ids) {
  const Dims& d = w.dims();
  const Rows rows = Chain(ids);
  Context context;
  Activations acts;
  acts.keep = true;
  executor.Forward(rows, context, acts);
  const size_t last = ids.size() - 1;
  std::vector<float> q(d.E);
  const MatView<float> query(q.data(), 1, d.E);
  RmsNormForward<float>({acts.layers[0].qkvg.data() + last * d.NQ, 1, d.E},
                        w.view().blocks[0].q_norm, query);
  const std::vector<int32_t> position = {static_cast<int32_t>(last)};
  RopeInPlace<float>(query, position, RopeTable<float>(ids.size(), d.E, w.config().rope_theta), 1);
  size_t best = 0;
  float most = -INFINITY;
  for (size_t j = 0; j <= last; ++j) {
    float dot = 0;
    for (size_t e = 0; e < d.E; ++e) dot += q[e] * context.kv[0].data()[j * 2 * d.KE + e];
    if (dot > most) most = dot, best = j;
  }
  return best;
}

TEST(CopyHead, LooksAtWhatFollowedTheSameTokenBefore) {
  Checkpoint model = RandomCheckpoint(CopyConfig(), 3, DType::kF32);
  ASSERT_TRUE(PlantCopyHead(model, 3).ok());
  ThreadPool pool(1);
  const Weights weights(model.config, BestKernels(), ParamArrays<float>(model.params), {}, false,
                        false, pool);
  Executor executor(weights, pool);
  const std::vector<uint32_t> draws = JaxBits(JaxPrngKey(5), 20 * 80);
  int right = 0;
  for (size_t trial = 0; trial < 20; ++trial) {
    // 80 distinct tokens, then one of them again.
    std::vector<int32_t> ids;
    for (size_t t = 0; t < 80; ++t)
      ids.push_back(static_cast<int32_t>(14 + (t * 37 + draws[trial]) % 480));
    const size_t copied = draws[trial * 80 + 1] % 79;
    ids.push_back(ids[copied]);
    if (MostAttended(weights, executor, ids) == copied + 1) ++right;
  }
  EXPECT_GE(right, 18);  // two may collide in the hashed memory
}

TEST(CopyHead, RefusesAModelWhoseMemoryCannotSeeTheTokenBefore) {
  ModelConfig c = CopyConfig();
  c.engram_orders = {2, 3};
  c.engram_heads = 1;
  Checkpoint model = RandomCheckpoint(c, 3, DType::kF32);
  const Status status = PlantCopyHead(model, 3);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message().find("engram_orders"), std::string::npos);
}

}  // namespace
}  // namespace needle
