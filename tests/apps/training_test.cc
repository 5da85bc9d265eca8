// finetune and pretrain as a person meets them: files that are in the way, stops, logs, pipes.
#include <gtest/gtest.h>

#include <algorithm>

#include "apps/program.h"
#include "format/adapter.h"
#include "format/checkpoint.h"
#include "json/json.h"
#include "train/state.h"

namespace needle::test {
namespace {

/// The lines of a log without their seconds: "step 3", "epoch 1".
std::vector<std::string> LinesOf(const std::string& log) {
  std::vector<std::string> lines;
  std::istringstream in(log);
  for (std::string line; std::getline(in, line);) {
    const Result<json::Value> value = json::Parse(line);
    EXPECT_TRUE(value.ok()) << line;
    if (!value.ok()) continue;
    for (const char* key : {"step", "epoch"})
      if (const json::Value* number = value->Find(key)) {
        lines.push_back(key + (" " + json::Dump(*number)));
        break;
      }
  }
  return lines;
}

void ExpectRefused(const Workplace& w, const Arguments& arguments, const std::string& word) {
  const Finished f = w.Needle(arguments);
  EXPECT_EQ(f.status, 2) << f.err;
  EXPECT_NE(f.err.find(word), std::string::npos) << f.err;
  EXPECT_EQ(f.out.find("schedule"), std::string::npos) << "found before the work: " << f.out;
}

TEST(TrainingOutputs, ThatCannotBeWrittenStopBeforeTheWork) {
  const Workplace w;
  ASSERT_TRUE(std::filesystem::create_directory(w.File("folder")));
  for (const auto& command : {Workplace::Finetune(), Workplace::Pretrain()}) {
    const auto with_out = [&](const std::string& out) { return With(command, {"--out", out}); };
    ExpectRefused(w, with_out("folder"), "folder");
    ExpectRefused(w, with_out("data.jsonl/a.pkl"), "data.jsonl");
    ExpectRefused(w, with_out("a.txt"), "a.txt");
#ifdef __linux__
    ExpectRefused(w, with_out("/proc/no-such-folder/a.pkl"), "/proc");
#endif
  }
  EXPECT_EQ(w.Needle({"build", "base.pkl", "--out", "folder"}).status, 2);
  EXPECT_EQ(w.Needle({"init", "--preset", "tiny", "--out", "folder"}).status, 2);
}

TEST(TrainingOutputs, NeverMeanOneFileOrAnInput) {
  const Workplace w;
  const std::string data = Contents(w.File("data.jsonl"));
  std::filesystem::create_hard_link(w.File("data.jsonl"), w.File("d.pkl.state"));
  for (const Arguments& more : std::vector<Arguments>{{"--out", "d.pkl"},
                                                      {"--log", "a.pkl.state"},
                                                      {"--log", "a.pkl.state.old"},
                                                      {"--profile", "./a.pkl.state"},
                                                      {"--log", "L", "--profile", "L"},
                                                      {"--log", "./L", "--profile", "L"}})
    ExpectRefused(w, Workplace::Finetune(more), "another name");
  for (const Arguments& more : std::vector<Arguments>{
           {"--log", "p.pkl"}, {"--log", "p.pkl.state"}, {"--out", "d.pkl"}, {"--log", "base.pkl"}})
    ExpectRefused(w, Workplace::Pretrain(more), "another name");
  EXPECT_EQ(Contents(w.File("data.jsonl")), data);
  EXPECT_EQ(Contents(w.File("d.pkl.state")), data);
  EXPECT_FALSE(Exists(w.File("L")));
  EXPECT_EQ(w.Needle(Workplace::Finetune({"--log", kNowhere, "--profile", "L"})).status, 0);
}

TEST(TrainingOutputs, AFileThatIsNoStateStaysAsItIs) {
  const Workplace w;
  Write(w.File("a.pkl.state"), "my notes");
  Write(w.File("p.pkl.state"), "my notes");
  for (const Arguments& command : {Workplace::Finetune(), Workplace::Pretrain()}) {
    ExpectRefused(w, command, ".state");
    EXPECT_EQ(w.Needle(With(command, {"--resume"})).status, 2);
  }
  EXPECT_EQ(Contents(w.File("a.pkl.state")), "my notes");
  EXPECT_EQ(Contents(w.File("p.pkl.state")), "my notes");
}

TEST(TrainingStops, PretrainExitsWith1AndGoesOn) {
  NEEDLE_NEED_INTERRUPT();
  const Workplace w;
  const Arguments arguments = Workplace::Pretrain({"--log", "steps.jsonl", "--epochs", "40"});
  const Finished stopped = w.StopAfter(arguments, 2);
  if (stopped.status == 0) GTEST_SKIP() << "it ended before the signal";
  EXPECT_EQ(stopped.status, 1) << stopped.err;
  EXPECT_NE(stopped.out.find("--resume"), std::string::npos) << stopped.out;
  EXPECT_TRUE(Exists(w.File("p.pkl.state")));
  EXPECT_FALSE(Exists(w.File("p.pkl")));
  EXPECT_EQ(w.Needle(With(arguments, {"--resume"})).status, 0);
  EXPECT_TRUE(Exists(w.File("p.pkl")));
  EXPECT_FALSE(Exists(w.File("p.pkl.state")));
}

TEST(TrainingStops, AnotherBaseIsNoBaseToGoOnWith) {
  NEEDLE_NEED_INTERRUPT();
  const Workplace w;
  Checkpoint other = *LoadCheckpoint(w.File("base.pkl"));
  Tensor& first = other.params.begin()->second;
  first.Put(0, first.At(0) + 1);
  ASSERT_TRUE(SaveCheckpoint(w.File("other.pkl"), other).ok());
  const Arguments arguments = Workplace::Finetune({"--log", "steps.jsonl", "--epochs", "40"});
  if (w.StopAfter(arguments, 1).status == 0) GTEST_SKIP() << "it ended before the signal";
  ExpectRefused(w, With(arguments, {"--resume", "--checkpoint", "other.pkl"}), "another base");
}

TEST(TrainingStops, ANewRunKeepsTheStoppedOneAndSaysWhere) {
  NEEDLE_NEED_INTERRUPT();
  const Workplace w;
  const Arguments arguments = Workplace::Finetune({"--log", "steps.jsonl", "--epochs", "40"});
  const Finished stopped = w.StopAfter(arguments, 2);
  if (stopped.status == 0) GTEST_SKIP() << "it ended before the signal";
  const std::string state = Contents(w.File("a.pkl.state"));
  const Finished anew = w.Needle(Workplace::Finetune());
  EXPECT_EQ(anew.status, 0) << anew.err;
  for (const char* word : {"a.pkl.state.old", "stopped after step", "--resume"})
    EXPECT_NE(anew.err.find(word), std::string::npos) << anew.err;
  EXPECT_EQ(Contents(w.File("a.pkl.state.old")), state);
  EXPECT_FALSE(Exists(w.File("a.pkl.state")));
}

TEST(TrainingLog, HoldsEachStepAndEpochOnceAfterAnyStop) {
  NEEDLE_NEED_INTERRUPT();
  const Workplace w;
  const Arguments arguments = Workplace::Finetune({"--log", "steps.jsonl", "--epochs", "40"});
  ASSERT_EQ(w.Needle(arguments).status, 0);
  const std::vector<std::string> whole = LinesOf(Contents(w.File("steps.jsonl")));
  EXPECT_EQ(whole.size(), 160u) << "three steps an epoch, and its own line";
  if (w.StopAfter(arguments, 3).status == 0) GTEST_SKIP() << "it ended before the signal";
  const Result<SavedRun> state = LoadTrainState(w.File("a.pkl.state"));
  ASSERT_TRUE(state.ok()) << state.error().message();
  // As after a crash: steps that the state knows nothing of, the last of them cut short.
  std::string log = Contents(w.File("steps.jsonl"));
  for (int64_t step = state->step + 1; step <= state->step + 3; ++step)
    log += "{\"step\":" + std::to_string(step) + ",\"epoch\":1,\"loss\":1.5}\n";
  Write(w.File("steps.jsonl"), log + "{\"epoch\":1,\"val_loss\":1.0}\n{\"step\":9,\"lo");
  const Finished f = w.Needle(With(arguments, {"--resume"}));
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(LinesOf(Contents(w.File("steps.jsonl"))), whole);
}

#ifndef _WIN32  // by the shell and devices of POSIX systems
TEST(TrainingOutput, AClosedPipeEndsThePrintingAndNotTheRun) {
  const Workplace w;
  std::string command = std::string("cd ") + w.folder() + " && { '" + NEEDLE_PROGRAM + "'";
  for (const std::string& a : Workplace::Finetune()) command += " " + a;
  command += " --device cpu 2>err; echo $? >status; } | true";
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(Contents(w.File("status")), "1\n") << Contents(w.File("err"));
  EXPECT_NE(Contents(w.File("err")).find("could not be written whole"), std::string::npos);
  EXPECT_TRUE(LoadAdapter(w.File("a.pkl")).ok());
}
#endif

TEST(TrainingNumbers, ARateBeyondReasonWritesNothingAndExitsWith1) {
  const Workplace w;
  for (const Arguments& more : std::vector<Arguments>{
           {}, {"--val-split", "0"}, {"--epochs", "1"}, {"--epochs", "1", "--batch-size", "16"}}) {
    const Finished f = w.Needle(With(Workplace::Finetune({"--lr", "1e30"}), more));
    EXPECT_EQ(f.status, 1) << f.out;
    EXPECT_NE(f.err.find("finite"), std::string::npos) << f.err;
    EXPECT_FALSE(Exists(w.File("a.pkl")));
  }
  const Finished all = w.Needle(Workplace::Pretrain({"--lr", "1e30", "--steps", "2"}));
  EXPECT_EQ(all.status, 1) << all.out;
  EXPECT_FALSE(Exists(w.File("p.pkl")));
}

TEST(TrainingOptions, ThatAskForNothingOrForADeviceAreNamed) {
  const Workplace w;
  ExpectRefused(w, Workplace::Finetune({"--lora-alpha", "0"}), "--lora-alpha");
  ExpectRefused(w, Workplace::Finetune({"--lora-alpha=-8"}), "--lora-alpha");
  const Finished f = w.Needle(Workplace::Finetune(
      {"--devices", "2", "--remat", "on", "--precision", "bf16", "--device", "cpu"}));
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.err.find("no effect on the cpu engine: --devices, --remat, --precision"),
            std::string::npos)
      << f.err;
  EXPECT_EQ(w.Needle(Workplace::Finetune()).err.find("no effect"), std::string::npos);
}

TEST(TrainingOptions, TheLargestSeedIsRecordedAsGiven) {
  const Workplace w;
  const Finished f = w.Needle({"init", "--preset", "tiny", "--tokenizer", "tokenizer.model",
                               "--out", "i.pkl", "--seed", "18446744073709551615", "--json"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.out.find("\"seed\":18446744073709551615"), std::string::npos) << f.out;
  ASSERT_EQ(w.Needle(Workplace::Finetune({"--seed", "18446744073709551615"})).status, 0);
  EXPECT_EQ(LoadAdapter(w.File("a.pkl"))->seed, 18446744073709551615u);
}

TEST(PretrainConfig, ErrorsNameTheFile) {
  const Workplace w;
  for (const char* text :
       {"{", "[]", R"({"d_model":2147483648})", R"({"d_model":-3})", R"({"d_model":"x"})"}) {
    Write(w.File("config.json"), text);
    const Finished f = w.Needle({"pretrain", "data.jsonl", "--tokenizer", "tokenizer.model",
                                 "--config", "config.json", "--out", "p.pkl"});
    EXPECT_EQ(f.status, 2) << text;
    EXPECT_NE(f.err.find("config.json"), std::string::npos) << text << f.err;
  }
}

}  // namespace
}  // namespace needle::test
