// The reference model: equal to upstream's formulas in float64, and its gradients of every
// parameter equal to both witnesses.
#include "model/reference.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "support/mismatch.h"
#include "support/reference_set.h"

namespace needle {
namespace {

using namespace test;  // NOLINT
using Complex = std::complex<double>;

/// A checkpoint in float64.
struct Model {
  explicit Model(const std::string& name)
      : base(ReferenceModel(name)),
        config(base.config),
        params(base.params),
        L(static_cast<size_t>(config.num_layers)),
        D(static_cast<size_t>(config.d_model)) {}
  ModelView<const double> view() const { return params.View(config); }
  ReferenceTape<double> Forward(ReferenceRows rows) const {
    return ReferenceForward<double>(config, view(), std::move(rows));
  }
  Checkpoint base;
  ModelConfig config;
  ParamArrays<double> params;
  size_t L, D;
};

/// Row b of ids [B, T].
std::vector<int32_t> Row(const NpyArray& ids, size_t b) {
  const std::vector<int32_t> all = ids.As<int32_t>();
  const auto T = static_cast<size_t>(ids.shape[1]);
  return {all.begin() + static_cast<long>(b * T), all.begin() + static_cast<long>((b + 1) * T)};
}

ReferenceRows Causal(const std::vector<int32_t>& ids) { return ReferenceRows::Chain(ids, -1); }

/// Upstream's float64 evaluation differs by the order of its sums only.
constexpr double kDouble = 1e-12;
/// Upstream's float32 differs from float64 by 2.5e-7; the bound asked of a float32 port.
constexpr double kFloat = 5e-6;

class ReferenceParity : public testing::TestWithParam<std::string> {};

TEST_P(ReferenceParity, LogitsHiddenStatesAndCellsAreUpstreams) {
  const Model m(GetParam());
  const bool f64 = HasReference(GetParam() + "/forward_f64.npz");
  const Npz want = ReferenceNpz(GetParam() + (f64 ? "/forward_f64.npz" : "/forward.npz"));
  const double allowed = f64 ? kDouble : kFloat;
  const std::vector<int32_t> ids = Row(want.at("ids"), 0);
  const size_t T = ids.size(), V = static_cast<size_t>(m.config.vocab_size);
  const ReferenceTape<double> tape = m.Forward(Causal(ids));
  const std::vector<double> all = want.at("logits").As<double>();
  EXPECT_LE(RelativeMax(ReferenceLogits<double>(m.view(), tape.hidden).values,
                        std::span<const double>(all.data(), T * V)),
            allowed);
  const std::vector<double> hidden = want.at("hidden0").As<double>();
  for (size_t l = 0; l < m.L; ++l) {
    std::vector<double> got;
    for (size_t t = 0; t < T; ++t) {
      const auto cell = tape.cells.view().RowSpan(t * (m.L + 1) + l + 1);
      got.insert(got.end(), cell.begin(), cell.end());
    }
    EXPECT_LE(RelativeMax(got, std::span<const double>(&hidden[l * T * m.D], T * m.D)), allowed)
        << l;
  }
  // The cells are computed with the padding hidden; what padding rows hold is nobody's business.
  const ReferenceTape<double> masked = m.Forward(ReferenceRows::Chain(ids, 0));
  const std::vector<double> cells = want.at("cells0").As<double>();
  std::vector<double> got, wanted;
  for (size_t t = 0; t < T && ids[t] != 0; ++t)
    for (size_t i = t * (m.L + 1) * m.D; i < (t + 1) * (m.L + 1) * m.D; ++i) {
      got.push_back(masked.cells.values[i]);
      wanted.push_back(cells[i]);
    }
  EXPECT_GT(got.size(), 0u);
  EXPECT_LE(RelativeMax(got, wanted), allowed);
}

TEST_P(ReferenceParity, EngramKeysValuesAndSlotsAreUpstreams) {
  if (GetParam() == "plain") return;  // it has no engrams, and upstream wrote no such file
  const Model m(GetParam());
  const Npz want = ReferenceNpz(GetParam() + "/engram.npz");
  const NpyArray ids = ReferenceNpz(GetParam() + "/forward.npz").at("ids");
  const auto B = static_cast<size_t>(ids.shape[0]), T = static_cast<size_t>(ids.shape[1]);
  const auto tables = static_cast<size_t>(m.config.EngramTables());
  const std::vector<double> key = want.at("key").As<double>(),
                            value = want.at("value").As<double>();
  const std::vector<int32_t> indices = want.at("indices").As<int32_t>();
  for (size_t b = 0; b < B; ++b) {
    const ReferenceTape<double> tape = m.Forward(Causal(Row(ids, b)));
    for (size_t s = 0; s < tape.sites.size(); ++s) {
      const auto sequences = static_cast<size_t>(want.at("key").shape[1]);
      const size_t at = (s * sequences + b) * T * m.D;
      const std::span<const double> want_key(&key[at], T * m.D), want_value(&value[at], T * m.D);
      EXPECT_LE(RelativeMax(tape.sites[s].key.values, want_key), kFloat) << b << " " << s;
      EXPECT_LE(RelativeMax(tape.sites[s].val.values, want_value), kFloat) << b << " " << s;
    }
    size_t fit = 0;
    for (size_t i = 0; i < T * tables; ++i) {
      if (tape.slots[i] < 0) continue;  // the n-gram does not fit; upstream multiplies it by zero
      EXPECT_EQ(tape.slots[i], indices[b * T * tables + i]) << i;
      ++fit;
    }
    EXPECT_GT(fit, T * tables * 9 / 10);
  }
}

TEST_P(ReferenceParity, MultiTokenLogitsAreUpstreams) {
  const Model m(GetParam());
  const Npz want = ReferenceNpz(GetParam() + "/mtp.npz");
  const std::vector<int32_t> ids = Row(want.at("ids"), 0);
  const ReferenceTape<double> tape = m.Forward(Causal(ids));
  const MtpTape<double> mtp = MtpForward<double>(m.config, m.view(), tape);
  EXPECT_LE(RelativeMax(ReferenceLogits<double>(m.view(), mtp.hidden).values,
                        want.at("mtp_logits").As<double>()),
            kFloat);
}

TEST_P(ReferenceParity, ProbeHeadsAreUpstreamsUnderEveryMask) {
  if (!HasReference(GetParam() + "/heads.npz")) {
    ASSERT_TRUE(GetParam() == "plain" || GetParam() == "d128");  // checkpoints without heads
    return;
  }
  const Model m(GetParam());
  for (const char* file : {"/heads.npz", "/heads_f64.npz"}) {
    if (!HasReference(GetParam() + file)) continue;
    const Npz want = ReferenceNpz(GetParam() + file);
    const double allowed = std::string(file) == "/heads.npz" ? kFloat : kDouble;
    const std::vector<int32_t> sinks = want.at("sink_len").As<int32_t>();
    const int32_t window = want.at("window").As<int32_t>()[0];
    const auto O = static_cast<size_t>(m.config.contrastive_dim);
    for (const std::string mask : {"plain", "win", "sink"})
      for (size_t b = 0; b < sinks.size(); ++b) {
        const std::vector<int32_t> ids = Row(want.at("ids"), b);
        const ReferenceTape<double> tape = m.Forward(ReferenceRows::Chain(
            ids, 0, mask == "plain" ? 0 : window, mask == "sink" ? sinks[b] : 0));
        const auto keep = KeptCells(tape.rows, 0, m.L);
        const std::span<const bool> kept(keep.get(), tape.cells.rows());
        const std::vector<double> all = want.at("emb_" + mask).As<double>();
        EXPECT_LE(RelativeMax(ContrastiveForward<double>(m.view(), tape.cells, kept),
                              std::span<const double>(&all[b * O], O)),
                  allowed)
            << file << " " << mask << " " << b;
        const double conf = want.at("conf_" + mask).As<double>()[b];
        EXPECT_NEAR(ConfidenceForward<double>(m.view(), tape.cells, kept), conf,
                    allowed * std::abs(conf))
            << file << " " << mask << " " << b;
      }
  }
}

/// W + scale A B for every LoRA target, in float64.
void MergeLora(const Npz& lora, double scale, Model* m) {
  for (const ParamSpec& t : LoraTargets(m->base)) {
    const std::vector<double> a = lora.at(t.path + "/A").As<double>();
    const std::vector<double> b = lora.at(t.path + "/B").As<double>();
    const auto in = static_cast<size_t>(t.shape[1]), out = static_cast<size_t>(t.shape[2]);
    const size_t R = a.size() / (m->L * in);
    std::vector<double>& w = m->params.At(t.path);
    for (size_t l = 0; l < m->L; ++l)
      for (size_t i = 0; i < in; ++i)
        for (size_t o = 0; o < out; ++o)
          for (size_t r = 0; r < R; ++r)
            w[(l * in + i) * out + o] += scale * a[(l * in + i) * R + r] * b[(l * R + r) * out + o];
  }
}

TEST_P(ReferenceParity, LossAndLoraGradientsAreUpstreams) {
  Model m(GetParam());
  const bool f64 = HasReference(GetParam() + "/grads_f64.npz");
  const Npz want = ReferenceNpz(GetParam() + (f64 ? "/grads_f64.npz" : "/grads.npz"));
  const Npz lora = ReferenceNpz(GetParam() + "/lora_init.npz");
  const double scale = want.at("scale").As<double>()[0];
  MergeLora(lora, scale, &m);
  const Batch batch = BatchOf(want.at("ids"), want.at("mask"));
  ParamArrays<double> grads = ParamArrays<double>::ZerosLike(m.params);
  const ModelView<double> g = grads.View(m.config);
  const double loss = ReferenceLoss<double>(m.config, m.view(), batch.Build(Packing::kChain), &g);
  // Weights of targets are float32 (1 / count): 6e-8 each.
  EXPECT_NEAR(loss, want.at("none/loss").As<double>()[0], 2e-7 * loss);
  for (const ParamSpec& t : LoraTargets(m.base)) {  // dA = scale dW B^T, dB = scale A^T dW
    const std::vector<double> a = lora.at(t.path + "/A").As<double>();
    const std::vector<double> b = lora.at(t.path + "/B").As<double>();
    const auto in = static_cast<size_t>(t.shape[1]), out = static_cast<size_t>(t.shape[2]);
    const size_t R = a.size() / (m.L * in);
    std::vector<double> da(a.size()), db(b.size());
    const std::vector<double>& dw = grads.At(t.path);
    for (size_t l = 0; l < m.L; ++l)
      for (size_t i = 0; i < in; ++i)
        for (size_t o = 0; o < out; ++o)
          for (size_t r = 0; r < R; ++r) {
            da[(l * in + i) * R + r] +=
                scale * dw[(l * in + i) * out + o] * b[(l * R + r) * out + o];
            db[(l * R + r) * out + o] +=
                scale * dw[(l * in + i) * out + o] * a[(l * in + i) * R + r];
          }
    const double allowed = f64 ? 2e-7 : 1e-5;  // as above; float32 upstream has 7e-7 of its own
    EXPECT_LE(RelativeL2(da, want.at("none/" + t.path + "/A").As<double>()), allowed) << t.path;
    EXPECT_LE(RelativeL2(db, want.at("none/" + t.path + "/B").As<double>()), allowed) << t.path;
  }
}

INSTANTIATE_TEST_SUITE_P(Reference, ReferenceParity,
                         testing::Values("tiny", "alt", "plain", "d128"),
                         [](const auto& test) { return test.param; });

/// A small tree: three examples that share beginnings, with several targets on a row.
Forest SmallTree(const ModelConfig& c) {
  std::vector<std::vector<int32_t>> ids = {{2, 9, 40, 41, 42, 43, 44, 50, 51, 52, 53, 54, 55},
                                           {2, 9, 40, 41, 42, 43, 44, 50, 60, 61, 62},
                                           {2, 9, 40, 41, 70, 71, 72, 73, 9, 40}};
  std::vector<std::vector<float>> weights;
  std::vector<Sequence> batch;
  for (auto& row : ids) {
    for (int32_t& id : row) id %= c.vocab_size;
    weights.emplace_back(row.size(), 1.0f);
    std::fill_n(weights.back().begin(), 4, 0.0f);
  }
  for (size_t i = 0; i < ids.size(); ++i) batch.push_back({ids[i], weights[i]});
  return BuildForest(batch, Packing::kTree, 22);
}

struct TrainingLoss {
  static constexpr bool kHeads = false;
  template <class N>
  static N Of(const ModelConfig& c, const ModelView<const N>& w, const ModelView<N>* g) {
    return ReferenceLoss<N>(c, w, SmallTree(c), g);
  }
};

/// MTP cross-entropy plus a direction of the embedding plus the confidence: reaches every leaf that
/// the training loss does not, and the stack through hidden states and cells.
struct HeadsLoss {
  static constexpr bool kHeads = true;
  template <class N>
  static N Of(const ModelConfig& c, const ModelView<const N>& w, const ModelView<N>* g) {
    const std::vector<int32_t> ids = {2, 9, 40, 41, 42, 43, 44, 50, 51, 52, 53, 54, 55, 0, 0};
    const ReferenceTape<N> tape =
        ReferenceForward<N>(c, w, ReferenceRows::Chain(ids, c.pad_token_id, 13, 2));
    const MtpTape<N> mtp = MtpForward<N>(c, w, tape);
    Matrix<N> logits = ReferenceLogits<N>(w, mtp.hidden);
    N loss{};
    for (size_t t = 0; t < ids.size(); ++t) {
      const bool counts = t + 4 < ids.size();
      const int32_t target = counts ? ids[t + 2] : 0;
      const float weight = 0.1f;
      loss += CrossEntropyRow<N>(logits.view().RowSpan(t), {&target, counts ? 1u : 0u},
                                 {&weight, counts ? 1u : 0u});
    }
    const auto keep = KeptCells(tape.rows, c.pad_token_id, w.blocks.size());
    const std::span<const bool> kept(keep.get(), tape.cells.rows());
    const std::vector<N> embedding = ContrastiveForward<N>(w, tape.cells, kept);
    std::vector<N> direction(embedding.size());
    for (size_t i = 0; i < direction.size(); ++i) {
      direction[i] = N(std::cos(1.0 + static_cast<double>(i)));
      loss += direction[i] * embedding[i];
    }
    const N slope(0.7);
    loss += slope * ConfidenceForward<N>(w, tape.cells, kept);
    if (!g) return loss;
    Matrix<N> dcells(tape.cells.rows(), tape.cells.cols());
    ContrastiveBackward<N>(w, tape.cells, kept, direction, dcells, *g);
    ConfidenceBackward<N>(w, tape.cells, kept, slope, dcells, *g);
    const Matrix<N> dhidden =
        MtpBackward<N>(c, w, tape, mtp, ReferenceLogitsBackward<N>(w, mtp.hidden, logits, *g), *g);
    ReferenceBackward<N>(c, w, tape, dhidden, dcells, *g);
    return loss;
  }
};

template <class Loss>
void ExpectEveryGradientMatchesBothWitnesses(const std::string& name) {
  Model m(name);
  ParamArrays<double> grads = ParamArrays<double>::ZerosLike(m.params);
  const ModelView<double> g = grads.View(m.config);
  Loss::template Of<double>(m.config, m.view(), &g);
  const auto value = [&] { return Loss::template Of<double>(m.config, m.view(), nullptr); };
  ParamArrays<Complex> complex(m.base.params);
  const auto complex_value = [&] {
    const ModelView<const Complex> w = std::as_const(complex).View(m.config);
    return Loss::template Of<Complex>(m.config, w, nullptr);
  };
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;
  size_t seen = 0;
  for (const ParamSpec& spec : ModelParams(m.config)) {
    const std::vector<double>& got = grads.At(spec.path);
    std::vector<double>& at = m.params.At(spec.path);
    const auto largest = static_cast<size_t>(
        std::max_element(got.begin(), got.end(),
                         [](double a, double b) { return std::abs(a) < std::abs(b); }) -
        got.begin());
    const bool reached =
        spec.path != "contrastive_head/log_temp" && (Loss::kHeads || spec.in_training);
    EXPECT_EQ(got[largest] != 0, reached) << spec.path;
    if (!reached) continue;
    ++seen;
    // The whole leaf along a random direction: exact by the complex step.
    std::vector<Complex>& z = complex.At(spec.path);
    const std::vector<Complex> kept_z = z;
    constexpr double kStep = 1e-40;
    double along = 0;
    std::vector<double> direction(got.size());
    for (size_t i = 0; i < got.size(); ++i) {
      direction[i] = normal(random);
      along += direction[i] * got[i];
      z[i] += Complex(0, kStep * direction[i]);
    }
    double norm = 0;
    for (const double x : got) norm += x * x;
    EXPECT_NEAR(along, complex_value().imag() / kStep, 1e-11 * std::sqrt(norm)) << spec.path;
    z = kept_z;
    // The same direction and several entries by the difference: independent.
    const std::vector<double> kept = at;
    const auto difference = [&](const std::vector<std::pair<size_t, double>>& d, double h) {
      const auto moved = [&](double by) {
        for (const auto& [i, x] : d) at[i] = kept[i] + by * x;
        const double y = value();
        for (const auto& [i, x] : d) at[i] = kept[i];
        return y;
      };
      return (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h);
    };
    std::vector<std::pair<size_t, double>> whole;
    for (size_t i = 0; i < got.size(); ++i)
      whole.emplace_back(i, direction[i] / std::sqrt(static_cast<double>(got.size())));
    EXPECT_NEAR(along / std::sqrt(static_cast<double>(got.size())), difference(whole, 1e-3),
                1e-6 * std::sqrt(norm) + 1e-9)
        << spec.path;
    std::vector<size_t> entries = {largest};
    for (int i = 0; i < 3; ++i) entries.push_back(random() % got.size());
    for (const size_t i : entries)
      EXPECT_NEAR(got[i], difference({{i, 1.0}}, 1e-3), 1e-6 * std::abs(got[largest]) + 1e-9)
          << spec.path << " entry " << i;
  }
  EXPECT_GT(seen, 20u);
}

TEST(ReferenceGradients, EveryParameterOfTheTrainingLossOnTiny) {
  ExpectEveryGradientMatchesBothWitnesses<TrainingLoss>("tiny");
}
TEST(ReferenceGradients, EveryParameterOfTheTrainingLossOnAlt) {
  ExpectEveryGradientMatchesBothWitnesses<TrainingLoss>("alt");
}
TEST(ReferenceGradients, EveryParameterOfTheHeadsAndTheMultiTokenBranchOnTiny) {
  ExpectEveryGradientMatchesBothWitnesses<HeadsLoss>("tiny");
}
TEST(ReferenceGradients, EveryParameterOfTheHeadsAndTheMultiTokenBranchOnAlt) {
  ExpectEveryGradientMatchesBothWitnesses<HeadsLoss>("alt");
}

}  // namespace
}  // namespace needle
