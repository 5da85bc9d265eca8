// needle devices, doctor and --device as a person meets them. Devices are played by the fake
// plugin, which the environment names "cuda"; what needs programs to run uses the CPU plugin when
// it is here.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "apps/program.h"
#include "format/adapter.h"
#include "json/json.h"
#include "support/fake_pjrt.h"
#include "support/pjrt.h"

namespace needle::test {
namespace {

class Devices : public testing::Test {
 protected:
  /// The environment of a machine whose only plugin is the fake, as "cuda".
  Variables Cuda(const std::string& mode, const Variables& more = {}) const {
    const std::string path = PutFakePlugin(w_.File("fake/plugin.so"), mode);
    Variables v = Plain({{"PJRT_NAMES_AND_LIBRARY_PATHS", "cuda:" + path}});
    v.insert(v.end(), more.begin(), more.end());
    return v;
  }
  /// A plugin that hands all to the real CPU plugin but for what `mode` says; named "mine", so that
  /// it gets no options of GPU plugins, but one that asks for a single device.
  Variables Mine(const std::string& mode, const std::string& name = "mine") const {
    const std::string path = PutFakePlugin(w_.File("fake/plugin.so"),
                                           "real=" + CpuPlugin() + "\nplatform=cuda\n" + mode);
    Write(w_.File("mine.json"),
          R"({"library_path":")" + path + R"(","create_options":{"cpu_device_count":1}})");
    return Plain({{"PJRT_NAMES_AND_LIBRARY_PATHS", name + ":" + w_.File("mine.json")}});
  }
  static Variables Plain(const Variables& more = {}) {
    Variables v = {{"NEEDLE_DEVICE", ""}, {"TF_CPP_MIN_LOG_LEVEL", "3"}};
    v.insert(v.end(), more.begin(), more.end());
    return v;
  }
  static Variables XlaCpu(const Variables& more = {}) {
    Variables v = Plain({{"PYTHONPATH", PjrtDir()}});
    v.insert(v.end(), more.begin(), more.end());
    return v;
  }
  static json::Value Document(const Finished& f) {
    const Result<json::Value> value = json::Parse(f.out);
    EXPECT_TRUE(value.ok()) << f.out << f.err;
    return value.ok() ? *value : json::Value();
  }
  /// The row of a device in the document.
  static json::Value Row(const json::Value& document, const std::string& name) {
    for (const json::Value& row : document.Find("backends")->items())
      if (row.Find("name")->as_string() == name) return row;
    ADD_FAILURE() << "no row " << name;
    return json::Value();
  }
  Adapter AdapterAt(const std::string& name) const {
    const Result<Adapter> adapter = LoadAdapter(w_.File(name));
    if (!adapter.ok()) throw std::runtime_error(adapter.error().message());
    return *adapter;
  }
  static double LargestDifference(const Tensor& a, const Tensor& b) {
    EXPECT_EQ(a.shape, b.shape);
    double largest = 0;
    for (size_t i = 0; i < b.size(); ++i)
      largest = std::max(largest, std::abs(double{a.At(i)} - b.At(i)));
    return largest;
  }
  /// Both sum in float32 in their own order; some ten updates move the factors by about 1e-2.
  static void ExpectClose(const Adapter& got, const Adapter& wanted, double allowed) {
    ASSERT_EQ(got.lora.size(), wanted.lora.size());
    for (const auto& [path, pair] : wanted.lora) {
      EXPECT_LT(LargestDifference(got.lora.at(path).a, pair.a), allowed) << path;
      EXPECT_LT(LargestDifference(got.lora.at(path).b, pair.b), allowed) << path;
    }
  }
  Workplace w_;
};

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Devices, ShowsEveryKindAndWhatARunWouldTake) {
  const Finished f = w_.Needle({"devices", "--device", "cpu"}, Plain());
  EXPECT_EQ(f.status, 0) << f.err;
  for (const char* name : {"cpu", "cuda", "rocm", "oneapi", "metal", "tpu", "xla-cpu"})
    EXPECT_TRUE(Has(f.out, std::string("\n  ") + name + " ") || Has(f.out.substr(0, 8), name))
        << name << "\n"
        << f.out;
  EXPECT_TRUE(Has(f.out, "  default   cpu: asked for by --device=cpu\n")) << f.out;
  EXPECT_TRUE(Has(f.out, "  finetune  would run on the processor, not on a GPU\n")) << f.out;
}

TEST_F(Devices, TakesAGpuThatWorks) {
  const Variables v = Cuda("kind=Fake GPU\nmemory=150323855360");
  const Finished f = w_.Needle({"devices"}, v);
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(Has(f.out, "PJRT 0.115: Fake GPU 140 GB")) << f.out;
  EXPECT_TRUE(Has(f.out, "  default   cuda: the best device that works\n")) << f.out;
  EXPECT_TRUE(Has(f.out, "would run on a GPU (cuda)")) << f.out;
  const json::Value document = Document(w_.Needle({"devices", "--json"}, v));
  EXPECT_TRUE(document.Find("trains_on_gpu")->as_bool());
  EXPECT_EQ(document.Find("default")->as_string(), "cuda");
  const json::Value row = Row(document, "cuda");
  EXPECT_EQ(row.Find("status")->as_string(), "ready");
  EXPECT_EQ(row.Find("backend")->as_string(), "gpu");
  const json::Value& plugin = row.Find("plugins")->items().at(0);
  EXPECT_EQ(plugin.Find("api")->as_string(), "0.115");
  EXPECT_EQ(plugin.Find("devices")->items().at(0).Find("memory_bytes")->as_int64(), 150323855360);
}

TEST_F(Devices, ShowsAPluginThatCrashesAndGoesOnWithTheProcessor) {
  const Finished f = w_.Needle({"devices"}, Cuda("mode=crash-client"));
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(Has(f.out, "  cuda      fails")) << f.out;
  EXPECT_TRUE(Has(f.out, kAborted)) << f.out;
  EXPECT_TRUE(Has(f.out, "  default   cpu: cuda does not work\n")) << f.out;
}

TEST_F(Devices, StopsAPluginThatHangs) {
  const Finished f =
      w_.Needle({"devices"}, Cuda("mode=hang-load", {{"NEEDLE_PROBE_SECONDS", "1"}}));
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(Has(f.out, "did not answer and was stopped")) << f.out;
}

TEST_F(Devices, ANamedPlatformThatFailsShowsTheTableNamesTheFailureAndExitsWith1) {
  const Finished f = w_.Needle({"devices"}, Cuda("mode=client-error", {{"JAX_PLATFORMS", "cuda"}}));
  EXPECT_EQ(f.status, 1);
  EXPECT_TRUE(Has(f.out, "  tpu ")) << f.out;
  EXPECT_TRUE(Has(f.err, "JAX_PLATFORMS=cuda: ")) << f.err;
  EXPECT_TRUE(Has(f.err, "CUDA_ERROR_NO_DEVICE")) << f.err;
  const json::Value document = Document(
      w_.Needle({"devices", "--json"}, Cuda("mode=client-error", {{"JAX_PLATFORMS", "cuda"}})));
  EXPECT_TRUE(Has(document.Find("error")->as_string(), "CUDA_ERROR_NO_DEVICE"));
}

TEST_F(Devices, FinetuneStopsOnANamedDeviceThatFailsAndFallsBackOtherwise) {
  const Variables v = Cuda("mode=crash-load");
  const Finished named = w_.Needle(Workplace::Finetune({"--device", "cuda"}), v);
  EXPECT_EQ(named.status, 1);
  EXPECT_TRUE(Has(named.err, "--device=cuda: ")) << named.err;
  EXPECT_TRUE(Has(named.err, kAborted)) << named.err;
  EXPECT_FALSE(Exists(w_.File("a.pkl")));
  const Finished best = w_.Needle(Workplace::Finetune(), v);
  EXPECT_EQ(best.status, 0) << best.err;
  EXPECT_EQ(best.out.rfind("  backend   cpu  float32\n", 0), 0u) << best.out;
  EXPECT_TRUE(Has(best.err, kAborted)) << best.err;
  EXPECT_TRUE(Exists(w_.File("a.pkl")));
}

TEST_F(Devices, FinetuneHearsOfAMissingPluginByName) {
  EXPECT_EQ(w_.Needle(Workplace::Finetune({"--device", "tpu"}), Plain()).status, 1);
  const Finished f = w_.Needle(Workplace::Finetune(), Plain({{"JAX_BACKEND_TARGET", "grpc://x"}}));
  EXPECT_EQ(f.status, 2);
  EXPECT_TRUE(Has(f.err, "JAX_BACKEND_TARGET")) << f.err;
}

TEST_F(Devices, APluginGetsTheOptionsOfItsJsonFileAndNoOthers) {
  NEEDLE_NEED_PLUGIN(CpuPlugin());
  const Finished f = w_.Needle({"devices"}, Mine("kind=Own", "cuda"));  // it refuses those of GPUs
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(Has(f.out, "  default   cuda: the best device that works\n")) << f.out << f.err;
}

TEST_F(Devices, AnUnknownXlaFlagIsCaughtBeforeThePluginEndsTheProcess) {
  NEEDLE_NEED_PLUGIN(CpuPlugin());
  const Finished f = w_.Needle(Workplace::Finetune({"--device", "xla-cpu"}),
                               XlaCpu({{"XLA_FLAGS", "--xla_no_such_flag=1"}}));
  EXPECT_EQ(f.status, 2) << f.err;
  EXPECT_TRUE(Has(f.err, "Unknown flag in XLA_FLAGS: --xla_no_such_flag=1")) << f.err;
}

TEST_F(Devices, AnXlaFlagWithoutAMeaningIsNamedTheSame) {
  NEEDLE_NEED_PLUGIN(CpuPlugin());
  for (const char* flags : {"--xla_cpu_enable_fast_math=perhaps", "no-such-file-of-flags",
                            "--xla_force_host_platform_device_count=0"}) {
    const Finished f =
        w_.Needle({"run", "--checkpoint", "base.pkl", "--query", "q", "--device", "xla-cpu"},
                  XlaCpu({{"XLA_FLAGS", flags}}));
    EXPECT_EQ(f.status, 2) << f.err;
    EXPECT_TRUE(Has(f.err, "XLA_FLAGS: ")) << f.err;
    EXPECT_TRUE(Has(f.err, flags)) << f.err;
    EXPECT_LT(f.err.size(), 600u) << f.err;
  }
}

TEST_F(Devices, FinetuneTrainsThroughAPluginAndSaysSo) {
  NEEDLE_NEED_PLUGIN(CpuPlugin());
  const Finished f =
      w_.Needle(Workplace::Finetune({"--device", "xla-cpu", "--qat-bits", "none"}), XlaCpu());
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(f.out.rfind("  backend   cpu  float32  cpu (lammps-jax-pjrt-cpu 0.11.2)\n", 0), 0u)
      << f.out;
  EXPECT_TRUE(Exists(w_.File("cache/compiled")));
  const Adapter through_xla = AdapterAt("a.pkl");
  // The native engine, asked for in JAX's way, trains the same adapter.
  const Finished native =
      w_.Needle(Workplace::Finetune({"--qat-bits", "none"}), XlaCpu({{"JAX_PLATFORMS", "cpu"}}));
  ASSERT_EQ(native.status, 0) << native.err;
  ExpectClose(through_xla, AdapterAt("a.pkl"), 1e-4);
}

TEST_F(Devices, ATrainingThatStopsOnOneDeviceGoesOnOnTheOther) {
  NEEDLE_NEED_PLUGIN(CpuPlugin());
  NEEDLE_NEED_INTERRUPT();
  Arguments arguments = Workplace::Finetune({"--qat-bits", "none", "--log", "steps.jsonl"});
  *(std::find(arguments.begin(), arguments.end(), "--epochs") + 1) = "6";
  const auto on = [&](const char* device, const Arguments& more = {}) {
    return With(With(arguments, {"--device", device}), more);
  };
  ASSERT_EQ(w_.Needle(on("cpu"), XlaCpu()).status, 0);
  const Adapter whole = AdapterAt("a.pkl");
  const std::pair<const char*, const char*> ways[] = {{"cpu", "xla-cpu"}, {"xla-cpu", "cpu"}};
  for (const auto& [first, second] : ways) {
    ASSERT_TRUE(std::filesystem::remove(w_.File("a.pkl")));
    const Finished stopped = w_.StopAfter(on(first), 2, XlaCpu());
    if (stopped.status == 0) GTEST_SKIP() << "the run ended before the signal arrived";
    ASSERT_EQ(stopped.status, 1) << stopped.err;
    const Finished resumed = w_.Needle(on(second, {"--resume"}), XlaCpu());
    ASSERT_EQ(resumed.status, 0) << first << ": " << resumed.err;
    ExpectClose(AdapterAt("a.pkl"), whole, 3e-4);
  }
}

TEST_F(Devices, RunAndEvalOfACheckpointDecodeThroughAPluginAndWriteTheSameTokens) {
  NEEDLE_NEED_PLUGIN(CpuPlugin());
  ASSERT_EQ(w_.Needle(Workplace::Finetune({"--qat-bits", "none"})).status, 0);
  Write(w_.File("few.jsonl"),
        Workplace::Line("set the lamp to 7", 7) + Workplace::Line("lamp to 900", 900));
  const auto on = [&](const std::string& device, Arguments arguments) {
    for (const char* more : {"--checkpoint", "base.pkl", "--lora", "a.pkl", "--json", "--device"})
      arguments.push_back(more);
    arguments.push_back(device);
    return w_.Needle(arguments, XlaCpu());
  };
  for (const Arguments& way :
       {Arguments{"--tools", "tools.json"}, Arguments{"--tools", "tools.json", "--no-grammar"}}) {
    Arguments run = {"run", "--query", "set the lamp to 7", "--max-len", "40"};
    run.insert(run.end(), way.begin(), way.end());
    const Finished native = on("cpu", run), plugin = on("xla-cpu", run);
    EXPECT_EQ(native.status, plugin.status) << plugin.err;
    EXPECT_FALSE(Has(native.err, "lammps-jax-pjrt-cpu")) << native.err;
    EXPECT_TRUE(Has(plugin.err, "  backend   cpu  float32  cpu (lammps-jax-pjrt-cpu 0.11.2)\n"))
        << plugin.err;
    const json::Value want = Document(native), got = Document(plugin);
    ASSERT_NE(want.Find("tokens"), nullptr) << native.err;
    ASSERT_NE(got.Find("tokens"), nullptr) << plugin.err;
    EXPECT_GE(want.Find("tokens")->items().size(), 5u);
    EXPECT_EQ(json::Dump(*got.Find("tokens")), json::Dump(*want.Find("tokens")));
  }
  const Finished native = on("cpu", {"eval", "few.jsonl"}),
                 plugin = on("xla-cpu", {"eval", "few.jsonl"});
  ASSERT_EQ(native.status, 0) << native.err;
  ASSERT_EQ(plugin.status, 0) << plugin.err;
  const json::Value want = Document(native), got = Document(plugin);
  EXPECT_EQ(want.Find("model")->as_string(), "base.pkl + a.pkl");
  for (const char* field : {"model", "rows", "exact", "truncated", "errors", "tokens", "failures"})
    EXPECT_EQ(json::Dump(*got.Find(field)), json::Dump(*want.Find(field))) << field;
  EXPECT_EQ(got.Find("errors")->as_int64(), 0);
}

TEST_F(Devices, RunAndEvalOfACheckpointStopOnANamedDeviceThatFails) {
  const Variables v = Cuda("mode=client-error");
  for (const Arguments& command :
       {Arguments{"run", "--query", "q"}, Arguments{"eval", "data.jsonl"}}) {
    Arguments arguments = command;
    for (const char* more : {"--checkpoint", "base.pkl", "--device", "cuda"})
      arguments.push_back(more);
    const Finished f = w_.Needle(arguments, v);
    EXPECT_EQ(f.status, 1);
    EXPECT_TRUE(Has(f.err, "CUDA_ERROR_NO_DEVICE")) << f.err;
  }
}

TEST_F(Devices, AnArchiveRunsOnTheProcessorAndRefusesAnotherDevice) {
  ASSERT_EQ(w_.Needle({"build", "base.pkl", "--out", "m.cact"}).status, 0);
  for (const Arguments& command :
       {Arguments{"run", "m.cact", "--query", "q"}, Arguments{"eval", "m.cact", "data.jsonl"}}) {
    Arguments arguments = command;
    arguments.insert(arguments.end(), {"--device", "cuda"});
    const Finished f = w_.Needle(arguments, Plain());
    EXPECT_EQ(f.status, 2);
    EXPECT_TRUE(Has(f.err, "--device cuda: an archive runs on the cpu")) << f.err;
  }
  const Finished f = w_.Needle({"eval", "m.cact", "data.jsonl", "--device", "cpu"}, Plain());
  EXPECT_EQ(f.status, 0) << f.err;
}

TEST_F(Devices, DoctorPassesEachDeviceThatComputesRightly) {
  NEEDLE_NEED_PLUGIN(CpuPlugin());
  const Finished f = w_.Needle({"doctor", "--device", "xla-cpu", "--json"},
                               XlaCpu({{"XLA_FLAGS", "--xla_force_host_platform_device_count=2"}}));
  EXPECT_EQ(f.status, 0) << f.out << f.err;
  EXPECT_FALSE(Has(f.err, "WRONG")) << f.err;
  const std::string last = "trained values after three steps";
  EXPECT_NE(f.err.find(last), f.err.rfind(last)) << f.err;
  const json::Value document = Document(f);
  const std::vector<json::Value>& devices = document.Find("devices")->items();
  ASSERT_EQ(devices.size(), 2u);
  for (size_t i = 0; i < devices.size(); ++i) {
    EXPECT_EQ(devices[i].Find("name")->as_string(), "xla-cpu:" + std::to_string(i));
    EXPECT_GT(devices[i].Find("checks")->items().size(), 30u);
  }
}

TEST_F(Devices, DoctorTellsADeviceThatCannotBeOpenedFromOneThatIsWrong) {
  const Finished f = w_.Needle({"doctor"}, Cuda("mode=client-error"));
  EXPECT_EQ(f.status, 3) << f.out << f.err;
  EXPECT_TRUE(Has(f.out, "CUDA_ERROR_NO_DEVICE")) << f.out;
  EXPECT_TRUE(Has(f.err, "cuda: the device cannot be used")) << f.err;
  EXPECT_FALSE(Has(f.err, "does not compute")) << f.err;
}

TEST_F(Devices, DoctorNamesTheOperationThatIsWrongAndExitsWith3) {
  NEEDLE_NEED_PLUGIN(CpuPlugin());
  const Variables v = Mine("swap=logistic:tanh");
  const Finished f = w_.Needle({"doctor"}, v);
  EXPECT_EQ(f.status, 3) << f.out << f.err;
  EXPECT_TRUE(Has(f.out, "  WRONG     operation logistic: error")) << f.out;
  EXPECT_TRUE(Has(f.err, "mine: the device does not compute")) << f.err;
  const json::Value document = Document(w_.Needle({"doctor", "--json"}, v));
  EXPECT_FALSE(document.Find("success")->as_bool());
}

TEST_F(Devices, DoctorSaysWhenADeviceRunsOutOfMemory) {
  NEEDLE_NEED_PLUGIN(CpuPlugin());
  const Finished f = w_.Needle({"doctor"}, Mine("oom-after=4"));
  EXPECT_EQ(f.status, 3) << f.out << f.err;
  EXPECT_TRUE(Has(f.out, "too little free memory")) << f.out;
}

TEST_F(Devices, DoctorHasNothingToExamineOnABareMachine) {
  const Finished f = w_.Needle({"doctor", "--device", "cpu"}, Plain());
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_TRUE(Has(f.out, "nothing to examine")) << f.out;
}

}  // namespace
}  // namespace needle::test
