#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "apps/program.h"
#include "format/checkpoint.h"
#include "json/json.h"

namespace needle::test {
namespace {

using testing::Test;

const std::vector<Arguments> kCommands = {
    {"init"},    {"finetune"}, {"build"},         {"eval"},     {"run"},     {"verify"},
    {"inspect"}, {"download"}, {"data", "check"}, {"pretrain"}, {"devices"}, {"doctor"}};

/// The labels of upstream's lines, in order.
std::vector<std::string> Labels(const std::string& text) {
  std::vector<std::string> labels;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_EQ(line.substr(0, 2), "  ") << line;
    std::string label = line.substr(2, 9);
    label.erase(label.find_last_not_of(' ') + 1);
    if (labels.empty() || labels.back() != label) labels.push_back(label);
  }
  return labels;
}

json::Value OneDocument(const Finished& f) {
  EXPECT_EQ(std::count(f.out.begin(), f.out.end(), '\n'), 1) << f.out;
  const Result<json::Value> value = json::Parse(f.out);
  EXPECT_TRUE(value.ok()) << f.out << f.err;
  return value.ok() ? *value : json::Value();
}

TEST(CommandLine, HelpNamesEveryCommandAndABareCallShowsIt) {
  const Workplace w;
  for (const Arguments& a : {Arguments{}, Arguments{"--help"}, Arguments{"-h"}}) {
    const Finished f = w.Needle(a);
    EXPECT_EQ(f.status, 0) << f.err;
    for (const Arguments& command : kCommands)
      EXPECT_NE(f.out.find("\n  " + command.front()), std::string::npos) << command.front();
  }
}

TEST(CommandLine, EveryCommandHasAHelpText) {
  const Workplace w;
  for (const Arguments& command : kCommands) {
    const Finished f = w.Needle(With(command, {"--help"}));
    EXPECT_EQ(f.status, 0) << command.front();
    EXPECT_NE(f.out.find("--json"), std::string::npos) << command.front();
  }
}

TEST(CommandLine, WhatItDoesNotKnowExitsWith2AndSaysSo) {
  const Workplace w;
  for (const Arguments& command : kCommands) {
    const Finished f = w.Needle(With(command, {"--no-such-option"}));
    EXPECT_EQ(f.status, 2) << command.front();
    EXPECT_FALSE(f.err.empty()) << command.front();
    EXPECT_EQ(f.out, "") << command.front();
  }
  EXPECT_EQ(w.Needle({"no-such-command"}).status, 2);
  for (const char* option : {"--generate", "--model", "--workers"})
    EXPECT_EQ(w.Needle(Workplace::Finetune({option, "1"})).status, 2) << option;
  EXPECT_EQ(w.Needle({"build", "base.pkl", "--upload"}).status, 2);
  EXPECT_EQ(w.Needle(Workplace::Finetune({"--packing", "heap"})).status, 2);
  EXPECT_EQ(w.Needle(Workplace::Finetune({"--qat-bits", "3"})).status, 2);
  EXPECT_EQ(w.Needle(Workplace::Finetune({"--device", "toaster"})).status, 2);
  EXPECT_EQ(w.Needle(Workplace::Finetune({"--device", "cuda:x"})).status, 2);
  EXPECT_EQ(w.Needle(Workplace::Finetune({"--devices", "none"})).status, 2);
  EXPECT_FALSE(Exists(w.File("a.pkl")));
}

TEST(CommandLine, ShowsItsVersion) {
  const Finished f = Workplace().Needle({"--version"});
  EXPECT_EQ(f.status, 0);
  EXPECT_EQ(f.out.rfind("needle ", 0), 0u) << f.out;
}

TEST(Finetune, PrintsUpstreamsLinesInUpstreamsOrder) {
  const Workplace w;
  const Finished f = w.Needle(Workplace::Finetune());
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(Labels(f.out), (std::vector<std::string>{"backend", "tokenizer", "data", "numerics",
                                                     "lora", "holdout", "schedule", "step", "epoch",
                                                     "step", "epoch", "adapter", "next", "note"}));
  EXPECT_EQ(f.out.rfind("  backend   cpu  float32\n", 0), 0u) << f.out;
  EXPECT_NE(f.out.find("\n  data      13 examples  seq_len 128  cap 1024\n"), std::string::npos);
  EXPECT_NE(f.out.find("\n  numerics  CQ W4 STE + A8 (matches export)\n"), std::string::npos);
  EXPECT_NE(f.out.find("\n  lora      rank 4  alpha 8  4 weight groups\n"), std::string::npos);
  EXPECT_NE(f.out.find("\n  holdout   1 examples for validation\n"), std::string::npos);
  EXPECT_NE(f.out.find("\n  schedule  6 steps  warmup 1  cosine decay  clip 1.0\n"),
            std::string::npos);
  EXPECT_NE(f.out.find("\n  step      6/6  loss "), std::string::npos);
  EXPECT_NE(f.out.find("\n  adapter   a.pkl\n"), std::string::npos);
  EXPECT_NE(f.out.find("\n  next      needle build base.pkl --lora a.pkl\n"), std::string::npos);
  EXPECT_TRUE(Exists(w.File("a.pkl")));
  EXPECT_FALSE(Exists(w.File("a.pkl.state")));
}

TEST(Finetune, LogsAJsonLineForEachStepAndEpoch) {
  const Workplace w;
  ASSERT_EQ(w.Needle(Workplace::Finetune({"--log", "steps.jsonl"})).status, 0);
  std::istringstream lines(Contents(w.File("steps.jsonl")));
  size_t steps = 0, epochs = 0;
  for (std::string line; std::getline(lines, line);) {
    const Result<json::Value> value = json::Parse(line);
    ASSERT_TRUE(value.ok()) << line;
    std::string keys;
    for (const auto& [key, member] : value->members()) keys += key + " ";
    if (value->Find("step") == nullptr) {
      EXPECT_EQ(keys, "epoch val_loss ");
      ++epochs;
      continue;
    }
    EXPECT_EQ(keys, "step epoch loss lr grad_norm rows target_tokens tokens_computed seconds ");
    ++steps;
    for (const json::Value& row : value->Find("rows")->items()) {
      EXPECT_GE(*row.as_int64(), 0);
      EXPECT_LT(*row.as_int64(), 13);
    }
    EXPECT_GT(*value->Find("tokens_computed")->as_int64(), 0);
  }
  EXPECT_EQ(steps, 6u);
  EXPECT_EQ(epochs, 2u);
}

TEST(Finetune, TheThreadsDoNotChangeTheAdapter) {
  const Workplace w;
  ASSERT_EQ(w.Needle(Workplace::Finetune()).status, 0);
  const std::string one = Contents(w.File("a.pkl"));
  Arguments two = Workplace::Finetune();
  two.back() = "3";
  ASSERT_EQ(w.Needle(two).status, 0);
  EXPECT_EQ(one, Contents(w.File("a.pkl")));
}

TEST(Finetune, StopsWhenAskedAndGoesOnToTheSameAdapter) {
  NEEDLE_NEED_INTERRUPT();
  const Workplace w;
  Arguments arguments = Workplace::Finetune({"--log", "steps.jsonl"});
  *(std::find(arguments.begin(), arguments.end(), "--epochs") + 1) = "12";
  ASSERT_EQ(w.Needle(arguments).status, 0);
  const std::string whole = Contents(w.File("a.pkl"));
  ASSERT_TRUE(std::filesystem::remove(w.File("a.pkl")));

  const Finished stopped = w.StopAfter(arguments, 2);
  if (stopped.status == 0) GTEST_SKIP() << "the run ended before the signal arrived";
  EXPECT_EQ(stopped.status, 1);
  EXPECT_NE(stopped.out.find("--resume"), std::string::npos) << stopped.out;
  EXPECT_TRUE(Exists(w.File("a.pkl.state")));
  EXPECT_FALSE(Exists(w.File("a.pkl")));

  const Finished resumed = w.Needle(With(arguments, {"--resume"}));
  EXPECT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_EQ(Contents(w.File("a.pkl")), whole);
  EXPECT_FALSE(Exists(w.File("a.pkl.state")));
}

TEST(Finetune, AProfileThatCannotBeWrittenStopsItBeforeTheTraining) {
  const Workplace w;
  std::filesystem::create_directory(w.File("folder"));
  std::vector<std::string> places = {"folder"};
  if (Exists("/dev/null")) places.emplace_back("/dev/null");
  for (const std::string& place : places) {
    const Finished f = w.Needle(Workplace::Finetune({"--profile", place}));
    EXPECT_EQ(f.status, 2) << place << f.err;
    EXPECT_NE(f.err.find(place + ": "), std::string::npos) << f.err;
    EXPECT_FALSE(Exists(w.File("a.pkl")));
  }
}

TEST(Finetune, ListsBadLinesAndWritesNothing) {
  const Workplace w;
  Write(w.File("bad.jsonl"),
        Workplace::Line("fine", 1) + "{\"tools\":[]}\nnot json\n" +
            R"({"query":"x","tools":[],"answers":[{"name":"ghost","arguments":{}}]})" + "\n" +
            Workplace::Line("fine too", 2));
  Arguments arguments = Workplace::Finetune({"--log", "steps.jsonl"});
  arguments[1] = "bad.jsonl";
  const Finished f = w.Needle(arguments);
  EXPECT_EQ(f.status, 2);
  for (const char* place : {"bad.jsonl:2", "bad.jsonl:3", "bad.jsonl:4"})
    EXPECT_NE(f.err.find(place), std::string::npos) << f.err;
  EXPECT_FALSE(Exists(w.File("a.pkl")));
  EXPECT_FALSE(Exists(w.File("steps.jsonl")));

  const Finished skipped = w.Needle(With(arguments, {"--skip-bad"}));
  EXPECT_EQ(skipped.status, 0) << skipped.err;
  EXPECT_NE(skipped.err.find("skipped 3 lines"), std::string::npos) << skipped.err;
  EXPECT_TRUE(Exists(w.File("a.pkl")));
}

TEST(Finetune, LongExamplesStopAreCutOrDropped) {
  const Workplace w;
  std::string words;
  for (int i = 0; i < 200; ++i) words += "lamp ";
  Write(w.File("long.jsonl"), Workplace::Line("short", 1) + Workplace::Line(words, 2));
  Arguments arguments = Workplace::Finetune({"--max-len", "160"});
  arguments[1] = "long.jsonl";
  const Finished stopped = w.Needle(arguments);
  EXPECT_EQ(stopped.status, 2);
  EXPECT_NE(stopped.err.find("long.jsonl:2"), std::string::npos) << stopped.err;
  EXPECT_FALSE(Exists(w.File("a.pkl")));
  const Finished cut = w.Needle(With(arguments, {"--long", "cut"}));
  EXPECT_EQ(cut.status, 0) << cut.err;
  EXPECT_NE(cut.err.find("1 examples were cut"), std::string::npos) << cut.err;
  const Finished dropped = w.Needle(With(arguments, {"--long", "drop"}));
  EXPECT_EQ(dropped.status, 0) << dropped.err;
  EXPECT_NE(dropped.out.find("data      1 examples"), std::string::npos) << dropped.out;
}

TEST(Finetune, SaysHowManyExamplesAreLongerThanTheArchivesWindow) {
  const Workplace w;
  Write(w.File("base.pkl"), Contents(std::string(NEEDLE_GOLDEN_DIR) + "/alt/alt.pkl"));
  std::string words;  // its archive keeps 192 tokens in view
  for (int i = 0; i < 60; ++i) words += "lamp ";
  Write(w.File("data.jsonl"), Workplace::Line("short", 1) + Workplace::Line(words, 2));
  const Finished f = w.Needle(Workplace::Finetune());
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.err.find("1 examples are longer than the 192 tokens"), std::string::npos) << f.err;
}

