// Each failure of a plugin gives its sentence, and the next device or an error, as the flags ask.
#include <gtest/gtest.h>

#include <chrono>

#include "backend/pjrt/machine.h"
#include "backend/pjrt/open_device.h"
#include "support/fake_pjrt.h"
#include "support/scratch.h"

namespace needle::pjrt {
namespace {

using test::kAborted;
using test::LoadsOf;
using test::Machine;
using test::PutFakePlugin;

/// A machine whose files are those of this one, with hardware and packages of the test.
class HereAnd final : public FileView {
 public:
  explicit HereAnd(std::vector<std::string> more) : more_(std::move(more)) {}
  bool Exists(const std::string& path) const override {
    for (const std::string& more : more_)
      if (more == path) return true;
    return std::filesystem::exists(path);
  }
  std::vector<std::string> List(const std::string& folder) const override {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
      names.push_back(entry.path().filename().string());
    return names;
  }
  std::optional<std::string> Read(const std::string&) const override { return std::nullopt; }

 private:
  std::vector<std::string> more_;
};

class Fake : public testing::Test {
 protected:
  /// Puts the fake where the CUDA plugin would be.
  std::string Cuda(const std::string& mode) {
    return PutFakePlugin(site_ + "/jax_plugins/xla_cuda13/xla_cuda_plugin.so", mode);
  }
  std::string Rocm(const std::string& mode) {
    return PutFakePlugin(site_ + "/jax_plugins/xla_rocm7/xla_rocm_plugin.so", mode);
  }
  Platform Here(const std::map<std::string, std::string>& env = {}) const {
    Platform p;
    p.env = env;
    p.env["VIRTUAL_ENV"] = folder_.File("venv");
    p.files = std::make_shared<HereAnd>(std::vector<std::string>{"/dev/nvidia0"});
    return p;
  }
  OpenOptions Options(double seconds = 30) const {
    OpenOptions options;
    options.prober = ProbeInChild(NEEDLE_PROBE_CHILD, seconds);
    options.cache_folder = folder_.File("cache");
    return options;
  }
  /// "cuda", or "cpu: <notes>", or "error: <message>".
  std::string Picked(const Platform& p, const std::string& device, const OpenOptions& options) {
    const Result<pjrt::Picked> picked = PickDevice(p, device, options);
    if (!picked.ok()) return "error: " + picked.error().message();
    std::string out = picked->attempt.candidate.name;
    for (const std::string& note : picked->notes) out += ": " + note;
    return out;
  }

