// Discovery and choice on machines that the tests make up.
#include "backend/pjrt/choose.h"

#include <gtest/gtest.h>

#include "backend/pjrt/machine.h"

namespace needle::pjrt {
namespace {

using test::Machine;

/// "cuda > cpu" for the automatic group; "cuda | tpu" for two named ones; or the error.
std::string Tried(const Platform& platform, const std::string& device = "auto") {
  const Result<Choice> choice = Choose(platform, device);
  if (!choice.ok()) return "error: " + choice.error().message();
  std::string out;
  for (const auto& group : choice->groups) {
    if (!out.empty()) out += " | ";
    for (size_t i = 0; i < group.size(); ++i) out += (i > 0 ? " > " : "") + group[i].candidate.name;
  }
  return out;
}

Attempt FirstOf(const Platform& platform, const std::string& device = "auto") {
  const Result<Choice> choice = Choose(platform, device);
  if (!choice.ok()) throw std::runtime_error(choice.error().message());
  return choice->groups.at(0).at(0);
}

std::string Options(const Attempt& attempt) {
  std::string out;
  for (const NamedValue& option : attempt.options)
    out += (out.empty() ? "" : " ") + option.name + "=" + Describe(option);
  return out;
}

Code CodeOf(const Platform& platform, const std::string& device = "auto") {
  const Result<Choice> choice = Choose(platform, device);
  return choice.ok() ? Code::kInternal : choice.error().code();
}

// ------------------------------------------------------------------ Linux

TEST(Choose, TakesTheNativeEngineOnABareMachine) {
  EXPECT_EQ(Tried(Machine(Os::kLinux)), "cpu");
  EXPECT_EQ(Tried(Machine(Os::kMacOs)), "cpu");
  EXPECT_EQ(Tried(Machine(Os::kWindows)), "cpu");
}

TEST(Choose, TakesAnNvidiaGpuWithItsPlugin) {
  EXPECT_EQ(Tried(Machine(Os::kLinux).Nvidia().Cuda()), "cuda > cpu");
  const Attempt attempt = FirstOf(Machine(Os::kLinux).Nvidia().Cuda());
  EXPECT_EQ(attempt.candidate.library,
            Machine::kSite + "/jax_plugins/xla_cuda13/xla_cuda_plugin.so");
  EXPECT_EQ(attempt.candidate.package, "jax-cuda13-pjrt");
  EXPECT_EQ(attempt.candidate.version, "0.11.2");
  EXPECT_EQ(Options(attempt), "platform_name=cuda allocator=default");
}

TEST(Choose, SeesTheGpuUnderWsl) {
  EXPECT_EQ(Tried(Machine(Os::kLinux).File("/dev/dxg").Cuda()), "cuda > cpu");
}

TEST(Choose, LoadsNoPluginWithoutItsHardware) {
  EXPECT_EQ(Tried(Machine(Os::kLinux).Cuda().Rocm().Package("libtpu/libtpu.so")), "cpu");
  const Result<Choice> choice = Choose(Machine(Os::kLinux).Cuda().platform(), "auto");
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->passed_over, std::vector<std::string>{"cuda: no NVIDIA GPU"});
}

TEST(Choose, NeverTakesTheCpuPluginUnlessItIsNamed) {
  const Platform machine = Machine(Os::kLinux).XlaCpu();
  EXPECT_EQ(Tried(machine), "cpu");
  EXPECT_EQ(Tried(machine, "xla-cpu"), "xla-cpu");
  EXPECT_EQ(Tried(machine, "cpu"), "cpu");
}

TEST(Choose, TriesTwoGpuPluginsBeforeTheTpuBeforeTheProcessor) {
  EXPECT_EQ(
      Tried(Machine(Os::kLinux).Nvidia().Amd().Tpu().Rocm().Cuda().Package("libtpu/libtpu.so")),
      "cuda > rocm > tpu > cpu");
}

TEST(Choose, TriesTheNewerOfTwoCudaPluginsFirst) {
  const Platform machine =
      Machine(Os::kLinux).Nvidia().Cuda().Package("jax_plugins/xla_cuda12/xla_cuda_plugin.so");
  EXPECT_EQ(Tried(machine), "cuda > cuda > cpu");
  EXPECT_EQ(FirstOf(machine).candidate.package, "jax-cuda13-pjrt");
  EXPECT_EQ(
      FirstOf(Machine(Os::kLinux).Amd().Rocm().Package("jax_plugins/xla_rocm10/xla_rocm_plugin.so"))
          .candidate.package,
      "jax-rocm10-pjrt");
}

TEST(Choose, TakesIntelAndGivesEachGpuItsPlatformName) {
  const Platform intel =
      Machine(Os::kLinux).Intel().Package("jax_plugins/xla_oneapi/xla_oneapi_plugin.so");
  EXPECT_EQ(Tried(intel), "oneapi > cpu");
  EXPECT_EQ(Options(FirstOf(intel)), "platform_name=SYCL allocator=default");
  EXPECT_EQ(Options(FirstOf(Machine(Os::kLinux).Amd().Rocm())),
            "platform_name=ROCM allocator=default");
}

TEST(Choose, HidesGpusAsTheDriverWould) {
  for (const char* hidden : {"", "-1"}) {
    EXPECT_EQ(Tried(Machine(Os::kLinux).Nvidia().Cuda().Env("CUDA_VISIBLE_DEVICES", hidden)),
              "cpu");
    EXPECT_EQ(Tried(Machine(Os::kLinux).Amd().Rocm().Env("HIP_VISIBLE_DEVICES", hidden)), "cpu");
  }
  EXPECT_EQ(Tried(Machine(Os::kLinux).Nvidia().Cuda().Env("CUDA_VISIBLE_DEVICES", "0")),
            "cuda > cpu");
  EXPECT_EQ(Tried(Machine(Os::kLinux).Nvidia().Cuda().Env("CUDA_VISIBLE_DEVICES", ""), "cuda"),
            "error: --device=cuda: hidden by CUDA_VISIBLE_DEVICES=");
}

TEST(Choose, FindsNvidiasLibrariesAndDataFolderInPackages) {
  const Attempt attempt = FirstOf(Machine(Os::kLinux)
                                      .Nvidia()
                                      .Cuda()
                                      .Package("nvidia/cu13/lib/libcublas.so.13")
                                      .Package("nvidia/cu13/lib/libcudart.so.13")
                                      .Package("nvidia/cudnn/lib/libcudnn.so.9"));
  EXPECT_EQ(attempt.preload,
            (std::vector<std::string>{Machine::kSite + "/nvidia/cu13/lib/libcudart.so.13",
                                      Machine::kSite + "/nvidia/cu13/lib/libcublas.so.13",
                                      Machine::kSite + "/nvidia/cudnn/lib/libcudnn.so.9"}));
  EXPECT_EQ(std::get<std::string>(attempt.overrides.at("xla_gpu_cuda_data_dir")),
            Machine::kSite + "/nvidia/cu13");
  const Attempt own = FirstOf(Machine(Os::kLinux).Nvidia().Cuda().Env("CUDA_ROOT", "/opt/cuda"));
  EXPECT_EQ(std::get<std::string>(own.overrides.at("xla_gpu_cuda_data_dir")), "/opt/cuda");
}

// ------------------------------------------------------------------ macOS, Windows

TEST(Choose, TakesMetalPluginsInTheirOrder) {
  Machine machine(Os::kMacOs);
  machine.Package("jax_plugins/metal_plugin/pjrt_plugin_metal_14.dylib");
  EXPECT_EQ(Tried(machine), "metal > cpu");
  EXPECT_NE(FirstOf(machine).candidate.caution.find("metaljax"), std::string::npos);
  machine.Package("metal_pjrt_core/pjrt_c_api_mtl_plugin.dylib");
  EXPECT_EQ(Options(FirstOf(machine)),
            "platform_name=METAL allocator=platform preallocate=false memory_fraction=1 "
            "visible_devices=[0] should_stage_host_to_device_transfers=false");
  machine.Package("metaljax/lib/libmetal_pjrt_native.dylib");
  EXPECT_EQ(Tried(machine), "metal > metal > metal > cpu");
  EXPECT_EQ(FirstOf(machine).candidate.package, "metaljax");
  EXPECT_EQ(Options(FirstOf(machine)), "");
}

TEST(Choose, KnowsMetalByItsOtherNames) {
  Machine machine(Os::kMacOs);
  machine.Package("jax_plugins/mps/lib/libpjrt_plugin_mps.dylib");
  for (const char* name : {"metal", "METAL", "mps", "mtl"})
    EXPECT_EQ(Tried(machine, name), "metal");
}

TEST(Choose, FindsTheFoldersOfPythonOnMacOs) {
  for (const char* lib :
       {"/opt/homebrew/lib/python3.12/site-packages",
        "/Library/Frameworks/Python.framework/Versions/3.13/lib/python3.13/site-packages",
        "/Users/ann/Library/Python/3.9/lib/python/site-packages"})
    EXPECT_EQ(Tried(Machine(Os::kMacOs)
                        .File(std::string(lib) + "/metaljax/lib/libmetal_pjrt_native.dylib")),
              "metal > cpu")
        << lib;
}

TEST(Choose, LeavesAnIntelMacOnItsProcessor) {
  Platform intel = Machine(Os::kMacOs).Package("metaljax/lib/libmetal_pjrt_native.dylib");
  intel.arch = "x86_64";
  EXPECT_EQ(Tried(intel), "cpu");
}

TEST(Choose, ReadsWindowsFoldersAndPaths) {
  Machine machine(Os::kWindows);
  machine.Env("PJRT_NAMES_AND_LIBRARY_PATHS", "mine:C:\\plugins\\mine.dll");
  EXPECT_EQ(Tried(machine), "mine > cpu");
  EXPECT_EQ(FirstOf(machine).candidate.library, "C:\\plugins\\mine.dll");
  machine.Env("VIRTUAL_ENV", "C:/venv").File("C:/venv/Lib/site-packages/x/y");
  machine.Env("PYTHONPATH", "C:/more;C:/none").File("C:/more/z");
  EXPECT_EQ(SitePackages(machine.platform()),
            (std::vector<std::string>{"C:/more", "C:/venv/Lib/site-packages"}));
  EXPECT_EQ(CodeOf(Machine(Os::kWindows).File("C:/Windows/System32/nvcuda.dll"), "cuda"),
            Code::kUnavailable);
}

// ------------------------------------------------------------------ where plugins are looked for

TEST(Discover, LooksIntoTheActiveEnvironmentBeforeTheSystemAndTheNewestPythonFirst) {
  const std::string name = "/jax_plugins/xla_cuda13/xla_cuda_plugin.so";
  Machine machine(Os::kLinux);
  machine.Nvidia();
  const auto first = [&] { return FirstOf(machine).candidate.origin; };
  machine.File("/usr/lib/python3/dist-packages" + name);
  EXPECT_EQ(first(), "/usr/lib/python3/dist-packages");
  machine.File("/usr/local/lib/python3.9/site-packages" + name);
  EXPECT_EQ(first(), "/usr/local/lib/python3.9/site-packages");
  machine.File("/usr/local/lib/python3.12/site-packages" + name);
  EXPECT_EQ(first(), "/usr/local/lib/python3.12/site-packages");
  machine.File("/home/ann/.local/lib/python3.8/site-packages" + name);
  EXPECT_EQ(first(), "/home/ann/.local/lib/python3.8/site-packages");
  machine.Env("CONDA_PREFIX", "/conda").File("/conda/lib/python3.10/site-packages" + name);
  EXPECT_EQ(first(), "/conda/lib/python3.10/site-packages");
  machine.Cuda();
  EXPECT_EQ(first(), Machine::kSite);
  machine.Env("PYTHONPATH", "/target").File("/target" + name);
  EXPECT_EQ(first(), "/target");
}

TEST(Discover, AsksPythonOnlyForWhatNoKnownPlaceHolds) {
  int asked = 0;
  const auto with_python = [&](Machine machine) {
    Platform p = machine.File("/odd/jax_plugins/xla_cuda13/xla_cuda_plugin.so");
    p.ask_python = [&asked] {
      ++asked;
      return std::vector<std::string>{"/odd"};
    };
    return p;
  };
  EXPECT_EQ(Tried(with_python(Machine(Os::kLinux).Nvidia())), "cuda > cpu");
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(Tried(with_python(Machine(Os::kLinux).Nvidia().Cuda())), "cuda > cpu");
  EXPECT_EQ(Tried(with_python(Machine(Os::kLinux))), "cpu");  // no hardware: nothing to find
  EXPECT_EQ(asked, 1);
  // Plugins of other kinds do not hide the one that the hardware wants.
  EXPECT_EQ(Tried(with_python(Machine(Os::kLinux).Nvidia().XlaCpu())), "cuda > cpu");
  EXPECT_EQ(asked, 2);
}

TEST(Discover, TakesPluginsThatTheEnvironmentNames) {
  Machine machine(Os::kLinux);
  machine.Env("PJRT_NAMES_AND_LIBRARY_PATHS", "mine:/opt/mine.so,tt:/opt/libtt.so");
  EXPECT_EQ(Tried(machine), "mine > tt > cpu");
  EXPECT_EQ(Tried(machine, "tt"), "tt");
  machine.Nvidia().Cuda();
  EXPECT_EQ(Tried(machine), "cuda > mine > tt > cpu");
  machine.Env("TPU_LIBRARY_PATH", "/opt/libtpu.so");
  EXPECT_EQ(Tried(machine), "cuda > mine > tt > tpu > cpu");
  EXPECT_EQ(FirstOf(machine, "tpu").candidate.library, "/opt/libtpu.so");
}

TEST(Discover, LetsTheEnvironmentsCudaGoFirst) {
  Machine machine(Os::kLinux);
  machine.Nvidia().Cuda().Env("PJRT_NAMES_AND_LIBRARY_PATHS", "cuda:/opt/mine.so");
  EXPECT_EQ(Tried(machine), "cuda > cuda > cpu");
  EXPECT_EQ(FirstOf(machine).candidate.library, "/opt/mine.so");
  EXPECT_EQ(Options(FirstOf(machine)), "platform_name=cuda allocator=default");
}

TEST(Discover, ReadsOptionsFromAJsonFile) {
  Machine machine(Os::kLinux);
  machine.Env("PJRT_NAMES_AND_LIBRARY_PATHS", "mine:/opt/mine.json")
      .File("/opt/mine.json", R"({"library_path": "/opt/mine.so", "create_options":
          {"a": "x", "b": 3, "c": 0.5, "d": true, "e": [1, 2]}})");
  EXPECT_EQ(FirstOf(machine).candidate.library, "/opt/mine.so");
  EXPECT_EQ(Options(FirstOf(machine)), "a=x b=3 c=0.5 d=true e=[1,2]");
  const auto refused = [&](const std::string& text) {
    return Tried(Machine(machine).File("/opt/mine.json", text)).rfind("error: /opt/mine.json", 0) ==
           0;
  };
  EXPECT_TRUE(refused("{"));
  EXPECT_TRUE(refused("{}"));
  EXPECT_TRUE(refused(R"({"library_path": ""})"));
  for (const char* options : {"[1]", "\"a\"", "null", "3"})
    EXPECT_TRUE(refused(std::string(R"({"library_path": "x", "create_options": )") + options + "}"))
        << options;
  EXPECT_TRUE(refused(R"({"library_path": "x", "create_options": {"a": ["b"]}})"));
}

