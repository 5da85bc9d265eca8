// The host on real plugins of three interface versions; each test is skipped where they are absent.
#include "backend/pjrt/client.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "support/pjrt.h"
#include "support/scratch.h"

namespace needle::pjrt {
namespace {

// y = a x + b, and the sum of y.
const Program kLinear = {R"(module @linear {
  func.func public @main(%a: tensor<2x3xf32>, %x: tensor<3x2xf32>, %b: tensor<2x2xf32>)
      -> (tensor<2x2xf32>, tensor<f32>) {
    %0 = stablehlo.dot_general %a, %x, contracting_dims = [1] x [0],
        precision = [HIGHEST, HIGHEST] : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
    %1 = stablehlo.add %0, %b : tensor<2x2xf32>
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %2 = stablehlo.reduce(%1 init: %zero) applies stablehlo.add across dimensions = [0, 1]
        : (tensor<2x2xf32>, tensor<f32>) -> tensor<f32>
    return %1, %2 : tensor<2x2xf32>, tensor<f32>
  }
})",
                         {{DType::kF32, {2, 3}}, {DType::kF32, {3, 2}}, {DType::kF32, {2, 2}}},
                         {{DType::kF32, {2, 2}}, {DType::kF32, {}}},
                         {}};

// p - g in the storage of p.
const Program kDonating = {R"(module @donating {
  func.func public @main(%p: tensor<4xf32> {tf.aliasing_output = 0 : i32}, %g: tensor<4xf32>)
      -> tensor<4xf32> {
    %0 = stablehlo.subtract %p, %g : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
})",
                           {{DType::kF32, {4}}, {DType::kF32, {4}}},
                           {{DType::kF32, {4}}},
                           {0}};

const Program kTwice = {R"(module @twice {
  func.func public @main(%x: tensor<2x2xi32>) -> tensor<2x2xi32> {
    %0 = stablehlo.add %x, %x : tensor<2x2xi32>
    return %0 : tensor<2x2xi32>
  }
})",
                        {{DType::kS32, {2, 2}}},
                        {{DType::kS32, {2, 2}}},
                        {}};

class OnPlugin : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    const std::string path = std::vector<std::string>{test::CpuPlugin(), test::OlderCpuPlugin(),
                                                      test::OldestCpuPlugin()}[GetParam()];
    NEEDLE_NEED_PLUGIN(path);
    Result<std::shared_ptr<Plugin>> loaded = Plugin::Load(path);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message();
    plugin_ = *loaded;
    client_ = Open(1);
    ASSERT_NE(client_, nullptr);
  }
  std::unique_ptr<Client> Open(int64_t devices) {
    const std::vector<NamedValue> options = {{"cpu_device_count", devices}};
    Result<std::unique_ptr<Client>> client = Client::Create(plugin_, options);
    EXPECT_TRUE(client.ok()) << (client.ok() ? "" : client.error().message());
    return client.ok() ? *std::move(client) : nullptr;
  }
  static Buffer Put(Client& client, const std::vector<float>& data, std::vector<int64_t> shape,
                    int device = 0) {
    Result<Buffer> buffer = client.Upload(data.data(), {DType::kF32, std::move(shape)}, device);
    EXPECT_TRUE(buffer.ok()) << (buffer.ok() ? "" : buffer.error().message());
    return buffer.ok() ? *std::move(buffer) : Buffer();
  }
  static Executable Compiled(Client& client, const Program& program,
                             const CompileOptions& options = {}) {
    Result<Executable> compiled = client.Compile(program, options);
    if (!compiled.ok()) throw std::runtime_error(compiled.error().message());
    return *std::move(compiled);
  }

  std::shared_ptr<Plugin> plugin_;
  std::unique_ptr<Client> client_;
};

TEST_P(OnPlugin, TellsItsVersionPlatformAndDevices) {
  EXPECT_EQ(plugin_->ApiMajor(), 0);
  EXPECT_EQ(plugin_->ApiMinor(), (std::vector<int>{115, 106, 81}[GetParam()]));
  EXPECT_TRUE(plugin_->Tested());
  EXPECT_EQ(client_->PlatformName(), "cpu");
  EXPECT_EQ(client_->Devices().size(), 1u);
  EXPECT_EQ(client_->Devices()[0].kind, "cpu");
  const auto has = [&](const std::string& name) {
    for (const NamedValue& v : plugin_->Attributes())
      if (v.name == name) return !Describe(v).empty();
    return false;
  };
  EXPECT_TRUE(has("stablehlo_current_version"));
}