TEST(Finetune, WithoutNetworkItNamesTheTwoWaysOn) {
  const Workplace w;
  const Finished f = w.Needle({"finetune", "data.jsonl"});
  EXPECT_NE(f.status, 0);
  EXPECT_NE(f.err.find("--checkpoint FILE"), std::string::npos) << f.err;
  EXPECT_NE(f.err.find("--checkpoint bundled"), std::string::npos) << f.err;
}

/// Everything from random weights to answers, each command once.
TEST(Journey, FromRandomWeightsToAnswers) {
  const Workplace w;
  ASSERT_EQ(w.Needle({"init", "--preset", "tiny", "--seed", "5", "--out", "base.pkl"}).status, 0);
  const Finished tuned = w.Needle(Workplace::Finetune({"--json"}));
  ASSERT_EQ(tuned.status, 0) << tuned.err;
  EXPECT_EQ(OneDocument(tuned).Find("steps")->as_int64(), 6);

  const Finished built = w.Needle({"build", "base.pkl", "--lora", "a.pkl", "--out", "m.cact"});
  ASSERT_EQ(built.status, 0) << built.err;
  EXPECT_EQ(Labels(built.out),
            (std::vector<std::string>{"tokenizer", "merged", "scheme", "wrote", "next"}));
  EXPECT_NE(built.out.find("  merged    5 weight groups  a.pkl\n"), std::string::npos) << built.out;
  EXPECT_NE(built.out.find("  wrote     m.cact  "), std::string::npos);
  EXPECT_NE(built.out.find(" tensors  W4A8\n"), std::string::npos) << built.out;

  EXPECT_EQ(w.Needle({"verify", "base.pkl", "m.cact", "--lora", "a.pkl"}).status, 0);
  const Finished wrong = w.Needle({"verify", "base.pkl", "m.cact"});
  EXPECT_EQ(wrong.status, 3) << "the base without the adapter is another model";
  EXPECT_NE(wrong.err.find("tensor layer00."), std::string::npos) << wrong.err;

  const Finished scored = w.Needle(
      {"eval", "m.cact", "data.jsonl", "--json", "--report", "r.html", "--against", "m.cact"});
  ASSERT_EQ(scored.status, 0) << scored.err;
  const json::Value report = OneDocument(scored);
  EXPECT_EQ(report.Find("rows")->as_int64(), 13);
  EXPECT_EQ(report.Find("paired")->Find("only_first")->as_int64(), 0);
  EXPECT_NE(Contents(w.File("r.html")).find("<html"), std::string::npos);
  EXPECT_EQ(w.Needle({"eval", "m.cact", "data.jsonl", "--at-least", "1"}).status, 3);

  const Finished answered = w.Needle({"run", "m.cact", "--tools", "tools.json", "--query",
                                      "lamp to 3", "--max-len", "40", "--json"});
  const json::Value answer = OneDocument(answered);
  EXPECT_EQ(answered.status, answer.Find("success")->as_bool() ? 0 : 1) << answered.err;
  EXPECT_FALSE(answer.Find("tokens")->items().empty());
  for (const json::Value& call : answer.Find("function_calls")->items())
    EXPECT_EQ(call.Find("name")->as_string(), "set_lamp");

  const Finished float32 = w.Needle({"run", "--checkpoint", "base.pkl", "--lora", "a.pkl",
                                     "--query", "hello", "--max-len", "5", "--json"});
  EXPECT_LE(OneDocument(float32).Find("tokens")->items().size(), 5u);

  for (const char* file : {"base.pkl", "a.pkl", "m.cact", "tokenizer.model"}) {
    EXPECT_EQ(w.Needle({"inspect", file}).status, 0) << file;
    OneDocument(w.Needle({"inspect", file, "--json"}));
  }
  const Finished checked =
      w.Needle({"data", "check", "data.jsonl", "--json", "--checkpoint", "base.pkl", "--strict"});
  EXPECT_EQ(checked.status, 0) << checked.err;
  EXPECT_EQ(OneDocument(checked).Find("examples")->as_int64(), 13);
}

