#include "model/params.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "base/random.h"

namespace needle {
namespace {

constexpr float kSmallestTarget = 1e-6f;  // a LoRA target below this everywhere is dropped

ParamSpec Kernel(std::string path, Shape shape, Init init = Init::kNormal002) {
  return {.path = std::move(path), .shape = std::move(shape), .init = init, .quantised = true};
}
ParamSpec Table(std::string path, Shape shape) {
  ParamSpec p = Kernel(std::move(path), std::move(shape));
  p.grouped_on_rows = true;
  return p;
}
ParamSpec Plain(std::string path, Shape shape, Init init = Init::kZeros) {
  return {.path = std::move(path), .shape = std::move(shape), .init = init};
}
ParamSpec LoraTarget(ParamSpec p, bool lora) {
  p.lora = lora;
  return p;
}

// One block's leaves; `lead` is [L] for the stack (leaves are stacked over layers), [] for MTP.
std::vector<ParamSpec> BlockParams(const ModelConfig& c, const std::string& at, const Shape& lead) {
  const int64_t D = c.d_model, A = c.AttnDim(), KE = c.KvDim(), E = c.HeadDim();
  const int64_t hada = c.HadamardSize();
  const bool lora = !lead.empty();
  const auto stacked = [&](Shape tail) {
    tail.insert(tail.begin(), lead.begin(), lead.end());
    return tail;
  };
  const std::string attn = at + "self_attn/", mlp = at + "hadamard_mlp/";
  return {
      Plain(at + "ZCRMSNorm_0/scale", stacked({D})),
      Plain(at + "attn_gate", lead),
      Plain(mlp + "d1", stacked({hada}), Init::kOnes),
      Plain(mlp + "d2", stacked({hada}), Init::kOnes),
      Plain(mlp + "d3", stacked({hada}), Init::kD3),
      Plain(at + "post_attn_norm/scale", stacked({D})),
      Plain(at + "pre_hada_norm/scale", stacked({D})),
      LoraTarget(Kernel(attn + "gate_proj/kernel", stacked({D, A})), lora),
      Plain(attn + "k_norm/scale", stacked({E})),
      LoraTarget(Kernel(attn + "k_proj/kernel", stacked({D, KE})), lora),
      LoraTarget(Kernel(attn + "out_proj/kernel", stacked({A, D}), Init::kNormalOut), lora),
      Plain(attn + "q_norm/scale", stacked({E})),
      LoraTarget(Kernel(attn + "q_proj/kernel", stacked({D, A})), lora),
      LoraTarget(Kernel(attn + "v_proj/kernel", stacked({D, KE})), lora),
  };
}

std::vector<ParamSpec> LaneParams(const ModelConfig& c) {
  const int64_t L = c.num_layers, S = c.mhc_lanes, D = c.d_model;
  return {
      Plain("stack/mhc_a_post", {L}, Init::kMhcA),
      Plain("stack/mhc_a_pre", {L}, Init::kMhcA),
      Plain("stack/mhc_a_res", {L}, Init::kMhcA),
      Plain("stack/mhc_b_post", {L, S}),
      Plain("stack/mhc_b_pre", {L, S}),
      Plain("stack/mhc_b_res", {L, S, S}, Init::kIdentity4),
      Kernel("stack/mhc_phi_post", {L, S * D, S}),
      Kernel("stack/mhc_phi_pre", {L, S * D, S}),
      Kernel("stack/mhc_phi_res", {L, S * D, S * S}),
  };
}

std::vector<ParamSpec> EngramParams(const ModelConfig& c, size_t site) {
  const std::string at = StrCat("engrams_", site, "/");
  const int64_t D = c.d_model, G = c.EngramDim();
  return {
      Table(at + "embedding", {c.EngramTables(), c.engram_slots, c.EngramSub()}),
      Kernel(at + "key_proj/kernel", {G, D}),
      Plain(at + "taps", {kConvTaps, D}, Init::kTaps),
      Kernel(at + "value_proj/kernel", {G, D}, Init::kNormalOut),
  };
}

std::vector<ParamSpec> MtpParams(const ModelConfig& c) {
  const int64_t D = c.d_model;
  std::vector<ParamSpec> out = BlockParams(c, "mtp_block/", {});
  out.push_back(Kernel("mtp_combine/kernel", {2 * D, D}));
  out.push_back(Plain("mtp_emb_norm/scale", {D}));
  out.push_back(Plain("mtp_final_norm/scale", {D}));
  return out;
}

// The archive keeps the heads as float16, so they carry no codes.
std::vector<ParamSpec> HeadParams(const ModelConfig& c) {
  const int64_t D = c.d_model;
  const int64_t contrastive = kContrastiveProbes, confidence = kConfidenceProbes;
  const Init normal = Init::kNormal002;
  return {
      Plain("confidence_head/probes", {confidence, D}, normal),
      Plain("confidence_head/proj/bias", {1}),
      Plain("confidence_head/proj/kernel", {confidence * D, 1}, normal),
      Plain("contrastive_head/log_temp", {}, Init::kLogTemp),
      Plain("contrastive_head/probes", {contrastive, D}, normal),
      Plain("contrastive_head/proj/kernel", {contrastive * D, c.contrastive_dim}, normal),
  };
}

void Append(std::vector<ParamSpec> more, bool beside_training, std::vector<ParamSpec>& all) {
  for (ParamSpec& p : more) {
    p.optional = beside_training;
    p.in_training = !beside_training;
    all.push_back(std::move(p));
  }
}

// Leaves that are there together or not at all: "mtp", "confidence_head", "contrastive_head".
std::string GroupOf(const ParamSpec& p) {
  if (!p.optional) return "";
  return p.path.rfind("mtp_", 0) == 0 ? "mtp" : p.path.substr(0, p.path.find('/'));
}

// The groups that a checkpoint has a part of.
std::vector<std::string> PresentGroups(const std::vector<ParamSpec>& specs,
                                       const TensorMap& params) {
  std::vector<std::string> out;
  for (const ParamSpec& p : specs)
    if (p.optional && params.count(p.path)) out.push_back(GroupOf(p));
  return out;
}

bool IsFloating(DType t) {
  return t == DType::kF16 || t == DType::kBF16 || t == DType::kF32 || t == DType::kF64;
}

// FNV-1a: a stable name for the stream of a parameter.
uint64_t HashOf(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char ch : text) hash = (hash ^ static_cast<uint8_t>(ch)) * 0x100000001B3u;
  return hash;
}

// The stream of one parameter: the first words of the seed's key, folded with the path's hash.
std::vector<float> NormalFor(std::string_view path, uint64_t seed, size_t n, float deviation) {
  const JaxKey of_seed = JaxSplit(JaxPrngKey(seed))[1];
  const uint64_t hash = HashOf(path);
  const JaxKey key = {of_seed.hi ^ static_cast<uint32_t>(hash >> 32),
                      of_seed.lo ^ static_cast<uint32_t>(hash)};
  std::vector<float> out = JaxNormal(key, n);
  for (float& v : out) v *= deviation;
  return out;
}

std::vector<float> InitialValues(const ParamSpec& p, const ModelConfig& c, uint64_t seed) {
  const auto n = static_cast<size_t>(ElementCount(p.shape));
  switch (p.init) {
    case Init::kNormal002:
      return NormalFor(p.path, seed, n, 0.02f);
    case Init::kNormalOut:
      return NormalFor(p.path, seed, n, static_cast<float>(0.02 / std::sqrt(2.0 * c.num_layers)));
    case Init::kZeros:
      return std::vector<float>(n, 0.0f);
    case Init::kOnes:
      return std::vector<float>(n, 1.0f);
    case Init::kD3:
      return std::vector<float>(n, 0.02f);
    case Init::kMhcA:
      return std::vector<float>(n, 0.01f);
    case Init::kLogTemp:
      return {static_cast<float>(std::log(0.07))};
    case Init::kTaps: {  // the convolution starts as the identity
      std::vector<float> out(n, 0.0f);
      std::fill_n(out.begin(), c.d_model, 1.0f);
      return out;
    }
    case Init::kIdentity4: {
      std::vector<float> out(n, 0.0f);
      const size_t S = static_cast<size_t>(c.mhc_lanes);
      for (size_t i = 0; i < n; ++i)
        if (i / S % S == i % S) out[i] = 4.0f;
      return out;
    }
  }
  return {};
}

double DoubleAt(const Tensor& t, size_t i) {
  if (t.dtype != DType::kF64) return t.At(i);
  double d;
  std::memcpy(&d, &t.bytes[i * 8], 8);
  return d;
}

void PutDouble(Tensor& t, size_t i, double d) {
  if (t.dtype == DType::kF64)
    std::memcpy(&t.bytes[i * 8], &d, 8);
  else
    t.Put(i, static_cast<float>(d));
}

float Rounded(DType t, float v) {
  if (t == DType::kF16) return F16ToF32(F32ToF16(v));
  if (t == DType::kBF16) return BF16ToF32(F32ToBF16(v));
  return v;
}

// w + v in w's number type: v is rounded to it first. The sum is taken in a type so wide that
// rounding it once more equals rounding the exact sum.
void AddInPlace(Tensor& w, size_t i, float v) {
  PutDouble(w, i, DoubleAt(w, i) + double{Rounded(w.dtype, v)});
}

// W[l] += scale * A[l] B[l]: the product summed in double and rounded to float once.
void AddProduct(const LoraPair& pair, float scale, Tensor& w) {
  const auto L = static_cast<size_t>(w.shape[0]), in = static_cast<size_t>(w.shape[1]);
  const auto out = static_cast<size_t>(w.shape[2]), R = static_cast<size_t>(pair.a.shape[2]);
  const std::vector<float> a = pair.a.ToFloats(), b = pair.b.ToFloats();
  std::vector<double> row(out);
  for (size_t l = 0; l < L; ++l)
    for (size_t i = 0; i < in; ++i) {
      std::fill(row.begin(), row.end(), 0.0);
      for (size_t r = 0; r < R; ++r) {
        const double a_ir = a[(l * in + i) * R + r];
        const float* b_r = &b[(l * R + r) * out];
        for (size_t o = 0; o < out; ++o) row[o] += a_ir * b_r[o];
      }
      for (size_t o = 0; o < out; ++o)
        AddInPlace(w, (l * in + i) * out + o, scale * static_cast<float>(row[o]));
    }
}

Status CheckPair(const std::string& path, const LoraPair& pair, const Shape& w) {
  const bool fits = pair.a.shape.size() == 3 && pair.b.shape.size() == 3 && w.size() == 3 &&
                    pair.a.shape[0] == w[0] && pair.a.shape[1] == w[1] && pair.b.shape[0] == w[0] &&
                    pair.b.shape[2] == w[2] && pair.a.shape[2] == pair.b.shape[1] &&
                    pair.a.shape[2] > 0;
  if (!fits)
    return Error(Code::kInvalidArgument,
                 StrCat("adapter target ", path, " has A ", ToText(pair.a.shape), " and B ",
                        ToText(pair.b.shape), ", which do not fit the base's weight ", ToText(w),
                        "; was it trained on another base?"));
  for (const Tensor* t : {&pair.a, &pair.b}) {
    if (!IsFloating(t->dtype))
      return Error(Code::kInvalidArgument, StrCat("adapter target ", path, " holds ",
                                                  Name(t->dtype), " values; floats are wanted"));
    for (size_t i = 0; i < t->size(); ++i)
      if (!std::isfinite(t->At(i)))
        return Error(Code::kInvalidArgument,
                     StrCat("adapter target ", path, " holds a value that is not finite (element ",
                            i, " of ", t == &pair.a ? "A" : "B", "); its training went wrong"));
  }
  return {};
}

}  // namespace

