#include <gtest/gtest.h>

#include <fstream>

#include "base/file.h"
#include "base/process.h"
#include "format/adapter.h"
#include "json/json.h"
#include "needle/needle.hpp"
#include "support/scratch.h"

namespace needle {
namespace {

constexpr const char* kTools =
    R"([{"name":"set_lamp","parameters":{"type":"object","properties":{"level":{"type":"integer"}},)"
    R"("required":["level"]}}])";

Result<BaseModel> Nano() {
  LoadOptions options;
  options.checkpoint = std::string(NEEDLE_GOLDEN_DIR) + "/nano/nano.pkl";
  options.download = false;
  return BaseModel::Load(options);
}

std::string WriteData(const test::ScratchFolder& folder) {
  const std::string path = folder.File("data.jsonl");
  std::ofstream out(path);
  for (int i = 0; i < 8; ++i)
    out << R"({"query":"lamp to )" << i << R"(","tools":)" << kTools
        << R"(,"answers":[{"name":"set_lamp","arguments":{"level":)" << i << "}}]}\n";
  return path;
}

class Counter final : public FinetuneObserver {
 public:
  void OnBackend(const std::string& name) override { backend = name; }
  void OnData(const FinetuneData& d) override { data = d; }
  void OnStart(const FinetuneStart& s) override { start = s; }
  void OnStep(const FinetuneStep& s) override {
    losses.push_back(s.loss);
    rows += s.rows.size();
  }
  void OnEpoch(const FinetuneEpoch& e) override { val_losses.push_back(e.val_loss.value_or(-1)); }
  bool ShouldStop() override { return losses.size() == stop_after; }

  std::string backend;
  FinetuneData data;
  FinetuneStart start;
  std::vector<double> losses, val_losses;
  size_t rows = 0, stop_after = 0;
};

FinetuneOptions Short(const std::string& out) {
  FinetuneOptions options;
  options.out = out;
  options.epochs = 6;
  options.batch_size = 3;
  options.lr = 1e-2f;
  options.lora_rank = 4;
  options.lora_alpha = 8;
  options.val_split = 0.25;
  return options;
}

TEST(Api, FinetunesBuildsOpensAndCompletes) {
  const test::ScratchFolder folder;
  const Result<BaseModel> base = Nano();
  ASSERT_TRUE(base.ok()) << base.error().message();
  EXPECT_GT(base->parameters(), 1000000u);
  Counter seen;
  const Result<FinetuneReport> tuned =
      Finetune(*base, WriteData(folder), Short(folder.File("a.pkl")), &seen);
  ASSERT_TRUE(tuned.ok()) << tuned.error().message();
  EXPECT_EQ(seen.backend, "cpu");
  EXPECT_EQ(seen.data.examples, 8u);
  EXPECT_EQ(seen.start.validation_examples, 2u);
  EXPECT_EQ(seen.start.numerics, "W4");
  EXPECT_EQ(seen.losses.size(), 12u);
  EXPECT_EQ(seen.rows, 36u) << "six examples in each of six epochs";
  EXPECT_LT(seen.val_losses.back(), seen.val_losses.front()) << "it learns";

  BuildOptions build;
  build.lora = folder.File("a.pkl");
  build.out = folder.File("m.cact");
  const Result<BuildReport> built = Build(*base, build);
  ASSERT_TRUE(built.ok()) << built.error().message();
  EXPECT_EQ(built->scheme, "W4");
  EXPECT_TRUE(built->from_adapter);

  const Result<Model> model = Model::Open(build.out);
  ASSERT_TRUE(model.ok()) << model.error().message();
  Result<Agent> agent = model->WithTools(kTools);
  ASSERT_TRUE(agent.ok()) << agent.error().message();
  const Result<Answer> answer = agent->Complete("lamp to 3");
  ASSERT_TRUE(answer.ok()) << answer.error().message();
  EXPECT_TRUE(json::Parse(answer->json).ok());
  const Result<json::Value> calls = json::Parse(answer->calls_json);
  ASSERT_TRUE(calls.ok());
  for (const json::Value& call : calls->items())
    EXPECT_EQ(call.Find("name")->as_string(), "set_lamp");
}

TEST(Api, AStoppedRunGoesOnToTheSameAdapter) {
  const test::ScratchFolder folder;
  const Result<BaseModel> base = Nano();
  ASSERT_TRUE(base.ok());
  const std::string data = WriteData(folder);
  ASSERT_TRUE(Finetune(*base, data, Short(folder.File("whole.pkl"))).ok());
  FinetuneOptions options = Short(folder.File("a.pkl"));
  Counter stop;
  stop.stop_after = 5;
  const Result<FinetuneReport> stopped = Finetune(*base, data, options, &stop);
  ASSERT_TRUE(stopped.ok()) << stopped.error().message();
  EXPECT_TRUE(stopped->interrupted);
  EXPECT_FALSE(FileExists(options.out));
  EXPECT_TRUE(FileExists(stopped->state_file));
  options.resume = true;
  const Result<FinetuneReport> resumed = Finetune(*base, data, options);
  ASSERT_TRUE(resumed.ok()) << resumed.error().message();
  const auto a = ReadFile(options.out), b = ReadFile(folder.File("whole.pkl"));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(*a, *b);
  EXPECT_FALSE(FileExists(stopped->state_file));
}

TEST(Api, ErrorsAreSentencesAndNothingIsWritten) {
  const test::ScratchFolder folder;
  LoadOptions absent;
  absent.checkpoint = folder.File("absent.pkl");
  const Result<BaseModel> none = BaseModel::Load(absent);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code(), Code::kNotFound);
  EXPECT_NE(none.error().message().find("absent.pkl"), std::string::npos);

