#include "backend/pjrt/pjrt_backend.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/str_cat.h"
#include "ops/rope.h"

namespace needle {
namespace {

using hlo::NamedProgram;
using pjrt::ArraySpec;
using pjrt::Block;
using pjrt::BlockShape;
using pjrt::Buffer;
using pjrt::Client;
using pjrt::Executable;
using ElementType = pjrt::DType;

using Arrays = std::map<std::string, Buffer>;

/// A compiled program and the names of what goes in and comes out.
struct Compiled {
  Executable executable;
  std::vector<std::string> inputs, outputs;
};

std::vector<float> Zeros(const ArraySpec& spec) {
  return std::vector<float>(static_cast<size_t>(spec.elements()));
}

/// As JAX names platforms.
std::string PlatformKind(const std::string& platform) {
  std::string name = platform;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) {
    return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  });
  for (const char* gpu : {"cuda", "rocm", "sycl", "oneapi", "gpu"})
    if (name.find(gpu) != std::string::npos) return "gpu";
  for (const char* metal : {"metal", "mps", "mtl"})
    if (name.find(metal) != std::string::npos) return "metal";
  return name == "tpu" || name == "cpu" ? name : "gpu";
}

class PjrtBackendImpl final : public PjrtBackend {
 public:
  PjrtBackendImpl(std::shared_ptr<Client> client, const ModelConfig& config,
                  std::vector<ParamSpec> targets, const PjrtBackendOptions& options)
      : client_(std::move(client)),
        config_(config),
        specs_(targets),
        options_(options),
        programs_(config, std::move(targets), static_cast<const pjrt::ProgramOptions&>(options)),
        arrays_(static_cast<size_t>(options.devices)) {
    options_.limits.replicas = options.devices;
  }

  Status Start(const Checkpoint& base) {
    NEEDLE_TRY(UploadState(InitialState(base)));
    if (lora()) {
      for (const ParamSpec& spec : TrainingParams(config_))
        NEEDLE_TRY(PutFloats("base/" + spec.path, base.params.at(spec.path)));
      NEEDLE_TRY(Merge(/*all=*/true));
      const std::vector<std::string> kept = programs_.kept_base();
      for (Arrays& device : arrays_)
        for (auto at = device.begin(); at != device.end();) {
          const bool is_base = at->first.rfind("base/", 0) == 0;
          const bool keep = !is_base || std::count(kept.begin(), kept.end(), at->first.substr(5));
          at = keep ? std::next(at) : device.erase(at);
        }
    } else {
      NEEDLE_TRY(Merge(/*all=*/false));
    }
    for (const auto& [name, spec] : programs_.gradients())
      NEEDLE_TRY(Put("grad/" + name, Zeros(spec).data(), spec));
    const float zero = 0;
    NEEDLE_TRY(Put("loss", &zero, {ElementType::kF32, {}}));
    const bool yes = true, no = false;
    NEEDLE_TRY(Put("keep/yes", &yes, {ElementType::kPred, {}}));
    NEEDLE_TRY(Put("keep/no", &no, {ElementType::kPred, {}}));
    return {};
  }

  std::string Name() const override { return PlatformKind(client_->PlatformName()); }
  std::string Description() const override {
    const auto& devices = client_->Devices();
    return StrCat(devices.empty() ? client_->PlatformName() : devices[0].kind,
                  options_.devices > 1 ? StrCat(", ", options_.devices, " devices") : "");
  }

  Result<StepResult> Step(const Forest& batch, const UpdateScalars& scalars) override {
    NEEDLE_TRY(Accumulate(batch));
    const float s[3] = {scalars.lr, scalars.c1, scalars.c2};
    NEEDLE_TRY(Put("scalars", s, {ElementType::kF32, {3}}));
    if (!apply_) NEEDLE_TRY(Compile(programs_.Apply(), &apply_));
    NEEDLE_TRY(Run(*apply_, {}));
    NEEDLE_ASSIGN(const std::vector<float> report, arrays_[0].at("report").Floats());
    return StepResult{report[0], report[1]};
  }