TEST(Discover, RefusesAListThatItCannotRead) {
  for (const char* list : {"mine", ":/opt/mine.so", "mine:", "cpu:/opt/mine.so", "CPU:/opt/mine.so",
                           "Auto:/opt/mine.so"})
    EXPECT_EQ(CodeOf(Machine(Os::kLinux).Env("PJRT_NAMES_AND_LIBRARY_PATHS", list)),
              Code::kInvalidArgument)
        << list;
}

// ------------------------------------------------------------------ what is asked for

TEST(Choose, PrefersTheFlagToNeedleDeviceToJaxPlatforms) {
  Machine machine(Os::kLinux);
  machine.Nvidia().Cuda().XlaCpu();
  EXPECT_EQ(Tried(machine.Env("JAX_PLATFORMS", "cpu")), "cpu");
  EXPECT_EQ(Tried(machine.Env("NEEDLE_DEVICE", "xla-cpu")), "xla-cpu");
  EXPECT_EQ(Tried(machine, "cuda"), "cuda");
  EXPECT_EQ(Tried(machine.Env("NEEDLE_DEVICE", "auto")), "cpu");
  EXPECT_EQ(Tried(machine.Env("JAX_PLATFORMS", "")), "cuda > cpu");
}

TEST(Choose, ReadsADevicesNumber) {
  const Platform machine = Machine(Os::kLinux).Nvidia().Cuda();
  EXPECT_EQ(Choose(machine, "cuda:3")->wish.index, 3);
  EXPECT_EQ(Choose(machine, "cuda")->wish.index, 0);
  for (const char* bad : {"cuda:", "cuda:x", "cuda:-1", ":1", "cuda:1x"})
    EXPECT_EQ(CodeOf(machine, bad), Code::kInvalidArgument) << bad;
}

