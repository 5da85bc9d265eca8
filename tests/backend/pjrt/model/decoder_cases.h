// Token by token on the CPU plugin: against the engine's decoder, in one piece and in many. The
// test; each program that includes it names its models.
#pragma once

#include <gtest/gtest.h>

#include "backend/pjrt/model/on_plugin.h"
#include "backend/pjrt/pjrt_decoder.h"
#include "exec/decoder.h"
#include "support/mismatch.h"

namespace needle::test {

class PjrtDecoding : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { NEEDLE_NEED_PLUGIN(CpuPlugin()); }
};

inline std::vector<int32_t> Prompt(const std::string& model, size_t n) {
  std::vector<int32_t> ids = ReferenceNpz(model + "/forward.npz").at("ids").As<int32_t>();
  ids.resize(n);
  return ids;
}

TEST_P(PjrtDecoding, GivesTheEnginesLogitsAndTokensHoweverThePromptIsCut) {
  const Checkpoint base = ReferenceModel(GetParam());
  ThreadPool pool(2);
  const RunModel model(base.config, ParamArrays<float>(base.params), {}, pool);
  Decoder engine(model, pool);
  const std::vector<int32_t> prompt = Prompt(GetParam(), 60);
  const std::span<const float> first = engine.Append(prompt);
  const std::vector<float> want(first.begin(), first.end());
  std::vector<int32_t> tokens;
  std::span<const float> logits = first;
  for (int i = 0; i < 8; ++i) {
    tokens.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    logits = engine.Append(std::span<const int32_t>(tokens).last(1));
  }

  for (const bool unroll : {false, true}) {
    SCOPED_TRACE(unroll ? "unrolled" : "scanned");
    auto made = MakePjrtDecoder(CpuClient(CpuPlugin()), base, unroll);
    ASSERT_TRUE(made.ok()) << made.error().message();
    PjrtDecoder& device = **made;
    ASSERT_TRUE(device.Append(std::span(prompt).first(41)).ok());
    ASSERT_TRUE(device.Append(std::span(prompt).subspan(41, 1)).ok());
    const Result<std::span<const float>> got = device.Append(std::span(prompt).subspan(42));
    ASSERT_TRUE(got.ok()) << got.error().message();
    EXPECT_LE(RelativeMax(*got, want), 5e-6);

    device.Truncate(0);
    const Result<std::vector<int32_t>> decoded = DecodeGreedily(device, prompt, -1, 8);
    ASSERT_TRUE(decoded.ok()) << decoded.error().message();
    EXPECT_EQ(*decoded, tokens);
    EXPECT_EQ(device.length(), prompt.size() + 7);
  }
}

}  // namespace needle::test
