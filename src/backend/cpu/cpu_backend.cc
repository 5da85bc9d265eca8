#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "exec/executor.h"

namespace needle {
namespace {

constexpr size_t kPerTask = 1 << 14;  // by shape, so that sums do not depend on the threads

/// Every trained value in one vector, leaf after leaf.
struct Leaf {
  std::string name;
  size_t offset = 0, size = 0;
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Checkpoint& base, std::vector<ParamSpec> targets,
             const CpuBackendOptions& options)
      : options_(options),
        config_(base.config),
        specs_(std::move(targets)),
        pool_(options.threads),
        weights_(config_, BestKernels(), TrainedOnly(base), options.numerics, /*backward=*/true,
                 options.trained == TrainedSet::kAll, pool_),
        executor_(weights_, pool_) {
    executor_.set_activation_budget(options.activation_bytes);
    if (options_.trained == TrainedSet::kLora) {
      InitialiseLora();
    } else {
      InitialiseAll();
    }
    grads_.resize(values_.size());
    first_.resize(values_.size());
    second_.resize(values_.size());  // the weights are packed as they are: B of LoRA begins at 0
  }

  std::string Name() const override { return "cpu"; }
  std::string Description() const override {
    return StrCat(needle::Name(weights_.kernels().isa), ", ", pool_.threads(), " thread",
                  pool_.threads() == 1 ? "" : "s");
  }

  Result<StepResult> Step(const Forest& batch, const UpdateScalars& scalars) override {
    std::fill(grads_.begin(), grads_.end(), 0.0f);
    if (all_grads_) ClearAllGradients();
    const GradientSink sink = Sink();
    StepResult result;
    result.loss = executor_.Loss(batch, &sink);
    if (all_grads_) GatherAllGradients();
    result.grad_norm = Norm();
    if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) return result;
    const auto norm = static_cast<float>(result.grad_norm);
    pool_.Run("optimiser", CeilDiv(values_.size(), kPerTask), [&](size_t task, int) {
      const size_t at = task * kPerTask, n = std::min(kPerTask, values_.size() - at);
      weights_.kernels().adamw(options_.adamw, scalars, norm, {&grads_[at], n}, {&values_[at], n},
                               {&first_[at], n}, {&second_[at], n});
    });
    Repack();
    return result;
  }

  Result<double> Evaluate(const Forest& batch) override { return executor_.Loss(batch, nullptr); }

  std::string ExplainNonFinite(const Forest& batch) override {
    return executor_.FirstNonFinite(batch);
  }

  Result<TrainState> State() const override {
    TrainState state;
    for (const Leaf& leaf : leaves_) {
      state.values[leaf.name] = Slice(values_, leaf);
      state.first_moment[leaf.name] = Slice(first_, leaf);
      state.second_moment[leaf.name] = Slice(second_, leaf);
    }
    return state;
  }

  Status SetState(const TrainState& state) override {
    std::map<std::string, size_t> sizes;
    for (const Leaf& leaf : leaves_) sizes[leaf.name] = leaf.size;
    NEEDLE_TRY(CheckState(state, sizes));
    const auto restore = [](const std::vector<float>& from, const Leaf& leaf,
                            std::vector<float>& to) {
      std::copy(from.begin(), from.end(), to.begin() + static_cast<std::ptrdiff_t>(leaf.offset));
    };
    for (const Leaf& leaf : leaves_) {
      restore(state.values.at(leaf.name), leaf, values_);
      restore(state.first_moment.at(leaf.name), leaf, first_);
      restore(state.second_moment.at(leaf.name), leaf, second_);
    }
    Repack();
    return {};
  }

  Result<std::map<std::string, LoraPair>> Lora() const override {
    std::map<std::string, LoraPair> lora;
    for (size_t i = 0; i < specs_.size() && options_.trained == TrainedSet::kLora; ++i) {
      const Shape& w = specs_[i].shape;
      const int64_t R = options_.lora.rank;
      lora[specs_[i].path] = {
          Tensor::FromFloats({w[0], w[1], R}, Slice(values_, leaves_[2 * i])),
          Tensor::FromFloats({w[0], R, w[2]}, Slice(values_, leaves_[2 * i + 1]))};
    }
    return lora;
  }

  Result<TensorMap> Params() const override {
    TensorMap params;
    for (const ParamSpec& spec : specs_)
      if (options_.trained == TrainedSet::kAll)
        params[spec.path] = Tensor::FromFloats(spec.shape, weights_.params().At(spec.path));
    return params;
  }

 private:
  /// The parameters of the training loss; heads and the MTP branch stay out.
  static ParamArrays<float> TrainedOnly(const Checkpoint& base) {
    TensorMap used;
    for (const ParamSpec& spec : TrainingParams(base.config))
      used[spec.path] = base.params.at(spec.path);
    return ParamArrays<float>(used);
  }