  Result<double> Evaluate(const Forest& batch) override {
    double loss = 0;
    const std::vector<Block> blocks = Blocks(batch, evaluate_);
    NEEDLE_TRY(
        EachShare(blocks, &evaluate_, &pjrt::Programs::Evaluate, [&](size_t first) -> Status {
          (void)first;
          for (Arrays& device : arrays_) {
            NEEDLE_ASSIGN(const std::vector<float> part, device.at("evaluated").Floats());
            loss += part[0];
          }
          return {};
        }));
    return loss;
  }

  std::string ExplainNonFinite(const Forest& batch) override {
    const Result<double> loss = Evaluate(batch);
    if (!loss.ok() || std::isfinite(*loss)) return "";
    return StrCat("the forward on ", Name(), " (with --device cpu its operation is named)");
  }

  Result<TrainState> State() const override {
    TrainState state;
    for (const auto& [name, spec] : programs_.leaves()) {
      NEEDLE_ASSIGN(state.values[name], Download("value/" + name));
      NEEDLE_ASSIGN(state.first_moment[name], Download("first/" + name));
      NEEDLE_ASSIGN(state.second_moment[name], Download("second/" + name));
    }
    return state;
  }

  Status SetState(const TrainState& state) override {
    std::map<std::string, size_t> sizes;
    for (const auto& [name, spec] : programs_.leaves())
      sizes[name] = static_cast<size_t>(spec.elements());
    NEEDLE_TRY(CheckState(state, sizes));
    NEEDLE_TRY(UploadState(state));
    return Merge(/*all=*/false);
  }

  Result<std::map<std::string, LoraPair>> Lora() const override {
    std::map<std::string, LoraPair> out;
    for (size_t i = 0; i < specs_.size() && lora(); ++i) {
      const std::string& path = specs_[i].path;
      NEEDLE_ASSIGN(Tensor a, Trained(path + "/A"));
      NEEDLE_ASSIGN(Tensor b, Trained(path + "/B"));
      out[path] = {std::move(a), std::move(b)};
    }
    return out;
  }

  Result<TensorMap> Params() const override {
    TensorMap out;
    for (size_t i = 0; i < specs_.size() && !lora(); ++i) {
      NEEDLE_ASSIGN(out[specs_[i].path], Trained(specs_[i].path));
    }
    return out;
  }

  PjrtBackendStats Stats() const override { return stats_; }

  Result<std::vector<float>> TargetLogits(const Forest& forest) override {
    // One target row after the other, in the order of the forest's targets.
    const std::vector<Block> blocks = Blocks(forest, logits_);
    const auto V = static_cast<size_t>(config_.vocab_size);
    std::vector<float> out;
    NEEDLE_TRY(EachShare(blocks, &logits_, &pjrt::Programs::Logits, [&](size_t first) -> Status {
      for (size_t d = 0; d < arrays_.size(); ++d) {
        NEEDLE_ASSIGN(const std::vector<float> part, arrays_[d].at("evaluated").Floats());
        const size_t n = blocks[first + d].asked;
        out.insert(out.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(n * V));
      }
      return {};
    }));
    return out;
  }

  Result<std::map<std::string, std::vector<float>>> GradientsOf(const Forest& forest) override {
    NEEDLE_TRY(Accumulate(forest));
    std::map<std::string, std::vector<float>> out;
    for (const auto& named : programs_.gradients()) {
      std::vector<float>& sum = out[named.first];
      for (const Arrays& device : arrays_) {
        NEEDLE_ASSIGN(const std::vector<float> part, device.at("grad/" + named.first).Floats());
        sum.resize(part.size());
        for (size_t i = 0; i < part.size(); ++i) sum[i] += part[i];
      }
    }
    return out;
  }

 private:
  bool lora() const { return options_.trained == TrainedSet::kLora; }

  TrainState InitialState(const Checkpoint& base) const {
    TrainState state;
    if (lora()) {
      const auto factors = InitLora(specs_, options_.lora.rank, options_.lora.seed);
      for (const auto& [path, pair] : factors) {
        state.values[path + "/A"] = pair.a.ToFloats();
        state.values[path + "/B"] = pair.b.ToFloats();
      }
    } else {
      for (const ParamSpec& spec : specs_)
        state.values[spec.path] = base.params.at(spec.path).ToFloats();
    }
    for (const auto& [name, spec] : programs_.leaves())
      state.first_moment[name] = state.second_moment[name] = Zeros(spec);
    return state;
  }

