// What the command line does with input that makes no sense: a sentence, the right exit status, and
// nothing written over.
#include <gtest/gtest.h>

#include <algorithm>

#include "apps/program.h"

namespace needle::test {
namespace {

void ExpectRefused(const Workplace& w, const Arguments& arguments, const std::string& word) {
  const Finished f = w.Needle(arguments);
  EXPECT_EQ(f.status, 2) << f.err << word;
  EXPECT_NE(f.err.find(word), std::string::npos) << f.err;
  EXPECT_FALSE(Exists(w.File("a.pkl"))) << word;
}

TEST(Hostile, NumbersThatMakeNoSenseAreRefusedWithASentence) {
  const Workplace w;
  for (const auto& [option, value] :
       std::vector<std::pair<std::string, std::string>>{{"--batch-size", "18446744073709551615"},
                                                        {"--batch-size", "99999999999999999999999"},
                                                        {"--batch-size", "0"},
                                                        {"--lora-rank", "1000000000"},
                                                        {"--lora-rank", "0"},
                                                        {"--lora-alpha", "nan"},
                                                        {"--lr", "inf"},
                                                        {"--lr", "-1"},
                                                        {"--threads", "2147483647"},
                                                        {"--threads", "-1"},
                                                        {"--epochs", "0"},
                                                        {"--seed", "-1"},
                                                        {"--seed", "18446744073709551616"},
                                                        {"--seed", "1e3"},
                                                        {"--max-len", "99999999999999999999999"},
                                                        {"--val-split", "nan"}}) {
    const Finished f = w.Needle(Workplace::Finetune({option, value}));
    EXPECT_EQ(f.status, 2) << option << " " << value << " " << f.err;
    EXPECT_LT(f.err.size(), 400u) << f.err;
  }
  EXPECT_FALSE(Exists(w.File("a.pkl")));
  for (const Arguments& more : std::vector<Arguments>{{"--group", "0"},
                                                      {"--group", "18446744073709551615"},
                                                      {"--beta2", "nan"},
                                                      {"--weight-decay", "nan"},
                                                      {"--lm-weight", "-1"},
                                                      {"--steps", "-5"},
                                                      {"--lr", "nan"}}) {
    EXPECT_EQ(w.Needle(Workplace::Pretrain(more)).status, 2) << more[0] << " " << more[1];
    EXPECT_FALSE(Exists(w.File("p.pkl"))) << more[0];
  }
}

TEST(Hostile, AnEmptyValueDoesNotQuietlyMeanTheDefault) {
  const Workplace w;
  for (const char* option : {"--out", "--device", "--tokenizer", "--log", "--qat-bits", "--val"})
    ExpectRefused(w, Workplace::Finetune({option, ""}), "an empty text");
  ExpectRefused(w, {"build", "base.pkl", "--lora", ""}, "an empty text");
  EXPECT_EQ(w.Needle({"build", "base.pkl", "--out", "m.cact"}).status, 0);
  const Finished f = w.Needle({"run", "m.cact", "--system", "", "--query", "hi", "--max-len", "1"});
  EXPECT_EQ(f.err.find("an empty text"), std::string::npos) << f.err;
}

TEST(Hostile, AnOptionThatWouldDoNothingIsRefused) {
  const Workplace w;
  ASSERT_EQ(w.Needle({"build", "base.pkl", "--out", "m.cact"}).status, 0);
  ExpectRefused(w, {"run", "m.cact", "--query", "x", "--system", "be kind"}, "needs --tools");
  ExpectRefused(w, {"data", "check", "data.jsonl", "--max-len", "9"}, "needs --checkpoint");
  ExpectRefused(w, {"eval", "data.jsonl", "m.cact"}, "where the data file belongs");
  for (const Arguments& a :
       std::vector<Arguments>{{"run", "m.cact", "--query", "x"},
                              {"eval", "m.cact", "data.jsonl"},
                              {"run", "--checkpoint", "base.pkl", "--query", "x"}}) {
    const Finished f = w.Needle(a, {{"NEEDLE_ISA", "wibble"}});
    EXPECT_EQ(f.status, 2) << a[0];
    EXPECT_NE(f.err.find("NEEDLE_ISA"), std::string::npos) << f.err;
  }
}

TEST(Hostile, AReportThatCannotBeWrittenStopsBeforeTheScoring) {
  const Workplace w;
  ASSERT_EQ(w.Needle({"build", "base.pkl", "--out", "m.cact"}).status, 0);
  for (const char* report : {".", "data.jsonl/r.html"}) {
    const Finished f = w.Needle({"eval", "m.cact", "data.jsonl", "--report", report});
    EXPECT_EQ(f.status, 2) << report << f.err;
    EXPECT_EQ(f.out.find("accuracy"), std::string::npos) << f.out;
  }
}

TEST(Hostile, WhatIsShownOfARowCannotCommandTheTerminal) {
  const Workplace w;
  ASSERT_EQ(w.Needle({"build", "base.pkl", "--out", "m.cact"}).status, 0);
  Write(w.File("esc.jsonl"),
        "{\"query\":\"a\\u001b[31m\\u0007\\u009b2Jb\",\"tools\":[{\"name\":\"t\"}],\"answers\":[{"
        "\"name\":"
        "\"t\",\"arguments\":{}}]}\n");
  const Finished f = w.Needle({"eval", "m.cact", "esc.jsonl"});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.out.find("a [31m"), std::string::npos) << f.out;
  EXPECT_EQ(f.out.find_first_of("\x1b\x07"), std::string::npos) << f.out;
  EXPECT_EQ(f.out.find("\xC2\x9B"), std::string::npos) << f.out;
}

TEST(Hostile, DataWithoutOneUsableLineIsListedWhole) {
  const Workplace w;
  std::string lines;
  for (int i = 0; i < 25; ++i) lines += "{}\n";
  Write(w.File("bad.jsonl"), lines);
  const Finished f = w.Needle({"data", "check", "bad.jsonl"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.out.find("bad.jsonl:25:"), std::string::npos) << f.out;
  const Finished document = w.Needle({"data", "check", "bad.jsonl", "--json"});
  EXPECT_EQ(document.status, 2);
  EXPECT_NE(document.out.find("\"line\":25"), std::string::npos) << document.out;
  const Finished trained = w.Needle(Workplace::Finetune({"--val", "bad.jsonl"}));
  EXPECT_EQ(trained.status, 2);
  EXPECT_NE(trained.err.find("5 more problems"), std::string::npos) << trained.err;
}

TEST(Hostile, AnEmptyOrHalfFileIsNamedAsWhatItIs) {
  const Workplace w;
  Write(w.File("none"), "");
  ExpectRefused(w, {"inspect", "none"}, "none: the file is empty");
  Write(w.File("half.model"), Contents(w.File("tokenizer.model")).substr(0, 100));
  const Finished f = w.Needle({"inspect", "half.model"});
  EXPECT_EQ(f.status, 2);
  EXPECT_EQ(f.err.find("half.model", f.err.find("half.model") + 1), std::string::npos)
      << "the name once is enough: " << f.err;
}

TEST(Hostile, NoOutputIsWrittenOverAnInput) {
  const Workplace w;
  const std::string base = Contents(w.File("base.pkl")), data = Contents(w.File("data.jsonl")),
                    tokenizer = Contents(w.File("tokenizer.model"));
  std::filesystem::create_hard_link(w.File("base.pkl"), w.File("same.pkl"));
  for (const Arguments& more : std::vector<Arguments>{{"--out", "base.pkl"},
                                                      {"--out", "./base.pkl"},
                                                      {"--out", "same.pkl"},
                                                      {"--log", "data.jsonl"},
                                                      {"--log", "tokenizer.model"},
                                                      {"--log", "a.pkl"},
                                                      {"--profile", "data.jsonl"}}) {
    const Finished f = w.Needle(Workplace::Finetune(more));
    EXPECT_EQ(f.status, 2) << more[0] << " " << more[1];
    EXPECT_NE(f.err.find("another name"), std::string::npos) << f.err;
  }
  for (const char* out : {"base.pkl", "tokenizer.model"})
    EXPECT_EQ(w.Needle({"build", "base.pkl", "--out", out}).status, 2) << out;
  ASSERT_EQ(w.Needle({"build", "base.pkl", "--out", "a.cact"}).status, 0);
  const std::string archive = Contents(w.File("a.cact"));
  for (const char* report : {"a.cact", "data.jsonl"})
    EXPECT_EQ(w.Needle({"eval", "a.cact", "data.jsonl", "--report", report}).status, 2) << report;
  EXPECT_EQ(Contents(w.File("a.cact")), archive);
  EXPECT_EQ(Contents(w.File("base.pkl")), base);
  EXPECT_EQ(Contents(w.File("data.jsonl")), data);
  EXPECT_EQ(Contents(w.File("tokenizer.model")), tokenizer);
}

TEST(Hostile, ALogThatCannotBeWrittenStopsBeforeTheTraining) {
  const Workplace w;
  ASSERT_TRUE(std::filesystem::create_directory(w.File("folder")));
  ExpectRefused(w, Workplace::Finetune({"--log", "folder"}), "folder");
  ExpectRefused(w, Workplace::Finetune({"--log", "data.jsonl/x"}), "data.jsonl");
  ExpectRefused(w, Workplace::Finetune({"--profile", "folder"}), "folder");
}

TEST(Hostile, AFolderIsNoInputFile) {
  const Workplace w;
  ASSERT_TRUE(std::filesystem::create_directory(w.File("folder")));
  for (const Arguments& a : std::vector<Arguments>{{"inspect", "folder"},
                                                   {"build", "folder"},
                                                   {"run", "folder", "--query", "x"},
                                                   {"eval", "folder", "data.jsonl"},
                                                   {"data", "check", "folder"}})
    EXPECT_EQ(w.Needle(a).status, 2) << a[0];
}

#ifndef _WIN32  // by the shell and devices of POSIX systems
TEST(Hostile, AFullStdoutIsAnErrorAndNoCrash) {
  if (!Exists("/dev/full")) GTEST_SKIP() << "no /dev/full on this system";
  const Workplace w;
  for (const char* json : {"", "--json"}) {
    const std::string command = std::string("cd ") + w.folder() + " && '" + NEEDLE_PROGRAM +
                                "' inspect base.pkl " + json + " >/dev/full 2>/dev/null";
    const int state = std::system(command.c_str());
    ASSERT_TRUE(WIFEXITED(state));
    EXPECT_EQ(WEXITSTATUS(state), 1) << json;
  }
}
#endif

TEST(Hostile, EveryBadLineIsListedAlsoWhenAllAreBad) {
  const Workplace w;
  Write(w.File("bad.jsonl"), "\xEF\xBB\xBF{\n{\"tools\":[]}\n");
  const Finished f = w.Needle({"data", "check", "bad.jsonl"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.out.find("bad.jsonl:1:"), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("bad.jsonl:2:"), std::string::npos) << f.out;
}

TEST(Hostile, AStoppedRunGoesOnWithItsOwnSettingsAndWholeStateOnly) {
  NEEDLE_NEED_INTERRUPT();
  const Workplace w;
  Arguments arguments = Workplace::Finetune({"--log", "steps.jsonl"});
  *(std::find(arguments.begin(), arguments.end(), "--epochs") + 1) = "2000";
  ASSERT_EQ(w.StopAfter(arguments, 2).status, 1);
  const auto resumed = [&](const Arguments& more) {
    return w.Needle(With(With(arguments, {"--resume"}), more));
  };
  for (const Arguments& more :
       std::vector<Arguments>{{"--qat-bits", "none"}, {"--lora-alpha", "5"}, {"--seed", "8"}}) {
    const Finished f = resumed(more);
    EXPECT_EQ(f.status, 2) << more[0];
    EXPECT_NE(f.err.find("settings"), std::string::npos) << f.err;
  }
  std::string state = Contents(w.File("a.pkl.state"));
  state[state.size() / 2] = static_cast<char>(state[state.size() / 2] ^ 1);
  Write(w.File("a.pkl.state"), state);
  const Finished damaged = resumed({});
  EXPECT_EQ(damaged.status, 2);
  EXPECT_NE(damaged.err.find("damaged"), std::string::npos) << damaged.err;
}

}  // namespace
}  // namespace needle::test