std::vector<ParamSpec> ModelParams(const ModelConfig& c) {
  std::vector<ParamSpec> all;
  Append(HeadParams(c), /*beside_training=*/true, all);
  Append({Table("embedding/embedding", {c.vocab_size, c.d_model})}, false, all);
  for (size_t s = 0; s < c.engram_layers.size(); ++s) Append(EngramParams(c, s), false, all);
  Append(MtpParams(c), /*beside_training=*/true, all);
  Append({Plain("stack/final_norm/scale", {c.d_model})}, false, all);
  Append(BlockParams(c, "stack/layers/block/", {c.num_layers}), false, all);
  Append(LaneParams(c), false, all);
  std::sort(all.begin(), all.end(),
            [](const ParamSpec& a, const ParamSpec& b) { return a.path < b.path; });
  return all;
}

Status CheckParams(const ModelConfig& config, const TensorMap& params) {
  NEEDLE_TRY(config.Validate());
  const std::vector<ParamSpec> specs = ModelParams(config);
  const std::vector<std::string> groups = PresentGroups(specs, params);
  size_t found = 0;
  for (const ParamSpec& p : specs) {
    const auto at = params.find(p.path);
    if (at == params.end()) {
      const std::string group = GroupOf(p);
      if (p.optional && std::count(groups.begin(), groups.end(), group) == 0) continue;
      return Error(Code::kCorruptFile,
                   StrCat("parameter ", p.path, " ", ToText(p.shape),
                          " is missing; the checkpoint does not hold what its config describes"));
    }
    ++found;
    if (at->second.shape != p.shape)
      return Error(Code::kCorruptFile,
                   StrCat("parameter ", p.path, " has shape ", ToText(at->second.shape),
                          "; the config asks for ", ToText(p.shape)));
    if (!IsFloating(at->second.dtype))
      return Error(Code::kCorruptFile,
                   StrCat("parameter ", p.path, " holds ", Name(at->second.dtype),
                          " values; floats are wanted"));
  }
  if (found == params.size()) return {};
  for (const auto& named : params) {
    const auto same = [&](const ParamSpec& p) { return p.path == named.first; };
    if (std::none_of(specs.begin(), specs.end(), same))
      return Error(Code::kCorruptFile,
                   StrCat("parameter ", named.first, " ", ToText(named.second.shape),
                          " is not part of the model that the config describes"));
  }
  return {};
}