  Status UploadState(const TrainState& state) {
    for (const auto& [name, spec] : programs_.leaves()) {
      NEEDLE_TRY(Put("value/" + name, state.values.at(name).data(), spec));
      NEEDLE_TRY(Put("first/" + name, state.first_moment.at(name).data(), spec));
      NEEDLE_TRY(Put("second/" + name, state.second_moment.at(name).data(), spec));
    }
    return {};
  }

  /// Copies an array to every device, under a name.
  Status Put(const std::string& name, const void* data, const ArraySpec& spec) {
    for (size_t d = 0; d < arrays_.size(); ++d) {
      NEEDLE_ASSIGN(Buffer buffer, client_->Upload(data, spec, static_cast<int>(d)));
      arrays_[d][name] = std::move(buffer);
    }
    return {};
  }
  Status PutFloats(const std::string& name, const Tensor& tensor) {
    return Put(name, tensor.ToFloats().data(), {ElementType::kF32, tensor.shape});
  }

  Result<std::vector<float>> Download(const std::string& name) const {
    return arrays_[0].at(name).Floats();
  }
  Result<Tensor> Trained(const std::string& leaf) const {
    NEEDLE_ASSIGN(const std::vector<float> values, Download("value/" + leaf));
    return Tensor::FromFloats(programs_.leaves().at(leaf).shape, values);
  }

  Status Compile(NamedProgram program, std::optional<Compiled>* to) {
    pjrt::CompileOptions options;
    options.replicas = options_.devices;
    NEEDLE_ASSIGN(Executable executable, client_->Compile(program.program, options));
    ++stats_.programs;
    stats_.compile_seconds += executable.compile_seconds();
    stats_.temp_bytes = std::max(stats_.temp_bytes, executable.Memory().temp_bytes.value_or(0));
    to->emplace(
        Compiled{std::move(executable), std::move(program.inputs), std::move(program.outputs)});
    return {};
  }

  /// `own`: a device's arrays of this call, looked up first. Results are kept under their names.
  Status Run(Compiled& program, const std::vector<Arrays*>& own) {
    std::vector<std::vector<Buffer*>> args(arrays_.size());
    for (size_t d = 0; d < arrays_.size(); ++d)
      for (const std::string& name : program.inputs)
        args[d].push_back(
            Find(name == "keep" ? keep_ : name, own.empty() ? nullptr : own[d], arrays_[d]));
    NEEDLE_ASSIGN(std::vector<std::vector<Buffer>> results, program.executable.Run(args));
    for (size_t d = 0; d < arrays_.size(); ++d)
      for (size_t k = 0; k < program.outputs.size(); ++k)
        arrays_[d][program.outputs[k]] = std::move(results[d][k]);
    return {};
  }

  /// A weight that is used as it is trained has one array only.
  static Buffer* Find(const std::string& name, Arrays* own, Arrays& kept) {
    if (own != nullptr)
      if (const auto at = own->find(name); at != own->end()) return &at->second;
    if (const auto at = kept.find(name); at != kept.end()) return &at->second;
    const auto at = kept.find("value/" + name.substr(name.find('/') + 1));
    assert(name.rfind("used/", 0) == 0 && at != kept.end());
    return &at->second;
  }

  Status Merge(bool all) {
    std::optional<Compiled> program;
    NEEDLE_TRY(Compile(programs_.Merge(all), &program));
    return Run(*program, {});
  }

  Result<Arrays> UploadBlock(const Block& b, int device) {
    const int64_t N = b.shape.total_rows(), P = b.shape.targets;
    Arrays out;
    const auto put = [&](const char* name, const void* data, ElementType type,
                         std::vector<int64_t> shape) -> Status {
      NEEDLE_ASSIGN(out["block/" + std::string(name)],
                    client_->Upload(data, {type, std::move(shape)}, device));
      return {};
    };
    NEEDLE_TRY(put("tokens", b.tokens.data(), ElementType::kS32, {N}));
    NEEDLE_TRY(put("depth", b.depth.data(), ElementType::kS32, {N}));
    NEEDLE_TRY(put("subtree_end", b.subtree_end.data(), ElementType::kS32,
                   {b.shape.groups, b.shape.rows}));
    if (!b.slots.empty()) {
      NEEDLE_TRY(put("conv_rows", b.conv_rows.data(), ElementType::kS32, {kConvTaps - 1, N}));
      NEEDLE_TRY(
          put("slots", b.slots.data(), ElementType::kS32, {static_cast<int64_t>(b.slots.size())}));
    }
    NEEDLE_TRY(put("target_row", b.target_row.data(), ElementType::kS32, {P}));
    NEEDLE_TRY(put("target_id", b.target_id.data(), ElementType::kS32, {P}));
    NEEDLE_TRY(put("target_weight", b.target_weight.data(), ElementType::kF32, {P}));
    return out;
  }