TEST(DataCheck, NamesAnswersThatTheEngineCouldNeverWrite) {
  const Workplace w;
  const std::string tool =
      R"({"name":"f","parameters":{"type":"object","properties":{"x":{"type":"string"}}}})";
  const auto line = [&](const std::string& tools, const std::string& answers) {
    return R"({"query":"q","tools":[)" + tools + R"(],"answers":)" + answers + "}\n";
  };
  Write(w.File("d.jsonl"),
        line(tool, R"([{"name":"f","arguments":{"x":"a"}}])") +
            line(tool, R"([{"name":"f","arguments":{"y":"a"}}])") +
            line(tool, R"([{"arguments":{"x":"a"},"name":"f"}])") +
            line(tool + "," + tool, R"([{"name":"f","arguments":{"x":"a"}}])") +
            line(R"({"name":"g","parameters":{"type":"no-such"}})", "[]") +
            line(tool, R"("[{\"name\": \"f\", \"arguments\": {\"x\": \"a\"}}]")") +
            line(tool, "[]"));
  const Finished f = w.Needle({"data", "check", "d.jsonl", "--json"});
  EXPECT_EQ(f.status, 0) << f.err;
  const json::Value document = OneDocument(f);
  EXPECT_EQ(document.Find("examples")->as_int64(), 7) << "all of them can be trained on";
  std::vector<int64_t> lines;
  for (const json::Value& note : document.Find("notes")->items())
    lines.push_back(note.Find("line")->as_int64().value_or(0));
  EXPECT_EQ(lines, (std::vector<int64_t>{2, 3, 4, 5, 6})) << f.err;
  EXPECT_NE(f.err.find("d.jsonl:2"), std::string::npos) << f.err;
  EXPECT_NE(f.err.find(R"(after [{"name":"f","arguments":{)"), std::string::npos) << f.err;
  EXPECT_EQ(w.Needle({"data", "check", "d.jsonl", "--strict"}).status, 3);
}

TEST(Journey, TheBundledBaseNeedsNoFile) {
  const Workplace w;
  ASSERT_EQ(w.Needle({"build", "bundled"}).status, 0);
  EXPECT_TRUE(Exists(w.File("bundled.cact")));
  const Finished f = w.Needle({"verify", "bundled", "bundled.cact"});
  EXPECT_EQ(f.status, 0) << f.err;
}

TEST(Build, RefusesAnotherWidthThanTheTrainedOne) {
  const Workplace w;
  ASSERT_EQ(w.Needle(Workplace::Finetune()).status, 0);
  const Finished f =
      w.Needle({"build", "base.pkl", "--lora", "a.pkl", "--bits", "2", "--out", "m.cact"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.err.find("4 bits"), std::string::npos) << f.err;
  EXPECT_FALSE(Exists(w.File("m.cact")));
  EXPECT_EQ(w.Needle({"build", "base.pkl", "--lora", "a.pkl", "--bits", "4"}).status, 0);
  EXPECT_TRUE(Exists(w.File("base.cact"))) << "the default name is the checkpoint's stem";
  EXPECT_EQ(w.Needle({"build", "base.pkl", "--bits", "5"}).status, 2);
  const Finished typo = w.Needle({"build", "base.pkl", "--bits", "default=4,embeding=2"});
  EXPECT_EQ(typo.status, 2);
  EXPECT_NE(typo.err.find("\"embeding\""), std::string::npos) << typo.err;
  const Finished mixed = w.Needle(
      {"build", "base.pkl", "--bits", "default=4,embedding=2,mhc_phi=1.58", "--out", "m.cact"});
  EXPECT_EQ(mixed.status, 0) << mixed.err;
  EXPECT_NE(mixed.out.find("mixed[default=4,embedding=2,mhc_phi=1.58]A8"), std::string::npos);
}

TEST(Build, AMapThatTheAdapterWasTrainedForAdmitsNoBits) {
  const Workplace w;
  const std::string golden = NEEDLE_GOLDEN_DIR;
  Write(w.File("base.pkl"), Contents(golden + "/alt/alt.pkl"));
  Write(w.File("a.pkl"), Contents(golden + "/alt/adapter_auto.pkl"));
  EXPECT_EQ(w.Needle({"build", "base.pkl", "--lora", "a.pkl", "--bits", "4"}).status, 2);
  const Finished f = w.Needle({"build", "base.pkl", "--lora", "a.pkl", "--out", "m.cact"});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.out.find("  scheme    CQ mixed["), std::string::npos) << f.out;
}

TEST(HostileFiles, GiveExitStatus2AndWriteNothing) {
  const Workplace w;
  const std::string base = Contents(w.File("base.pkl"));
  ASSERT_EQ(w.Needle({"build", "base.pkl", "--out", "good.cact"}).status, 0);
  const std::string archive = Contents(w.File("good.cact"));
  // What Python's pickle would run as os.system("touch owned").
  constexpr char kEvil[] =
      "\x80\x02"
      "cos\nsystem\nX\x0b\x00\x00\x00"
      "touch owned\x85R.";
  Write(w.File("evil.pkl"), std::string(kEvil, sizeof(kEvil) - 1));
  Write(w.File("cut.pkl"), base.substr(0, base.size() / 2));
  Write(w.File("cut.safetensors"), std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10));
  Write(w.File("cut.cact"), archive.substr(0, archive.size() - 1));
  Write(w.File("text.pkl"), "hello");
  Write(w.File("empty.pkl"), "");
  const std::vector<Arguments> hostile = {
      {"build", "evil.pkl", "--out", "out.cact"},
      {"build", "cut.pkl", "--out", "out.cact"},
      {"build", "cut.safetensors", "--out", "out.cact"},
      {"build", "text.pkl", "--out", "out.cact"},
      {"build", "empty.pkl", "--out", "out.cact"},
      {"build", "absent.pkl", "--out", "out.cact"},
      {"build", "base.pkl", "--tokenizer", "text.pkl", "--out", "out.cact"},
      {"build", "base.pkl", "--lora", "evil.pkl", "--out", "out.cact"},
      {"finetune", "data.jsonl", "--checkpoint", "evil.pkl", "--out", "out.pkl"},
      {"finetune", "absent.jsonl", "--checkpoint", "base.pkl", "--out", "out.pkl"},
      {"finetune", "data.jsonl", "--checkpoint", "base.pkl", "--out", "out.txt"},
      {"eval", "cut.cact", "data.jsonl", "--report", "out.html"},
      {"eval", "good.cact", "base.pkl", "--report", "out.html"},
      {"run", "cut.cact", "--query", "x"},
      {"run", "good.cact", "--tools", "data.jsonl", "--query", "x"},
      {"run", "--query", "x"},
      {"verify", "base.pkl", "cut.cact"},
      {"inspect", "evil.pkl"},
      {"inspect", "text.pkl"},
      {"data", "check", "absent.jsonl"},
  };
  for (const Arguments& arguments : hostile) {
    std::string shown;
    for (const std::string& a : arguments) shown += a + " ";
    const Finished f = w.Needle(arguments);
    EXPECT_EQ(f.status, 2) << shown << f.err;
    EXPECT_EQ(f.err.rfind("needle: ", 0) == 0 || f.err.find("\nneedle: ") != std::string::npos,
              true)
        << shown << f.err;
    for (const char* out : {"out.cact", "out.pkl", "out.txt", "out.html", "owned"})
      EXPECT_FALSE(Exists(w.File(out))) << shown;
  }
  EXPECT_NE(w.Needle({"inspect", "evil.pkl"}).err.find("system"), std::string::npos);
}

TEST(Json, AFailureIsADocumentToo) {
  const Workplace w;
  const Finished f = w.Needle({"build", "absent.pkl", "--json"});
  EXPECT_EQ(f.status, 2);
  const json::Value document = OneDocument(f);
  EXPECT_EQ(document.Find("exit_code")->as_int64(), 2);
  EXPECT_FALSE(document.Find("error")->as_string().empty());
}

TEST(RunCommand, ReadsQueriesFromStandardInput) {
  const Workplace w;
  ASSERT_EQ(w.Needle({"build", "base.pkl", "--out", "m.cact"}).status, 0);
  Write(w.File(".stdin"), "lamp to 3\n\nlamp to 4\n");
  const Finished cut = w.Needle({"run", "m.cact", "--tools", "tools.json", "--max-len", "2"});
  EXPECT_EQ(cut.status, 1);
  EXPECT_EQ(std::count(cut.out.begin(), cut.out.end(), '\n'), 2) << cut.out;
  EXPECT_NE(cut.err.find("(--max-len)"), std::string::npos) << cut.err;
  EXPECT_NE(cut.err.find("2 of 2 queries got no answer"), std::string::npos) << cut.err;
  // To this query the random weights, in float32, find that no tool fits: an answer.
  Write(w.File(".stdin"), "set the lamp to 7\n\nset the lamp to 7\n");
  const Finished f = w.Needle({"run", "--checkpoint", "base.pkl", "--tools", "tools.json"});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.out.find("[]\n[]\n"), std::string::npos) << f.out;
}