TEST_P(OnPlugin, ComputesWhatTheProgramSays) {
  Executable program = Compiled(*client_, kLinear);
  Buffer a = Put(*client_, {1, 2, 3, 4, 5, 6}, {2, 3}),
         x = Put(*client_, {1, 0, 0, 1, 1, 1}, {3, 2}), b = Put(*client_, {10, 20, 30, 40}, {2, 2});
  const auto out = program.Run({{&a, &x, &b}});
  ASSERT_TRUE(out.ok()) << out.error().message();
  EXPECT_EQ(*(*out)[0][0].Floats(), (std::vector<float>{14, 25, 40, 51}));
  EXPECT_EQ(*(*out)[0][1].Floats(), (std::vector<float>{130}));
  EXPECT_EQ((*out)[0][1].shape(), std::vector<int64_t>{});
}

TEST_P(OnPlugin, CarriesIntegersThere) {
  Executable program = Compiled(*client_, kTwice);
  const std::vector<int32_t> data = {1, -2, 3, 2000000};
  Result<Buffer> x = client_->Upload(data.data(), {DType::kS32, {2, 2}});
  ASSERT_TRUE(x.ok());
  const auto out = program.Run({{&*x}});
  ASSERT_TRUE(out.ok()) << out.error().message();
  EXPECT_EQ(*(*out)[0][0].Ints(), (std::vector<int32_t>{2, -4, 6, 4000000}));
  EXPECT_FALSE((*out)[0][0].Floats().ok());
}

TEST_P(OnPlugin, RefusesArgumentsOfAnotherShapeTypeOrNumber) {
  Executable program = Compiled(*client_, kLinear);
  Buffer a = Put(*client_, {1, 2, 3, 4, 5, 6}, {2, 3}),
         x = Put(*client_, {1, 0, 0, 1, 1, 1}, {3, 2}), b = Put(*client_, {10, 20, 30, 40}, {2, 2}),
         flat = Put(*client_, {1, 2, 3, 4}, {4});
  const int32_t ints[4] = {};
  Result<Buffer> i = client_->Upload(ints, {DType::kS32, {2, 2}});
  const auto message = [&](const std::vector<Buffer*>& args) {
    const auto out = program.Run({args});
    return out.ok() ? "" : out.error().message();
  };
  EXPECT_NE(message({&x, &a, &b}).find("argument 0 of replica 0 is f32[3,2]"), std::string::npos);
  EXPECT_NE(message({&a, &x, &flat}).find("the program takes f32[2,2]"), std::string::npos);
  EXPECT_NE(message({&a, &x, &*i}).find("i32[2,2]"), std::string::npos);
  EXPECT_NE(message({&a, &x}).find("takes 3 arrays"), std::string::npos);
  EXPECT_EQ(message({&a, &x, &b}), "");
}

TEST_P(OnPlugin, GivesADonatedArgumentsStorageToTheOutput) {
  Executable program = Compiled(*client_, kDonating);
  Buffer p = Put(*client_, {1, 2, 3, 4}, {4}), g = Put(*client_, {1, 1, 1, 1}, {4});
  for (int step = 0; step < 3; ++step) {
    auto out = program.Run({{&p, &g}});
    ASSERT_TRUE(out.ok()) << out.error().message();
    EXPECT_TRUE(p.donated());
    EXPECT_FALSE(p.Floats().ok());
    EXPECT_FALSE(program.Run({{&p, &g}}).ok());
    p = std::move((*out)[0][0]);
  }
  EXPECT_EQ(*p.Floats(), (std::vector<float>{-2, -1, 0, 1}));
  EXPECT_FALSE(g.donated());
  EXPECT_FALSE(program.Run({{&p, &p}}).ok());
}