TEST(Choose, TheNativeEngineIsOneDevice) {
  EXPECT_EQ(Tried(Machine(Os::kLinux), "cpu:0"), "cpu");
  EXPECT_EQ(Tried(Machine(Os::kLinux), "cpu:1").rfind("error: --device=cpu:1: ", 0), 0u);
  EXPECT_EQ(CodeOf(Machine(Os::kLinux).Env("NEEDLE_DEVICE", "CPU:1")), Code::kInvalidArgument);
}

TEST(Choose, ReadsJaxPlatformsAsAListOfWhichEachMustWork) {
  Machine machine(Os::kLinux);
  machine.Nvidia().Cuda();
  EXPECT_EQ(Tried(machine.Env("JAX_PLATFORMS", "cuda,cpu")), "cuda | cpu");
  EXPECT_EQ(Tried(machine.Env("JAX_PLATFORMS", "cpu, cuda")), "cpu | cuda");
  EXPECT_EQ(Tried(machine.Env("JAX_PLATFORMS", "cuda,tpu")), "error: JAX_PLATFORMS=tpu: no TPU");
}

TEST(Choose, ExpandsGpuToTheGpuPluginsThatAreThere) {
  EXPECT_EQ(Tried(Machine(Os::kLinux).Nvidia().Cuda().Env("JAX_PLATFORMS", "gpu")), "cuda");
  EXPECT_EQ(Tried(Machine(Os::kLinux).Nvidia().Amd().Cuda().Rocm(), "gpu"), "cuda > rocm");
  EXPECT_EQ(Tried(Machine(Os::kLinux), "gpu"),
            "error: --device=gpu: no NVIDIA GPU; no AMD GPU; no Intel GPU");
}