TEST(RunCommand, AnAnswerThatIsCutIsPrintedOnceAndExitsWith1) {
  const Workplace w;
  const Arguments run = {"run",     "--checkpoint", "base.pkl",  "--tools", "tools.json",
                         "--query", "lamp to 3",    "--max-len", "3"};
  const Finished f = w.Needle(With(run, {"--json"}));
  EXPECT_EQ(f.status, 1);
  const json::Value document = OneDocument(f);
  EXPECT_FALSE(document.Find("success")->as_bool());
  EXPECT_EQ(document.Find("error_code")->as_string(), "truncated");
  EXPECT_EQ(document.Find("tokens")->items().size(), 3u);
  const std::string why = "the answer did not end within 3 tokens; give it more (--max-len)";
  EXPECT_EQ(document.Find("error")->as_string(), why);
  const Finished text = w.Needle(run);
  EXPECT_EQ(text.status, 1);
  EXPECT_NE(text.err.find("needle: " + why), std::string::npos) << text.err;
}

TEST(RunCommand, AWeightThatIsNoNumberIsAnErrorAndNoDocumentOfNumbers) {
  const Workplace w;
  Checkpoint base = *LoadCheckpoint(w.File("base.pkl"));
  std::vector<std::string> tables;
  for (auto& [path, tensor] : base.params) {
    if (tensor.shape.empty() || tensor.shape[0] != base.config.vocab_size) continue;
    std::vector<float> values = tensor.ToFloats();
    values.back() = std::numeric_limits<float>::quiet_NaN();  // of a token that no text has
    tensor = Tensor::FromFloats(tensor.shape, values).As(tensor.dtype);
    tables.push_back(path);
  }
  ASSERT_EQ(tables.size(), 1u) << "the embedding, which is the head's matrix too";
  ASSERT_TRUE(SaveCheckpoint(w.File("bad.pkl"), base).ok());
  const Finished f = w.Needle({"run", "--checkpoint", "bad.pkl", "--query", "hello", "--json"});
  EXPECT_EQ(f.status, 1);
  const json::Value document = OneDocument(f);
  EXPECT_EQ(document.Find("exit_code")->as_int64(), 1);
  EXPECT_EQ(document.Find("probabilities"), nullptr);
  EXPECT_NE(document.Find("error")->as_string().find("not all numbers"), std::string::npos);
}