TEST_P(OnPlugin, RefusesAProgramWhoseOutputsAreNotAsDeclared) {
  Program fewer = kLinear;
  fewer.outputs.pop_back();
  const Result<Executable> refused = client_->Compile(fewer, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message().find("2 arrays; 1 were declared"), std::string::npos);

  Program wrong = kTwice;
  wrong.outputs[0].shape = {4};
  Executable program = Compiled(*client_, wrong);
  const int32_t data[4] = {};
  Result<Buffer> x = client_->Upload(data, {DType::kS32, {2, 2}});
  const auto out = program.Run({{&*x}});
  ASSERT_FALSE(out.ok());
  EXPECT_NE(out.error().message().find("output 0 is i32[2,2]; i32[4] was declared"),
            std::string::npos);
}

TEST_P(OnPlugin, ShowsTheCompilersOwnMessage) {
  Program bad = kTwice;
  bad.text = "module { func.func public @main( }";
  const Result<Executable> compiled = client_->Compile(bad, {});
  ASSERT_FALSE(compiled.ok());
  EXPECT_NE(compiled.error().message().find("compiling a program: "), std::string::npos);
  EXPECT_NE(compiled.error().message().find("error"), std::string::npos);
}

TEST_P(OnPlugin, RefusesAFlagThatItDoesNotKnow) {
  CompileOptions options;
  options.overrides["xla_no_such_flag"] = true;
  const Result<Executable> compiled = client_->Compile(kTwice, options);
  ASSERT_FALSE(compiled.ok());
  EXPECT_EQ(compiled.error().code(), Code::kInvalidArgument);
  EXPECT_NE(compiled.error().message().find("xla_no_such_flag"), std::string::npos);
  options.overrides = {{"xla_cpu_enable_fast_math", false}};
  EXPECT_TRUE(client_->Compile(kTwice, options).ok());
}

TEST_P(OnPlugin, CountsTheBytesThatCross) {
  Executable program = Compiled(*client_, kDonating);
  Buffer p = Put(*client_, {1, 2, 3, 4}, {4}), g = Put(*client_, {1, 1, 1, 1}, {4});
  EXPECT_EQ(client_->bytes_to_device(), 32);
  auto out = program.Run({{&p, &g}});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(client_->bytes_to_host(), 0);
  ASSERT_TRUE((*out)[0][0].Floats().ok());
  EXPECT_EQ(client_->bytes_to_host(), 16);
  EXPECT_EQ(client_->bytes_to_device(), 32);
}

TEST_P(OnPlugin, AddsOverReplicasOnTwoDevices) {
  const std::unique_ptr<Client> two = Open(2);
  ASSERT_EQ(two->Devices().size(), 2u);
  const Program sum = {R"(module @sum attributes {mhlo.num_replicas = 2 : i32} {
  func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
    %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> ({
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        %s = stablehlo.add %a, %b : tensor<f32>
        stablehlo.return %s : tensor<f32>
    }) : (tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
})",
                       {{DType::kF32, {2}}},
                       {{DType::kF32, {2}}},
                       {}};
  for (const bool reversed : {false, true}) {
    CompileOptions options;
    options.replicas = 2;
    options.devices = {two->Devices()[reversed].id, two->Devices()[!reversed].id};
    Executable program = Compiled(*two, sum, options);
    ASSERT_EQ(program.replicas(), 2);
    Buffer x = Put(*two, {1, 2}, {2}, reversed), y = Put(*two, {10, 20}, {2}, !reversed);
    const auto out = program.Run({{&x}, {&y}});
    ASSERT_TRUE(out.ok()) << out.error().message();
    EXPECT_EQ(*(*out)[0][0].Floats(), (std::vector<float>{11, 22}));
    EXPECT_EQ(*(*out)[1][0].Floats(), (std::vector<float>{11, 22}));
    EXPECT_EQ((*out)[1][0].device(), !reversed);
    const auto swapped = program.Run({{&y}, {&x}});
    ASSERT_FALSE(swapped.ok());
    EXPECT_NE(swapped.error().message().find("lies on device"), std::string::npos);
  }
}