TEST(Choose, ANamedDeviceThatCannotBeIsAnErrorThatSaysWhatToDo) {
  EXPECT_EQ(Tried(Machine(Os::kLinux).Nvidia(), "cuda"),
            "error: --device=cuda: no plugin for cuda is installed; try: pip install "
            "jax-cuda13-pjrt");
  EXPECT_EQ(Tried(Machine(Os::kLinux), "metal"), "error: --device=metal: no Apple GPU");
  EXPECT_EQ(CodeOf(Machine(Os::kLinux), "cuda"), Code::kUnavailable);
  EXPECT_EQ(CodeOf(Machine(Os::kLinux), "toaster"), Code::kInvalidArgument);
  EXPECT_NE(Tried(Machine(Os::kLinux), "toaster").find("--device=toaster: no such device"),
            std::string::npos);
}

TEST(Choose, AcceptsTheLocalBackendTargetOnly) {
  EXPECT_EQ(Tried(Machine(Os::kLinux).Env("JAX_BACKEND_TARGET", "local")), "cpu");
  EXPECT_EQ(Tried(Machine(Os::kLinux).Env("JAX_BACKEND_TARGET", "")), "cpu");
  EXPECT_EQ(CodeOf(Machine(Os::kLinux).Env("JAX_BACKEND_TARGET", "grpc://far:8470")),
            Code::kInvalidArgument);
}