  LoadOptions other;
  other.checkpoint = std::string(NEEDLE_GOLDEN_DIR) + "/nano/nano.pkl";
  other.tokenizer = std::string(NEEDLE_GOLDEN_DIR) + "/text/tokenizer_1024.model";
  const Result<BaseModel> unfit = BaseModel::Load(other);
  ASSERT_FALSE(unfit.ok());
  EXPECT_NE(unfit.error().message().find("1024 pieces"), std::string::npos);

  const Result<BaseModel> base = Nano();
  ASSERT_TRUE(base.ok());
  FinetuneOptions options = Short(folder.File("a.pkl"));
  options.lora_rank = 0;
  EXPECT_FALSE(Finetune(*base, WriteData(folder), options).ok());
  EXPECT_FALSE(FileExists(options.out));
  const Result<Model> model = Model::Open(WriteData(folder));
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code(), Code::kCorruptFile);
}

TEST(Api, WhatCannotBeDoneIsFoundBeforeTheTrainingBegins) {
  const test::ScratchFolder folder;
  const Result<BaseModel> base = Nano();
  ASSERT_TRUE(base.ok());
  const std::string data = WriteData(folder);
  const auto said = [&](const FinetuneOptions& options) {
    Counter seen;
    const Result<FinetuneReport> tuned = Finetune(*base, data, options, &seen);
    EXPECT_TRUE(seen.losses.empty());
    if (tuned.ok()) return std::string();
    EXPECT_EQ(tuned.error().code(), Code::kInvalidArgument) << tuned.error().message();
    return tuned.error().message();
  };
  for (const float alpha : {0.0f, -8.0f}) {
    FinetuneOptions options = Short(folder.File("a.pkl"));
    options.lora_alpha = alpha;
    EXPECT_NE(said(options).find("alpha"), std::string::npos);
  }
  EXPECT_NE(said(Short(folder.path())).find("folder"), std::string::npos);
  EXPECT_NE(said(Short(data + "/a.pkl")).find("data.jsonl"), std::string::npos);
  EXPECT_NE(said(Short(folder.File("a.txt"))).find(".safetensors"), std::string::npos);
  std::ofstream(folder.File("b.pkl.state")) << "my notes";
  EXPECT_NE(said(Short(folder.File("b.pkl"))).find("b.pkl.state"), std::string::npos);
  EXPECT_EQ(*ReadTextFile(folder.File("b.pkl.state")), "my notes");
}

TEST(Api, AnAdapterRecordsTheLargestSeed) {
  const test::ScratchFolder folder;
  const Result<BaseModel> base = Nano();
  ASSERT_TRUE(base.ok());
  for (const char* name : {"a.pkl", "a.safetensors"}) {
    FinetuneOptions options = Short(folder.File(name));
    options.epochs = 1;
    options.seed = ~uint64_t{0};
    ASSERT_TRUE(Finetune(*base, WriteData(folder), options).ok());
    const Result<Adapter> adapter = LoadAdapter(options.out);
    ASSERT_TRUE(adapter.ok()) << adapter.error().message();
    EXPECT_EQ(adapter->seed, options.seed);
  }
}

TEST(Api, ADeviceRunsABaseAndNoArchive) {
  DeviceOptions named;
  named.device = "cpu";
  const Result<Device> cpu = Device::Open(named);
  ASSERT_TRUE(cpu.ok()) << cpu.error().message();
  OpenOptions options;
  options.device = *cpu;
  const Result<BaseModel> base = Nano();
  ASSERT_TRUE(base.ok());
  const Result<Model> with = OpenBase(*base, "", options), without = OpenBase(*base);
  ASSERT_TRUE(with.ok() && without.ok());
  Result<Agent> one = with->WithTools(kTools), other = without->WithTools(kTools);
  ASSERT_TRUE(one.ok() && other.ok());
  EXPECT_EQ(one->Complete("lamp to 3")->tokens, other->Complete("lamp to 3")->tokens);
  const Result<Model> archive = Model::Open("m.cact", options);
  ASSERT_FALSE(archive.ok());
  EXPECT_EQ(archive.error().code(), Code::kInvalidArgument);
  EXPECT_NE(archive.error().message().find("an archive runs on the processor"), std::string::npos);
}

TEST(Api, TheDefaultBaseOfflineNamesTheTwoWaysOn) {
  LoadOptions options;
  options.download = false;
  if (FileExists(options.checkpoint)) GTEST_SKIP() << "there is a " << options.checkpoint;
  const test::ScratchFolder folder;
  SetEnv("HF_HOME", folder.path());
  const Result<BaseModel> base = BaseModel::Load(options);
  ASSERT_FALSE(base.ok());
  EXPECT_NE(base.error().message().find("--checkpoint bundled"), std::string::npos);
}

}  // namespace
}  // namespace needle