  static std::vector<float> Slice(const std::vector<float>& all, const Leaf& leaf) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(leaf.offset);
    return {begin, begin + static_cast<std::ptrdiff_t>(leaf.size)};
  }

  void AddLeaf(std::string name, const std::vector<float>& values) {
    leaves_.push_back({std::move(name), values_.size(), values.size()});
    values_.insert(values_.end(), values.begin(), values.end());
  }

  void InitialiseLora() {
    const auto lora = InitLora(specs_, options_.lora.rank, options_.lora.seed);
    for (const ParamSpec& spec : specs_) {
      AddLeaf(spec.path + "/A", lora.at(spec.path).a.ToFloats());
      AddLeaf(spec.path + "/B", lora.at(spec.path).b.ToFloats());
    }
  }

  void InitialiseAll() {
    for (const ParamSpec& spec : specs_) AddLeaf(spec.path, weights_.params().At(spec.path));
    all_grads_ =
        std::make_unique<ParamArrays<float>>(ParamArrays<float>::ZerosLike(weights_.params()));
    all_view_ = all_grads_->View(config_);
  }

  /// Views of the factors in one of the flat vectors.
  template <class N, class Vector>
  LoraView<N> ViewOf(Vector& flat) const {
    LoraView<N> view;
    view.rank = static_cast<size_t>(options_.lora.rank);
    view.scale = options_.lora.alpha / static_cast<float>(options_.lora.rank);
    const auto L = static_cast<size_t>(config_.num_layers);
    view.a.resize(L);
    view.b.resize(L);
    for (size_t i = 0; i < specs_.size(); ++i)
      for (size_t p = 0; p < kProjections; ++p) {
        if (ProjectionPath(static_cast<Projection>(p)) != specs_[i].path) continue;
        const auto in = static_cast<size_t>(specs_[i].shape[1]);
        const auto out = static_cast<size_t>(specs_[i].shape[2]);
        for (size_t l = 0; l < L; ++l) {
          view.a[l][p] = {flat.data() + leaves_[2 * i].offset + l * in * view.rank, in, view.rank};
          view.b[l][p] = {flat.data() + leaves_[2 * i + 1].offset + l * view.rank * out, view.rank,
                          out};
        }
      }
    return view;
  }

  GradientSink Sink() {
    GradientSink sink;
    if (options_.trained == TrainedSet::kAll) {
      sink.all = &all_view_;
      return sink;
    }
    lora_view_ = ViewOf<const float>(values_);
    lora_grad_view_ = ViewOf<float>(grads_);
    sink.lora = &lora_view_;
    sink.lora_grad = &lora_grad_view_;
    return sink;
  }

  void ClearAllGradients() {
    for (auto& [path, values] : all_grads_->arrays()) std::fill(values.begin(), values.end(), 0.0f);
  }
  void GatherAllGradients() {
    for (const Leaf& leaf : leaves_)
      std::copy_n(all_grads_->At(leaf.name).begin(), leaf.size,
                  grads_.begin() + static_cast<std::ptrdiff_t>(leaf.offset));
  }

  double Norm() {
    std::vector<double> partial(CeilDiv(grads_.size(), kPerTask));
    pool_.Run("optimiser", partial.size(), [&](size_t task, int) {
      const size_t at = task * kPerTask, n = std::min(kPerTask, grads_.size() - at);
      partial[task] = weights_.kernels().sum_squares(&grads_[at], n);
    });
    double sum = 0;
    for (const double p : partial) sum += p;
    return std::sqrt(sum);
  }

  void Repack() {
    if (options_.trained == TrainedSet::kLora) {
      weights_.PackAdapted(ViewOf<const float>(values_), pool_);
      return;
    }
    for (const Leaf& leaf : leaves_)
      std::copy_n(values_.begin() + static_cast<std::ptrdiff_t>(leaf.offset), leaf.size,
                  weights_.params().At(leaf.name).begin());
    weights_.PackAll(pool_);
  }

  CpuBackendOptions options_;
  ModelConfig config_;
  std::vector<ParamSpec> specs_;  // LoRA targets, or every trained parameter
  ThreadPool pool_;
  Weights weights_;
  Executor executor_;
  std::vector<Leaf> leaves_;
  std::vector<float> values_, grads_, first_, second_;
  std::unique_ptr<ParamArrays<float>> all_grads_;
  ModelView<float> all_view_;
  LoraView<const float> lora_view_;
  LoraView<float> lora_grad_view_;
};

}  // namespace

Result<std::unique_ptr<Backend>> MakeCpuBackend(const Checkpoint& base,
                                                const CpuBackendOptions& options) {
  NEEDLE_ASSIGN([[maybe_unused]] const Isa isa, ChooseIsa());
  NEEDLE_ASSIGN(std::vector<ParamSpec> specs, TrainedParams(base, options.trained));
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(base, std::move(specs), options));
}

}  // namespace needle