TEST(EvalCommand, ScoresACheckpointInPlaceOfAnArchive) {
  const Workplace w;
  ASSERT_EQ(w.Needle(Workplace::Finetune()).status, 0);
  ASSERT_EQ(w.Needle({"build", "base.pkl", "--lora", "a.pkl", "--out", "m.cact"}).status, 0);
  const Finished f = w.Needle({"eval", "data.jsonl", "--checkpoint", "base.pkl", "--lora", "a.pkl",
                               "--against", "m.cact", "--json"});
  ASSERT_EQ(f.status, 0) << f.err;
  const json::Value report = OneDocument(f);
  EXPECT_EQ(report.Find("model")->as_string(), "base.pkl + a.pkl");
  EXPECT_EQ(report.Find("rows")->as_int64(), 13);
  EXPECT_EQ(report.Find("errors")->as_int64(), 0);
  EXPECT_EQ(report.Find("against")->Find("model")->as_string(), "m.cact");
}

TEST(EvalCommand, AsksForOneModelAndOneDataFile) {
  const Workplace w;
  for (const Arguments& more :
       {Arguments{}, Arguments{"m.cact"}, Arguments{"--checkpoint", "base.pkl"},
        Arguments{"m.cact", "data.jsonl", "--checkpoint", "base.pkl"},
        Arguments{"m.cact", "data.jsonl", "--lora", "a.pkl"}}) {
    const Finished f = w.Needle(With({"eval"}, more));
    EXPECT_EQ(f.status, 2) << f.out;
    EXPECT_FALSE(f.err.empty());
  }
}

TEST(EvalCommand, RefusesAShareThatIsNoNumber) {
  const Workplace w;
  for (const char* share : {"nan", "-nan", "NaN", "inf", "1.5", "-0.1", "half"}) {
    const std::string option = std::string("--at-least=") + share;
    const Finished f = w.Needle({"eval", "m.cact", "data.jsonl", option});
    EXPECT_EQ(f.status, 2) << share;
    EXPECT_NE(f.err.find("--at-least"), std::string::npos) << f.err;
  }
}

}  // namespace
}  // namespace needle::test