Checkpoint RandomCheckpoint(const ModelConfig& config, uint64_t seed, DType dtype) {
  assert(dtype == DType::kF16 || dtype == DType::kF32);
  Checkpoint out;
  out.config = config;
  out.run_stage = "random";
  for (const ParamSpec& p : ModelParams(config))
    out.params.emplace(p.path,
                       Tensor::FromFloats(p.shape, InitialValues(p, config, seed)).As(dtype));
  return out;
}

std::vector<ParamSpec> TrainingParams(const ModelConfig& config) {
  std::vector<ParamSpec> out;
  for (ParamSpec& p : ModelParams(config))
    if (p.in_training) out.push_back(std::move(p));
  return out;
}

std::vector<ParamSpec> LoraTargets(const Checkpoint& base) {
  std::vector<ParamSpec> out;
  for (ParamSpec& p : ModelParams(base.config)) {
    if (!p.lora) continue;
    const auto at = base.params.find(p.path);
    if (at == base.params.end()) continue;
    const Tensor& w = at->second;
    bool large = false;
    for (size_t i = 0; i < w.size() && !large; ++i) large = std::abs(w.At(i)) > kSmallestTarget;
    if (large) out.push_back(std::move(p));
  }
  return out;
}

Result<Checkpoint> Merge(const Checkpoint& base, const Adapter& adapter) {
  const std::vector<ParamSpec> specs = ModelParams(base.config);
  Checkpoint merged = base;
  for (const auto& named : adapter.lora) {
    const std::string& path = named.first;
    const auto is_target = [&](const ParamSpec& p) { return p.lora && p.path == path; };
    const auto w = merged.params.find(path);
    if (w == merged.params.end() || std::none_of(specs.begin(), specs.end(), is_target))
      return Error(Code::kInvalidArgument,
                   StrCat("adapter target ", path, " is not a weight of this base that can be ",
                          "adapted; was it trained on another base?"));
    NEEDLE_TRY(CheckPair(path, named.second, w->second.shape));
    AddProduct(named.second, static_cast<float>(adapter.scale), w->second);
  }
  return merged;
}

}  // namespace needle