  test::ScratchFolder folder_;
  std::string site_ = folder_.File("venv/lib/python3.11/site-packages");
};

bool Has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Fake, IsTakenWhenItIsHealthy) {
  Cuda("kind=Fake GPU 9000\nmemory=1073741824\ndevices=1");
  const Result<pjrt::Picked> picked = PickDevice(Here(), "auto", Options());
  ASSERT_TRUE(picked.ok()) << picked.error().message();
  EXPECT_EQ(picked->attempt.candidate.name, "cuda");
  EXPECT_EQ(picked->answer.platform, "cuda");
  EXPECT_EQ(picked->answer.api_minor, 115);
  ASSERT_EQ(picked->answer.devices.size(), 1u);
  EXPECT_EQ(picked->answer.devices[0].kind, "Fake GPU 9000");
  EXPECT_EQ(picked->answer.devices[0].memory_bytes, 1073741824);
  EXPECT_EQ(picked->notes, std::vector<std::string>{});
}

TEST_F(Fake, ADeviceThatIsTakenAfterItsProbeGivesWayToTheNext) {
  const std::string first = Cuda("mode=client-error");
  const std::string next = site_ + "/jax_plugins/xla_cuda12/xla_cuda_plugin.so";
  OpenOptions options;
  options.prober = [](const Attempt&) {  // all went well when the plugins were tried
    ProbeAnswer answer;
    answer.api_minor = 115;
    answer.platform = "cuda";
    answer.devices.emplace_back();
    return answer;
  };
  const std::string why = "cuda: " + first + ": the device cannot be opened: CUDA_ERROR_NO_DEVICE";
  const Result<OpenedDevice> alone = OpenDevice(Here(), "auto", options);
  ASSERT_TRUE(alone.ok()) << alone.error().message();
  EXPECT_EQ(alone->kind, Kind::kCpu);
  ASSERT_EQ(alone->notes.size(), 1u);
  EXPECT_TRUE(Has(alone->notes[0], "an NVIDIA GPU is here but is not used: " + why));
  const Result<OpenedDevice> named = OpenDevice(Here(), "cuda", options);
  ASSERT_FALSE(named.ok());
  EXPECT_TRUE(Has(named.error().message(), "--device=cuda: " + first)) << named.error().message();
  PutFakePlugin(next, "kind=Second GPU");
  for (const char* device : {"auto", "cuda"}) {
    const Result<OpenedDevice> opened = OpenDevice(Here(), device, options);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    EXPECT_EQ(opened->candidate.library, next);
    ASSERT_TRUE(opened->client);
    EXPECT_EQ(opened->client->Devices()[0].kind, "Second GPU");
    ASSERT_EQ(opened->notes.size(), 1u);
    EXPECT_TRUE(Has(opened->notes[0], why)) << opened->notes[0];
  }
}

TEST_F(Fake, TheProcessorByNameIsTakenAndTheGpuBesideItTold) {
  Cuda("kind=GPU");
  const std::string here = "an NVIDIA GPU is here but is not used: ";
  const auto notes = [&](const Platform& platform, const std::string& device) {
    const Result<pjrt::Picked> picked = PickDevice(platform, device, Options());
    EXPECT_TRUE(picked.ok() && picked->kind == Kind::kCpu);
    return picked.ok() ? picked->notes : std::vector<std::string>{};
  };
  using Notes = std::vector<std::string>;
  EXPECT_EQ(notes(Here(), "cpu"), Notes{here + "--device=cpu was asked for"});
  EXPECT_EQ(notes(Here({{"JAX_PLATFORMS", "cpu,cuda"}}), "auto"),
            Notes{here + "JAX_PLATFORMS=cpu,cuda was asked for"});
  EXPECT_EQ(notes(Here({{"NEEDLE_DEVICE", "cpu"}, {"CUDA_VISIBLE_DEVICES", ""}}), "auto"), Notes{});
}

struct Failure {
  const char* mode;
  const char* sentence;  // a part of it
};
class FakeFailure : public Fake, public testing::WithParamInterface<Failure> {};

TEST_P(FakeFailure, FallsBackWithItsSentenceAndIsAnErrorWhenNamed) {
  const std::string path = Cuda(std::string("mode=") + GetParam().mode);
  const std::string automatic = Picked(Here(), "auto", Options());
  EXPECT_EQ(automatic.rfind("cpu: an NVIDIA GPU is here but is not used: cuda: " + path, 0), 0u)
      << automatic;
  EXPECT_TRUE(Has(automatic, GetParam().sentence)) << automatic;
  const std::string named = Picked(Here(), "cuda", Options());
  EXPECT_EQ(named.rfind("error: --device=cuda: " + path, 0), 0u) << named;
  EXPECT_TRUE(Has(named, GetParam().sentence)) << named;
  const std::string listed = Picked(Here({{"JAX_PLATFORMS", "cuda,cpu"}}), "auto", Options());
  EXPECT_EQ(listed.rfind("error: JAX_PLATFORMS=cuda: " + path, 0), 0u) << listed;
  const std::string second = Picked(Here({{"JAX_PLATFORMS", "cpu,cuda"}}), "auto", Options());
  EXPECT_EQ(second.rfind("error: JAX_PLATFORMS=cuda: " + path, 0), 0u) << second;
}

INSTANTIATE_TEST_SUITE_P(
    Pjrt, FakeFailure,
    testing::Values(
        Failure{"old", "the plugin speaks PJRT 0.7, which is too old; 0.40 or later is needed"},
        Failure{"future", "the plugin speaks PJRT 1.115"},
        Failure{"short-table", "its table of calls ends after"},
        Failure{"bad-initialize", "the plugin could not be started: the driver is too old"},
        Failure{"client-error", "the device cannot be opened: CUDA_ERROR_NO_DEVICE"},
        Failure{"no-device", "the plugin finds no device"},
        Failure{"oom-compile",
                "compiling a program: Out of memory allocating 7 TB (the device has "
                "too little free memory"},
        Failure{"oom-run",
                "running a program: Out of memory allocating 7 TB (the device has too "
                "little free memory"},
        Failure{"crash-load", kAborted}, Failure{"crash-client", kAborted},
        Failure{"wrong-product", "device 0 computes wrongly: the product of"}),
    [](const testing::TestParamInfo<Failure>& row) {
      std::string name;
      bool upper = true;
      for (const char* c = row.param.mode; *c != '\0'; ++c) {
        if (*c != '-') name += upper ? static_cast<char>(*c - 'a' + 'A') : *c;
        upper = *c == '-';
      }
      return name;
    });

TEST_F(Fake, WithoutItsSymbolIsNoPlugin) {
  const std::string path =
      PutFakePlugin(site_ + "/jax_plugins/xla_cuda13/xla_cuda_plugin.so", "", NEEDLE_NO_SYMBOL);
  EXPECT_TRUE(Has(Picked(Here(), "auto", Options()), "the library has no GetPjrtApi"));
  EXPECT_TRUE(Has(Picked(Here(), "cuda", Options()), path));
}

TEST_F(Fake, ThatIsNoLibraryGivesTheLoadersReason) {
  const std::string path = Cuda("");
  std::ofstream(path) << "not a library";
  EXPECT_TRUE(Has(Picked(Here(), "cuda", Options()), "the library cannot be opened: "));
}

TEST_F(Fake, ThatIsMissingWhereTheEnvironmentNamesItIsSaidToBeMissing) {
  const Platform p = Here({{"PJRT_NAMES_AND_LIBRARY_PATHS", "mine:/nowhere/mine.so"}});
  EXPECT_TRUE(Has(Picked(p, "mine", Options()), "/nowhere/mine.so: there is no such library"));
}

TEST_F(Fake, ThatHangsIsStoppedAndPassedOver) {
  Cuda("mode=hang-load");
  const auto start = std::chrono::steady_clock::now();
  const std::string picked = Picked(Here(), "auto", Options(/*seconds=*/1));
  EXPECT_TRUE(Has(picked, "did not answer and was stopped")) << picked;
  EXPECT_EQ(picked.rfind("cpu: ", 0), 0u);
  // Hanging for good is what would fail here; 30 s is the bound that users are promised.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST_F(Fake, ThatHungIsTriedAgainWhenItIsGivenAnotherTime) {
  const std::string path = Cuda("mode=hang-load");
  const auto picked = [&](const char* seconds) {
    const Platform p = Here({{"NEEDLE_PROBE_SECONDS", seconds}});
    return Picked(p, "auto", Options(*ProbeSeconds(p)));
  };
  const std::string first = picked("0.5");
  EXPECT_TRUE(Has(first, "was stopped after 0.5 s (NEEDLE_PROBE_SECONDS)")) << first;
  EXPECT_EQ(picked("0.5"), first);
  EXPECT_EQ(LoadsOf(path), 1);
  EXPECT_TRUE(Has(picked("0.75"), "was stopped after 0.75 s"));
  EXPECT_EQ(LoadsOf(path), 2);
}

TEST(ProbeSeconds, AreANumberAboveZeroOrAnError) {
  EXPECT_EQ(*ProbeSeconds(Machine(Os::kLinux)), 30);
  EXPECT_EQ(*ProbeSeconds(Machine(Os::kLinux).Env("NEEDLE_PROBE_SECONDS", "120")), 120);
  for (const char* bad : {"x", "0", "-1", "nan", "inf", "1e300", "30s"}) {
    const Result<double> seconds =
        ProbeSeconds(Machine(Os::kLinux).Env("NEEDLE_PROBE_SECONDS", bad));
    ASSERT_FALSE(seconds.ok()) << bad;
    EXPECT_EQ(seconds.error().code(), Code::kInvalidArgument) << bad;
  }
}

TEST_F(Fake, ThatIsTheFirstOfSeveralGivesItsReasonWhenAllFail) {
  const std::string path = Cuda("mode=client-error");
  PutFakePlugin(site_ + "/jax_plugins/xla_cuda12/xla_cuda_plugin.so", "mode=no-device");
  EXPECT_EQ(Picked(Here(), "cuda", Options()),
            "error: --device=cuda: " + path +
                ": the device cannot be opened: CUDA_ERROR_NO_DEVICE (and 1 more fail; \"needle "
                "devices\" says why)");
}

TEST_F(Fake, LetsTheNextGpuComeToItsTurn) {
  Cuda("mode=crash-client");
  PutFakePlugin(site_ + "/jax_plugins/xla_cuda12/xla_cuda_plugin.so", "kind=Second");
  const Result<pjrt::Picked> picked = PickDevice(Here(), "auto", Options());
  ASSERT_TRUE(picked.ok());
  EXPECT_EQ(picked->attempt.candidate.package, "jax-cuda12-pjrt");
  EXPECT_EQ(picked->answer.devices[0].kind, "Second");
  ASSERT_EQ(picked->notes.size(), 1u);
  EXPECT_TRUE(Has(picked->notes[0], kAborted));
}

TEST_F(Fake, IsTriedOnceUntilItOrItsSurroundingsChange) {
  const std::string path = Cuda("");
  for (int run = 0; run < 3; ++run) EXPECT_EQ(Picked(Here(), "auto", Options()), "cuda");
  EXPECT_EQ(LoadsOf(path), 1);
  EXPECT_EQ(Picked(Here({{"XLA_FLAGS", "--xla_a=1"}}), "auto", Options()), "cuda");
  EXPECT_EQ(LoadsOf(path), 2);
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(Picked(Here(), "auto", Options()), "cuda");
  EXPECT_EQ(LoadsOf(path), 3);
  OpenOptions refresh = Options();
  refresh.refresh = true;
  EXPECT_EQ(Picked(Here(), "auto", refresh), "cuda");
  EXPECT_EQ(LoadsOf(path), 4);
}

TEST_F(Fake, ThatCrashedIsNotTriedAgainButOneThatToldAnErrorIs) {
  const std::string crashes = Cuda("mode=crash-load");
  for (int run = 0; run < 3; ++run) EXPECT_TRUE(Has(Picked(Here(), "auto", Options()), kAborted));
  EXPECT_EQ(LoadsOf(crashes), 1);
  const std::string tells = Cuda("mode=client-error");
  std::filesystem::remove(tells + ".log");
  std::filesystem::remove_all(folder_.File("cache"));
  for (int run = 0; run < 3; ++run)
    EXPECT_TRUE(Has(Picked(Here(), "auto", Options()), "CUDA_ERROR_NO_DEVICE"));
  EXPECT_EQ(LoadsOf(tells), 3);
}

TEST_F(Fake, ADamagedAnswerOnDiskIsAskedAnew) {
  const std::string path = Cuda("");
  EXPECT_EQ(Picked(Here(), "auto", Options()), "cuda");
  for (const auto& entry : std::filesystem::directory_iterator(folder_.File("cache/plugins")))
    std::ofstream(entry.path()) << "{\"ok\": tr";
  EXPECT_EQ(Picked(Here(), "auto", Options()), "cuda");
  EXPECT_EQ(LoadsOf(path), 2);
}

TEST_F(Fake, WithANumberBeyondItsDevicesIsAnError) {
  Cuda("devices=2");
  EXPECT_EQ(Picked(Here(), "cuda:1", Options()), "cuda");
  const std::string picked = Picked(Here(), "cuda:2", Options());
  EXPECT_TRUE(Has(picked, "--device=cuda:2: there is no device 2; the plugin has 2")) << picked;
}

TEST_F(Fake, OfAnUntestedVersionIsUsedWithANoteOrNotAsTheVariableSays) {
  Cuda("minor=150");
  EXPECT_TRUE(Has(Picked(Here(), "auto", Options()),
                  "cuda: cuda: the plugin speaks PJRT 0.150; tested are 0.81 to 0.117"));
  EXPECT_EQ(Picked(Here({{"ENABLE_PJRT_COMPATIBILITY", "true"}}), "auto", Options()), "cuda");
  const std::string refused =
      Picked(Here({{"ENABLE_PJRT_COMPATIBILITY", "false"}}), "auto", Options());
  EXPECT_EQ(refused.rfind("cpu: ", 0), 0u);
  EXPECT_TRUE(Has(refused, "ENABLE_PJRT_COMPATIBILITY=false allows no other")) << refused;
}

TEST_F(Fake, ThatTurnsOutToBeAProcessorIsNotTakenUnlessNamed) {
  const std::string path = PutFakePlugin(folder_.File("mine.so"), "platform=cpu");
  const std::map<std::string, std::string> env = {{"PJRT_NAMES_AND_LIBRARY_PATHS", "mine:" + path}};
  EXPECT_EQ(Picked(Here(env), "auto", Options()).rfind("cpu", 0), 0u);
  const Result<pjrt::Picked> named = PickDevice(Here(env), "mine", Options());
  ASSERT_TRUE(named.ok()) << named.error().message();
  EXPECT_EQ(named->kind, Kind::kXlaCpu);
  EXPECT_EQ(JaxName(named->kind), "cpu");
}

TEST_F(Fake, ThatIsAProcessorUnderAnotherDevicesNameIsNotTaken) {
  const std::string path = PutFakePlugin(folder_.File("tpu.so"), "platform=cpu");
  for (const std::map<std::string, std::string>& env :
       {std::map<std::string, std::string>{{"TPU_LIBRARY_PATH", path}},
        std::map<std::string, std::string>{{"PJRT_NAMES_AND_LIBRARY_PATHS", "tpu:" + path}}}) {
    const std::string why = path + ": a plugin for the processor, not for tpu; call it xla-cpu";
    for (int run = 0; run < 2; ++run) {  // the second time from the kept answer
      const std::string automatic = Picked(Here(env), "auto", Options());
      EXPECT_EQ(automatic.rfind("cpu: ", 0), 0u) << automatic;
      EXPECT_TRUE(Has(automatic, why)) << automatic;
      EXPECT_EQ(Picked(Here(env), "tpu", Options()), "error: --device=tpu: " + why);
    }
  }
}

TEST_F(Fake, OpensInThisProcess) {
  Cuda("kind=Opened");
  Result<OpenedDevice> opened = OpenDevice(Here(), "auto", Options());
  ASSERT_TRUE(opened.ok()) << opened.error().message();
  EXPECT_EQ(opened->kind, Kind::kCuda);
  ASSERT_NE(opened->client, nullptr);
  EXPECT_EQ(opened->client->Devices()[0].kind, "Opened");
  Result<OpenedDevice> cpu = OpenDevice(Here(), "cpu", Options());
  ASSERT_TRUE(cpu.ok());
  EXPECT_EQ(cpu->kind, Kind::kCpu);
  EXPECT_EQ(cpu->client, nullptr);
}

}  // namespace
}  // namespace needle::pjrt