  /// The rotation of positions 0 .. rows - 1, as the CPU computes it.
  Status PutRope(int64_t rows) {
    if (rope_rows_ == rows) return {};
    const RopeTable<float> table(static_cast<size_t>(rows), static_cast<size_t>(config_.HeadDim()),
                                 config_.rope_theta);
    const ArraySpec spec{ElementType::kF32, {rows, config_.HeadDim() / 2}};
    NEEDLE_TRY(Put("rope/cos", table.cos.data(), spec));
    NEEDLE_TRY(Put("rope/sin", table.sin.data(), spec));
    rope_rows_ = rows;
    return {};
  }

  using ByShape = std::map<BlockShape, std::optional<Compiled>>;

  /// Runs one block on each device, until all are done; `done` after each share.
  template <class Done>
  Status EachShare(const std::vector<Block>& blocks, ByShape* compiled,
                   NamedProgram (pjrt::Programs::*write)(const BlockShape&) const,
                   const Done& done) {
    const BlockShape& shape = blocks[0].shape;
    NEEDLE_TRY(PutRope(shape.rows));
    std::optional<Compiled>& program = (*compiled)[shape];
    if (!program) NEEDLE_TRY(Compile((programs_.*write)(shape), &program));
    for (size_t first = 0; first < blocks.size(); first += arrays_.size()) {
      std::vector<Arrays> inputs(arrays_.size());
      std::vector<Arrays*> own;
      for (size_t d = 0; d < arrays_.size(); ++d) {
        NEEDLE_ASSIGN(inputs[d], UploadBlock(blocks[first + d], static_cast<int>(d)));
        own.push_back(&inputs[d]);
      }
      keep_ = first == 0 ? "keep/no" : "keep/yes";  // sums start at the first share
      NEEDLE_TRY(Run(*program, own));
      NEEDLE_TRY(done(first));
    }
    stats_.rows = static_cast<int64_t>(blocks.size()) * shape.total_rows();
    return {};
  }

  std::vector<Block> Blocks(const Forest& batch, const ByShape& compiled) const {
    pjrt::BlockLimits limits = options_.limits;
    for (const auto& named : compiled) limits.existing.push_back(named.first);
    return BlocksOf(batch, config_, limits);
  }

  Status Accumulate(const Forest& batch) {
    return EachShare(Blocks(batch, accumulate_), &accumulate_, &pjrt::Programs::Accumulate,
                     [](size_t) -> Status { return {}; });
  }

  std::shared_ptr<Client> client_;
  ModelConfig config_;
  std::vector<ParamSpec> specs_;  // LoRA targets, or every trained parameter
  PjrtBackendOptions options_;
  pjrt::Programs programs_;
  std::vector<Arrays> arrays_;  // [devices] by name
  ByShape accumulate_, evaluate_, logits_;
  std::optional<Compiled> apply_;
  std::string keep_;  // which array "keep" is
  int64_t rope_rows_ = 0;
  PjrtBackendStats stats_;
};

}  // namespace

Result<std::unique_ptr<PjrtBackend>> MakePjrtBackend(std::shared_ptr<pjrt::Client> client,
                                                     const Checkpoint& base,
                                                     const PjrtBackendOptions& options) {
  const auto found = static_cast<int>(client->Devices().size());
  if (options.devices < 1 || options.devices > found)
    return Error(Code::kInvalidArgument, StrCat(options.devices, " devices are asked for and ",
                                                client->PlatformName(), " has ", found));
  NEEDLE_ASSIGN(std::vector<ParamSpec> specs, TrainedParams(base, options.trained));
  auto backend =
      std::make_unique<PjrtBackendImpl>(std::move(client), base.config, std::move(specs), options);
  NEEDLE_TRY(backend->Start(base));
  return std::unique_ptr<PjrtBackend>(std::move(backend));
}

}  // namespace needle