TEST_P(OnPlugin, WorksOnOneOfItsDevicesAloneAndOnTheOthersBeside) {
  std::unique_ptr<Client> three = Open(3);
  const int64_t second = three->Devices()[1].id;
  Result<std::unique_ptr<Client>> only = three->Only(1);
  ASSERT_TRUE(only.ok()) << only.error().message();
  ASSERT_EQ((*only)->Devices().size(), 1u);
  EXPECT_EQ((*only)->Devices()[0].id, second);
  const auto subtracts = [](Client& client) {
    Executable program = Compiled(client, kDonating);
    Buffer p = Put(client, {5, 6, 7, 8}, {4}), g = Put(client, {1, 2, 3, 4}, {4});
    const auto out = program.Run({{&p, &g}});
    return out.ok() ? *(*out)[0][0].Floats() : std::vector<float>();
  };
  const std::vector<float> wanted = {4, 4, 4, 4};
  EXPECT_EQ(subtracts(**only), wanted);
  EXPECT_EQ(subtracts(*three), wanted);
  EXPECT_EQ(three->bytes_to_host(), 16) << "each counts its own";
  EXPECT_FALSE((*only)->Upload(wanted.data(), {DType::kF32, {4}}, 1).ok());
  three.reset();
  EXPECT_EQ(subtracts(**only), wanted) << "the plugin's client lives on";
  for (const int bad : {-1, 1}) EXPECT_FALSE((*only)->Only(bad).ok());
}

TEST_P(OnPlugin, TakesAProgramFromTheCacheAndCompilesADamagedEntryAgain) {
  const test::ScratchFolder folder;
  const std::string cache = folder.File("compiled/programs");
  client_->SetCache(cache);
  EXPECT_FALSE(Compiled(*client_, kDonating).from_cache());
  const auto entry = std::filesystem::directory_iterator(cache)->path();
  const auto run = [&](Executable program) {
    Buffer p = Put(*client_, {1, 2, 3, 4}, {4}), g = Put(*client_, {1, 1, 1, 1}, {4});
    const auto out = program.Run({{&p, &g}});
    EXPECT_TRUE(out.ok());
    EXPECT_EQ(*(*out)[0][0].Floats(), (std::vector<float>{0, 1, 2, 3}));
    return program.from_cache();
  };
  EXPECT_TRUE(run(Compiled(*client_, kDonating)));
  const std::unique_ptr<Client> second = Open(1);
  second->SetCache(cache);
  EXPECT_TRUE(Compiled(*second, kDonating).from_cache());

  const auto size = std::filesystem::file_size(entry);
  std::filesystem::resize_file(entry, size / 2);
  EXPECT_FALSE(run(Compiled(*client_, kDonating)));
  // Whole again; a plugin may write a few bytes more or less (it notes how long it compiled).
  EXPECT_GT(std::filesystem::file_size(entry), size * 3 / 4);
  {
    std::fstream file(entry, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(size / 2));
    file.put('!');
  }
  EXPECT_FALSE(run(Compiled(*client_, kDonating)));
  EXPECT_TRUE(run(Compiled(*client_, kDonating)));
}

TEST_P(OnPlugin, KeepsAnEntryForEachTextAndOption) {
  const test::ScratchFolder folder;
  client_->SetCache(folder.path());
  Program other = kDonating;
  other.text.replace(other.text.find("subtract"), 8, "multiply");
  CompileOptions options;
  options.overrides = {{"xla_cpu_enable_fast_math", false}};
  for (const bool cached : {false, true}) {
    EXPECT_EQ(Compiled(*client_, kDonating).from_cache(), cached);
    EXPECT_EQ(Compiled(*client_, other).from_cache(), cached);
    EXPECT_EQ(Compiled(*client_, kDonating, options).from_cache(), cached);
  }
}

TEST_P(OnPlugin, ReportsTheMemoryOfAProgram) {
  const MemoryStats memory = Compiled(*client_, kDonating).Memory();
  ASSERT_TRUE(memory.argument_bytes && memory.output_bytes && memory.temp_bytes);
  EXPECT_EQ(*memory.argument_bytes, 32);
  EXPECT_EQ(*memory.output_bytes, 16);
  EXPECT_GE(*memory.temp_bytes, 0);
}

TEST_P(OnPlugin, BuffersOutliveTheirClient) {
  Buffer p = Put(*client_, {1, 2, 3, 4}, {4});
  client_.reset();
  EXPECT_EQ(*p.Floats(), (std::vector<float>{1, 2, 3, 4}));
}

std::string PluginName(const testing::TestParamInfo<int>& info) {
  return std::vector<std::string>{"Newest", "Older", "Oldest"}[info.param];
}
INSTANTIATE_TEST_SUITE_P(Pjrt, OnPlugin, testing::Values(0, 1, 2), PluginName);

}  // namespace
}  // namespace needle::pjrt