// ------------------------------------------------------------------ variables of the GPU plugins

TEST(ClientOptions, FollowTheVariablesThatJaxReads) {
  Machine machine(Os::kLinux);
  machine.Nvidia().Cuda();
  machine.Env("XLA_CLIENT_MEM_FRACTION", "0.5")
      .Env("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
      .Env("XLA_PYTHON_CLIENT_ALLOCATOR", "Platform")
      .Env("XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB", "64")
      .Env("JAX_CUDA_VISIBLE_DEVICES", "1,3");
  EXPECT_EQ(Options(FirstOf(machine)),
            "platform_name=cuda allocator=platform memory_fraction=0.5 preallocate=false "
            "collective_memory_size=67108864 visible_devices=[1,3]");
  EXPECT_EQ(Options(FirstOf(Machine(Os::kLinux)
                                .Nvidia()
                                .Cuda()
                                .Env("XLA_PYTHON_CLIENT_MEM_FRACTION", ".25")
                                .Env("JAX_CUDA_VISIBLE_DEVICES", "all")
                                .Env("XLA_PYTHON_CLIENT_PREALLOCATE", "true"))),
            "platform_name=cuda allocator=default memory_fraction=0.25 preallocate=true");
}

TEST(ClientOptions, RefuseValuesThatMeanNothing) {
  const std::vector<std::pair<const char*, const char*>> bad = {
      {"XLA_CLIENT_MEM_FRACTION", "half"},
      {"XLA_CLIENT_MEM_FRACTION", "0"},
      {"XLA_PYTHON_CLIENT_MEM_FRACTION", "-1"},
      {"XLA_PYTHON_CLIENT_ALLOCATOR", "malloc"},
      {"JAX_CUDA_VISIBLE_DEVICES", "first"},
      {"XLA_CLIENT_MEM_FRACTION", "nan"},
      {"JAX_CUDA_VISIBLE_DEVICES", ","},
      {"XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB", "much"},
      {"XLA_PYTHON_CLIENT_COLLECTIVE_MEM_SIZE_MB", "9999999999999999"}};
  for (const auto& [name, value] : bad) {
    Machine machine(Os::kLinux);
    machine.Nvidia().Cuda().Env(name, value);
    EXPECT_EQ(CodeOf(machine), Code::kInvalidArgument) << name;
    EXPECT_NE(Tried(machine).find(name), std::string::npos) << Tried(machine);
  }
  Machine both(Os::kLinux);
  both.Nvidia()
      .Cuda()
      .Env("XLA_CLIENT_MEM_FRACTION", "0.5")
      .Env("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.5");
  EXPECT_NE(Tried(both).find("both set"), std::string::npos);
}

TEST(ClientOptions, ReadTheHostDeviceCountForTheCpuPlugin) {
  const auto options = [](const char* flags) {
    return Options(FirstOf(Machine(Os::kLinux).XlaCpu().Env("XLA_FLAGS", flags), "xla-cpu"));
  };
  EXPECT_EQ(options(""), "cpu_device_count=1");
  EXPECT_EQ(options("--xla_a=1 --xla_force_host_platform_device_count=4"), "cpu_device_count=4");
  EXPECT_EQ(options("--xla_force_host_platform_device_count=2 "
                    "--xla_force_host_platform_device_count=3"),
            "cpu_device_count=3");
  for (const char* bad : {"many", "0", "-2", "2x", ""})
    EXPECT_EQ(CodeOf(Machine(Os::kLinux)
                         .XlaCpu()
                         .Env("XLA_FLAGS", std::string("--xla_a=1 "
                                                       "--xla_force_host_platform_device_count=") +
                                               bad),
                     "xla-cpu"),
              Code::kInvalidArgument)
        << bad;
}

// ------------------------------------------------------------------ versions, environment, notes

TEST(VersionNote, FollowsEnablePjrtCompatibility) {
  const auto note = [](int minor, const char* set) {
    Machine machine(Os::kLinux);
    if (set != nullptr) machine.Env("ENABLE_PJRT_COMPATIBILITY", set);
    bool fatal = false;
    const std::string text = VersionNote(minor, machine, &fatal);
    return std::string(fatal ? "refused" : text.empty() ? "silent" : "noted");
  };
  for (const char* set : {static_cast<const char*>(nullptr), "true", "false"})
    EXPECT_EQ(note(115, set), "silent");
  EXPECT_EQ(note(130, nullptr), "noted");
  EXPECT_EQ(note(60, nullptr), "noted");
  EXPECT_EQ(note(130, "1"), "silent");
  EXPECT_EQ(note(130, "false"), "refused");
}

TEST(MissingEnvironment, SetsPjrtCompatibilityOnMacOsUnlessTheUserDid) {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  const Pairs quiet = {{"TF_CPP_MIN_LOG_LEVEL", "2"}};
  EXPECT_EQ(MissingEnvironment(Machine(Os::kLinux)), quiet);
  EXPECT_EQ(MissingEnvironment(Machine(Os::kMacOs)).front(),
            (std::pair<std::string, std::string>{"ENABLE_PJRT_COMPATIBILITY", "1"}));
  EXPECT_EQ(MissingEnvironment(Machine(Os::kMacOs).Env("ENABLE_PJRT_COMPATIBILITY", "0")), quiet);
  EXPECT_EQ(MissingEnvironment(Machine(Os::kLinux).Env("TF_CPP_MIN_LOG_LEVEL", "0")), Pairs{});
}

TEST(UnusedGpuNote, SpeaksWhenAGpuIsHereAndTheProcessorTrains) {
  EXPECT_EQ(UnusedGpuNote(Kind::kCpu, Machine(Os::kLinux), {}), "");
  EXPECT_EQ(UnusedGpuNote(Kind::kCpu, Machine(Os::kLinux).Nvidia(), {}),
            "an NVIDIA GPU is here but is not used; its plugin: pip install jax-cuda13-pjrt");
  EXPECT_EQ(UnusedGpuNote(Kind::kCpu, Machine(Os::kLinux).Nvidia(), {"cuda: it crashed"}),
            "an NVIDIA GPU is here but is not used: cuda: it crashed");
  EXPECT_EQ(UnusedGpuNote(Kind::kCuda, Machine(Os::kLinux).Nvidia(), {}), "");
  EXPECT_EQ(UnusedGpuNote(Kind::kCpu, Machine(Os::kLinux).Intel(), {}), "");
  EXPECT_EQ(
      UnusedGpuNote(Kind::kCpu, Machine(Os::kLinux).Nvidia().Env("CUDA_VISIBLE_DEVICES", ""), {}),
      "");
  EXPECT_EQ(UnusedGpuNote(Kind::kCpu, Machine(Os::kMacOs), {}),
            "an Apple GPU is here but is not used; its plugin: pip install metaljax");
}

TEST(CacheFolder, IsTheSystemsOwnPlaceUnlessOneIsNamed) {
  EXPECT_EQ(CacheFolder(Machine(Os::kLinux)), "/home/ann/.cache/needle");
  EXPECT_EQ(CacheFolder(Machine(Os::kLinux).Env("XDG_CACHE_HOME", "/c")), "/c/needle");
  EXPECT_EQ(CacheFolder(Machine(Os::kMacOs)), "/Users/ann/Library/Caches/needle");
  EXPECT_EQ(CacheFolder(Machine(Os::kWindows).Env("LOCALAPPDATA", "C:/L")), "C:/L/needle/cache");
  EXPECT_EQ(CacheFolder(Machine(Os::kLinux).Env("NEEDLE_CACHE_DIR", "/n")), "/n");
}

}  // namespace
}  // namespace needle::pjrt
