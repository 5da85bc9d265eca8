#include "backend/pjrt/programs.h"

#include <algorithm>
#include <cmath>

#include "backend/pjrt/hlo/gradient.h"
#include "backend/pjrt/hlo/scan.h"
#include "backend/pjrt/pieces.h"
#include "ops/lanes.h"

namespace needle::pjrt {

using namespace hlo;  // NOLINT: the builder's vocabulary

namespace {

const std::string kBlockPath = "stack/layers/block/";
const std::string kAttn = kBlockPath + "self_attn/";
/// The projections that share their input, in the order of their columns.
const std::vector<std::string> kFused = {kAttn + "q_proj/kernel", kAttn + "k_proj/kernel",
                                         kAttn + "v_proj/kernel", kAttn + "gate_proj/kernel"};
const std::string kOut = kAttn + "out_proj/kernel";
const std::vector<std::string> kPhi = {"stack/mhc_phi_pre", "stack/mhc_phi_post",
                                       "stack/mhc_phi_res"};

bool Contains(const std::vector<std::string>& list, const std::string& s) {
  return std::find(list.begin(), list.end(), s) != list.end();
}

ArraySpec Floats(const Shape& shape) { return {DType::kF32, shape}; }

/// Leaves side by side along the last axis.
ArraySpec Joined(const std::vector<std::string>& paths, const std::vector<ParamSpec>& all) {
  ArraySpec out;
  for (const std::string& path : paths)
    for (const ParamSpec& spec : all) {
      if (spec.path != path) continue;
      if (out.shape.empty()) {
        out = Floats(spec.shape);
      } else {
        out.shape.back() += spec.shape.back();
      }
    }
  return out;
}

Dims Widths(const std::vector<std::string>& paths, const std::vector<ParamSpec>& all) {
  Dims out;
  for (const std::string& path : paths) out.push_back(Joined({path}, all).shape.back());
  return out;
}

}  // namespace

// ------------------------------------------------------------------ weights as used

/// From parameters to the weights that the forward reads.
class Programs::Weights {
 public:
  Weights(const Programs& p, Graph& g) : p_(p), g_(g) {}

  /// `source`: base/<path>, or value/<path> when all is trained; `factors`: value/<path>/A, /B.
  Value Used(const std::string& name, const NamedValues& source, const NamedValues& factors) {
    if (name == "qkvg") return JoinedUsed(kFused, source, factors);
    if (name == "phi") return JoinedUsed(kPhi, source, factors);
    return OneUsed(name, source, factors);
  }

  /// The parameters that `name` is made of.
  static std::vector<std::string> PathsOf(const std::string& name) {
    if (name == "qkvg") return kFused;
    if (name == "phi") return kPhi;
    return {name};
  }

 private:
  Value JoinedUsed(const std::vector<std::string>& paths, const NamedValues& source,
                   const NamedValues& factors) {
    Values parts;
    for (const std::string& path : paths) parts.push_back(OneUsed(path, source, factors));
    return Concatenate(parts, static_cast<int64_t>(parts[0].rank()) - 1);
  }

  Value OneUsed(const std::string& path, const NamedValues& source, const NamedValues& factors) {
    Value w = source.at(path);
    if (factors.count(path + "/A")) {
      const double scale = double{p_.options_.lora.alpha} / p_.options_.lora.rank;
      const Value product =
          Dot(factors.at(path + "/A"), factors.at(path + "/B"), {0}, {0}, {2}, {1});
      w = w + product * scale;
    }
    const ParamSpec& spec = p_.Spec(path);
    const Numerics& numerics = p_.options_.numerics;
    if (!numerics.quantise_weights || !spec.quantised) return w;
    const auto group = static_cast<int64_t>(kGroup);
    if (!hadamard_) hadamard_ = HadamardMatrix(g_, group);
    const Bits bits = numerics.bits.For(path);
    return spec.grouped_on_rows ? CodebookRows(w, bits, group, hadamard_)
                                : CodebookColumns(w, bits, group, hadamard_);
  }

  const Programs& p_;
  Graph& g_;
  Value hadamard_;
};

// ------------------------------------------------------------------ the forward

/// The network over one block. Everything that a layer reads is stacked or invariant, by name.
class Programs::Forward {
 public:
  Forward(const Programs& p, Graph& g, const BlockShape& shape, bool differentiable)
      : p_(p), c_(p.config_), g_(g), shape_(shape), differentiable_(differentiable) {
    DeclareWeights();
    if (p.lora() && differentiable)
      for (const auto& [name, type] : p.leaves_) value_[name] = g.Parameter(type, "value/" + name);
    DeclareBlock();
  }

  /// Rows that continue what the caches hold.
  Forward(const Programs& p, Graph& g, const AppendShape& shape)
      : p_(p), c_(p.config_), g_(g), shape_{1, shape.rows, 1}, capacity_(shape.capacity) {
    DeclareWeights();
    DeclareRows();
    const int64_t L = c_.num_layers, K = c_.num_kv_heads;
    const Type keys{DType::kF32, {L, K, capacity_, c_.HeadDim()}};
    cache_["k"] = g.Parameter(keys, "cache/k");
    cache_["v"] = g.Parameter(keys, "cache/v");
    const auto sites = static_cast<int64_t>(c_.engram_layers.size());
    if (sites > 0)
      cache_["val"] = g.Parameter({DType::kF32, {sites, capacity_, c_.d_model}}, "cache/val");
  }

  /// The caches, after Logits.
  const NamedValues& Caches() const { return cache_; }

  /// Values whose gradient is wanted, by the names of Programs::gradients().
  NamedValues Trained() const { return p_.lora() ? value_ : used_; }

  Value Logits() {
    Values lanes = Stack();
    const double S = static_cast<double>(lanes.size());
    Value mean;
    for (const Value& x : lanes) {
      const Value rows = GatherRows(x, block_.at("target_row"));
      mean = mean ? mean + rows : rows;
    }
    Value hidden = RmsNorm(mean / S, used_.at("stack/final_norm/scale"));
    hidden = Activations(hidden);
    return Dot(hidden, used_.at("embedding/embedding"), {}, {}, {1}, {1});
  }

  Value Loss() {
    return CrossEntropy(Logits(), block_.at("target_id"), block_.at("target_weight"));
  }

 private:
  int64_t N() const { return shape_.total_rows(); }
  Value Activations(Value x) const {
    const int bits = p_.options_.numerics.act_bits;
    return bits ? FakeQuantise(x, bits) : x;
  }

  void DeclareWeights() {
    for (const auto& [name, type] : p_.used_) used_[name] = g_.Parameter(type, "used/" + name);
  }

  void DeclareRows() {
    const Type row{DType::kS32, {N()}}, scalar{DType::kS32, {}};
    block_["tokens"] = g_.Parameter(row, "block/tokens");
    block_["start"] = g_.Parameter(scalar, "block/start");
    if (!c_.engram_layers.empty()) {
      block_["conv_rows"] = g_.Parameter({DType::kS32, {kConvTaps - 1, N()}}, "block/conv_rows");
      block_["slots"] = g_.Parameter({DType::kS32, {N() * c_.EngramTables()}}, "block/slots");
    }
    block_["target_row"] = g_.Parameter({DType::kS32, {1}}, "block/last");
    block_["depth"] = Iota(g_, row, 0) + BroadcastFront(block_["start"], row.shape);
    DeclareRope(capacity_);
  }

  void DeclareRope(int64_t positions) {
    const Type table{DType::kF32, {positions, c_.HeadDim() / 2}};
    rope_cos_ = g_.Parameter(table, "rope/cos");
    rope_sin_ = g_.Parameter(table, "rope/sin");
  }

  void DeclareBlock() {
    const auto declare = [&](const std::string& name, DType dtype, const Dims& dims) {
      block_[name] = g_.Parameter({dtype, dims}, "block/" + name);
    };
    declare("tokens", DType::kS32, {N()});
    declare("depth", DType::kS32, {N()});
    declare("subtree_end", DType::kS32, {shape_.groups, shape_.rows});
    if (!c_.engram_layers.empty()) {
      declare("conv_rows", DType::kS32, {kConvTaps - 1, N()});
      declare("slots", DType::kS32, {N() * c_.EngramTables()});
    }
    declare("target_row", DType::kS32, {shape_.targets});
    declare("target_id", DType::kS32, {shape_.targets});
    declare("target_weight", DType::kF32, {shape_.targets});
    DeclareRope(shape_.rows);
  }

  /// Rows of x [n, ...] at `index` [m]; zeros where it is -1.
  Value RowsOrZeros(Value x, Value index) {
    const Value zero = Zeros(g_, index.type());
    const Value rows = GatherRows(x, Maximum(index, zero));
    const Value there = Convert(Compare(index, "GE", zero), DType::kF32);
    return rows * Broadcast(there, rows.shape(), {0});
  }

  /// Keys and convolved values of one n-gram memory. [N, D]
  std::pair<Value, Value> Memory(size_t site) {
    const std::string at = "engrams_" + std::to_string(site) + "/";
    const int64_t tables = c_.EngramTables();
    const Value joint =
        Reshape(used_.at(at + "embedding"), {tables * c_.engram_slots, c_.EngramSub()});
    const Value e =
        Activations(Reshape(RowsOrZeros(joint, block_.at("slots")), {N(), c_.EngramDim()}));
    const Value key = MatMul(e, used_.at(at + "key_proj/kernel"));
    const Value raw = MatMul(e, used_.at(at + "value_proj/kernel"));
    const Values taps = Split(used_.at(at + "taps"), 0, Dims(kConvTaps, 1));
    const auto tap = [&](size_t k, Value x) {
      return x * Broadcast(Reshape(taps[k], {c_.d_model}), x.shape(), {1});
    };
    const Value earlier = capacity_ > 0 ? Remember(site, raw) : raw;
    Value val = tap(0, raw);
    for (size_t k = 1; k < kConvTaps; ++k) {
      const auto i = static_cast<int64_t>(k) - 1;
      const Value rows = Reshape(SliceDim(block_.at("conv_rows"), 0, i, i + 1), {N()});
      val = val + tap(k, RowsOrZeros(earlier, rows));
    }
    return {key, val};
  }

  /// Puts values into the cache of a memory; all that it holds. [capacity, D]
  Value Remember(size_t site, Value raw) {
    const Value zero = Scalar(g_, 0, DType::kS32);
    const auto s = static_cast<int64_t>(site);
    Value& all = cache_.at("val");
    all = DynamicUpdateSlice(
        all, Reshape(raw, {1, N(), c_.d_model}),
        {Scalar(g_, static_cast<double>(s), DType::kS32), block_.at("start"), zero});
    return Reshape(SliceDim(all, 0, s, s + 1), {capacity_, c_.d_model});
  }

  /// a and b of the lane coefficients, side by side as the columns of phi. [L, C]
  Value LaneScales() {
    const int64_t L = c_.num_layers, S = c_.mhc_lanes;
    return Concatenate({BroadcastBack(used_.at("stack/mhc_a_pre"), {S}),
                        BroadcastBack(used_.at("stack/mhc_a_post"), {S}),
                        Reshape(BroadcastBack(used_.at("stack/mhc_a_res"), {S * S}), {L, S * S})},
                       1);
  }
  Value LaneOffsets() {
    const int64_t L = c_.num_layers, S = c_.mhc_lanes;
    const Value b = Concatenate({used_.at("stack/mhc_b_pre"), used_.at("stack/mhc_b_post"),
                                 Reshape(used_.at("stack/mhc_b_res"), {L, S * S})},
                                1);
    std::vector<double> own;  // the layer's own lane is read and written, the others hardly
    for (int64_t l = 0; l < L; ++l)
      for (int64_t column = 0; column < 2 * S + S * S; ++column) {
        const bool is_own = column % S == l % S;
        own.push_back(column < S ? (is_own ? 4 : -4) : column < 2 * S ? (is_own ? 0 : -4) : 0);
      }
    return b + Constant(g_, own, b.type());
  }

  ScanInputs LayerInputs() {
    ScanInputs in;
    const auto stack = [&](const std::string& name, const std::string& path) {
      in.stacked[name] = used_.at(path);
    };
    stack("norm_in", kBlockPath + "ZCRMSNorm_0/scale");
    stack("qkvg", "qkvg");
    stack("q_norm", kAttn + "q_norm/scale");
    stack("k_norm", kAttn + "k_norm/scale");
    stack("out", kOut);
    stack("post_norm", kBlockPath + "post_attn_norm/scale");
    stack("attn_gate", kBlockPath + "attn_gate");
    stack("pre_hada", kBlockPath + "pre_hada_norm/scale");
    for (const char* d : {"d1", "d2", "d3"}) stack(d, kBlockPath + "hadamard_mlp/" + d);
    stack("phi", "phi");
    in.stacked["lane_scale"] = LaneScales();
    in.stacked["lane_offset"] = LaneOffsets();
    if (differentiable_) {
      if (p_.lora()) {
        for (const auto& [name, factor] : value_) in.stacked[name] = factor;
        for (const auto& named : value_) in.trained.push_back(named.first);
      } else {
        for (const auto& named : in.stacked) in.trained.push_back(named.first);
      }
    }
    AddMemories(&in);
    in.invariant["hadamard"] = HadamardMatrix(g_, c_.HadamardSize());
    in.invariant["cos"] = GatherRows(rope_cos_, block_.at("depth"));
    in.invariant["sin"] = GatherRows(rope_sin_, block_.at("depth"));
    if (capacity_ > 0) {
      in.invariant["visible"] = CacheMask();
      in.invariant["start"] = block_.at("start");
      in.stacked["layer"] = Iota(g_, {DType::kS32, {c_.num_layers}}, 0);
    } else {
      const Value ends = block_.at("subtree_end");
      in.invariant["visible"] =
          p_.options_.attention == Attention::kPlain ? VisibilityMask(ends) : ends;
    }
    if (p_.options_.numerics.kv_bits != Bits::kNone)
      in.invariant["kv_hadamard"] = HadamardMatrix(g_, static_cast<int64_t>(kKvGroup));
    return in;
  }

  /// Row start + i sees every row of the cache up to itself. [1, rows, capacity]
  Value CacheMask() const {
    const Dims shape = {1, N(), capacity_};
    const Value row = Broadcast(block_.at("depth"), shape, {1});
    return AdditiveMask(Compare(Iota(g_, {DType::kS32, shape}, 2), "LE", row));
  }

  /// All layers run the same body, as upstream does it: those without a memory have flag 0.
  void AddMemories(ScanInputs* in) {
    if (c_.engram_layers.empty()) return;
    Values keys, vals;
    for (size_t s = 0; s < c_.engram_layers.size(); ++s) {
      const auto [key, val] = Memory(s);
      keys.push_back(Reshape(key, {1, N(), c_.d_model}));
      vals.push_back(Reshape(val, {1, N(), c_.d_model}));
    }
    std::vector<double> site, flag;
    for (int l = 0; l < c_.num_layers; ++l) {
      site.push_back(std::max(c_.SiteOf(l), 0));
      flag.push_back(c_.SiteOf(l) >= 0 ? 1 : 0);
    }
    in->stacked["site"] = Constant(g_, site, {DType::kS32, {c_.num_layers}});
    in->stacked["flag"] = Constant(g_, flag, {DType::kF32, {c_.num_layers}});
    in->invariant["keys"] = Concatenate(keys, 0);
    in->invariant["vals"] = Concatenate(vals, 0);
    if (differentiable_ && !p_.lora()) {
      in->trained.push_back("keys");
      in->trained.push_back("vals");
    }
  }

  /// The lanes after all layers. S of [N, D]
  Values Stack() {
    const Value rows = GatherRows(used_.at("embedding/embedding"), block_.at("tokens"));
    const Value x0 = rows * static_cast<double>(std::sqrt(static_cast<float>(c_.d_model)));
    ScanInputs in = LayerInputs();
    const auto S = static_cast<size_t>(c_.mhc_lanes);
    in.carried = Values(S, x0);
    if (capacity_ > 0) in.carried.insert(in.carried.end(), {cache_.at("k"), cache_.at("v")});
    ScanOptions options;
    options.unroll = p_.options_.unroll;
    options.remat = p_.options_.remat;
    options.differentiable = differentiable_;
    Values out = Scan(
        g_, c_.num_layers, in,
        [this, S](Graph&, const Values& carried, const NamedValues& w, const NamedValues& fixed) {
          Cache cache;
          if (capacity_ > 0) cache = {carried[S], carried[S + 1]};
          const Values lanes(carried.begin(), carried.begin() + static_cast<std::ptrdiff_t>(S));
          Values next = Layer(lanes, w, fixed, &cache);
          if (capacity_ > 0) next.insert(next.end(), {cache.k, cache.v});
          return next;
        },
        options);
    if (capacity_ > 0) {
      cache_["k"] = out[S];
      cache_["v"] = out[S + 1];
      out.resize(S);
    }
    return out;
  }

  struct Cache {
    Value k, v;  // of all layers [L, K, capacity, E]; no value: attention inside the block
  };

  struct Mixing {
    Values pre, post;  // S of [N]
    Values res;        // S * S of [N], row major
  };

  /// The columns of [rows, N] as vectors.
  static Values Vectors(Value x) {
    Values out = Split(x, 0, Dims(static_cast<size_t>(x.dim(0)), 1));
    for (Value& v : out) v = Reshape(v, {v.dim(1)});
    return out;
  }

  Mixing Coefficients(const Values& lanes, const NamedValues& w) const {
    const int64_t S = c_.mhc_lanes, rows = N();
    const Values phi = Split(w.at("phi"), 0, Dims(static_cast<size_t>(S), c_.d_model));
    Value r;
    for (size_t i = 0; i < lanes.size(); ++i) {
      const Value part = MatMul(lanes[i], phi[i]);
      r = r ? r + part : part;
    }
    r = r * BroadcastBack(InverseRms(lanes), {r.dim(1)});
    r = r * Broadcast(w.at("lane_scale"), r.shape(), {1}) +
        Broadcast(w.at("lane_offset"), r.shape(), {1});
    const Values parts = Split(Transpose(r, {1, 0}), 0, {S, S, S * S});
    const Value res = Sinkhorn(Reshape(parts[2], {S, S, rows}), differentiable_);
    return {Vectors(Logistic(parts[0])), Vectors(Logistic(parts[1]) * 2.0),
            Vectors(Reshape(res, {S * S, rows}))};
  }

  static Value Times(Value each, Value x) { return BroadcastBack(each, {x.dim(1)}) * x; }

  Values Layer(const Values& lanes, const NamedValues& w, const NamedValues& fixed,
               Cache* cache) const {
    const Mixing mix = Coefficients(lanes, w);
    const size_t S = lanes.size();
    Value u;
    for (size_t i = 0; i < S; ++i) {
      const Value part = Times(mix.pre[i], lanes[i]);
      u = u ? u + part : part;
    }
    const Value y = BlockOf(WithMemory(u, w, fixed), w, fixed, cache) - u;
    Values next;
    for (size_t i = 0; i < S; ++i) {
      Value sum;
      for (size_t j = 0; j < S; ++j) {
        const Value part = Times(mix.res[i * S + j], lanes[j]);
        sum = sum ? sum + part : part;
      }
      next.push_back(sum + Times(mix.post[i], y));
    }
    return next;
  }

  /// u + alpha * val' where the layer has a memory.
  Value WithMemory(Value u, const NamedValues& w, const NamedValues& fixed) const {
    if (!fixed.count("keys")) return u;
    const Value key = Row(fixed.at("keys"), w.at("site"));
    const Value val = Row(fixed.at("vals"), w.at("site"));
    const double root = std::sqrt(static_cast<double>(c_.d_model));
    const Value along = ReduceAdd(u * key, {1}) * InverseRms({u}) * InverseRms({key}) / root;
    const Value alpha = Logistic(along) * BroadcastBack(w.at("flag"), {N()});
    return u + Times(alpha, val);
  }

  Value BlockOf(Value u1, const NamedValues& w, const NamedValues& fixed, Cache* cache) const {
    const Value h = Activations(RmsNorm(u1, w.at("norm_in")));
    const int64_t A = c_.AttnDim(), KE = c_.KvDim();
    const Values parts = Split(Product(h, w, "qkvg", kFused), 1, {A, KE, KE, A});
    const Value att = Attend(parts[0], parts[1], parts[2], w, fixed, cache);
    const Value gated = Activations(att * Logistic(parts[3]));
    const Value n = RmsNorm(Product(gated, w, "out", {kOut}), w.at("post_norm"));
    const Value gate = BroadcastBack(Logistic(w.at("attn_gate")), n.shape());
    const Value x = u1 + gate * n;
    return x + HadamardMlp(RmsNorm(x, w.at("pre_hada")), w.at("d1"), w.at("d2"), w.at("d3"),
                           fixed.at("hadamard"));
  }

  /// x times the weight `name`, whose columns are those of `paths` side by side.
  Value Product(Value x, const NamedValues& w, const std::string& name,
                const std::vector<std::string>& paths) const {
    std::vector<LoraColumns> lora;
    const Dims widths = Widths(paths, p_.all_);
    int64_t first = 0;
    for (size_t i = 0; i < paths.size(); ++i) {
      if (w.count(paths[i] + "/A"))
        lora.push_back({w.at(paths[i] + "/A"), w.at(paths[i] + "/B"), first, widths[i]});
      first += widths[i];
    }
    if (!p_.lora()) return MatMul(x, w.at(name));
    const double scale = double{p_.options_.lora.alpha} / p_.options_.lora.rank;
    return LoraProduct(x, w.at(name), lora, scale);
  }

  /// [N, heads * E] -> normed and rotated [N, heads, E].
  Value Heads(Value x, Value norm, const NamedValues& fixed) const {
    const int64_t E = c_.HeadDim();
    const Value heads = Reshape(x, {N(), x.dim(1) / E, E});
    return Rope(RmsNorm(heads, norm), fixed.at("cos"), fixed.at("sin"));
  }

  Value Attend(Value q, Value k, Value v, const NamedValues& w, const NamedValues& fixed,
               Cache* cache) const {
    const int64_t G = shape_.groups, T = shape_.rows, K = c_.num_kv_heads, E = c_.HeadDim();
    const int64_t M = c_.num_heads / K;
    q = Heads(q, w.at("q_norm"), fixed);
    k = Heads(k, w.at("k_norm"), fixed);
    v = Reshape(v, {N(), K, E});
    if (const Bits bits = p_.options_.numerics.kv_bits; bits != Bits::kNone) {
      const auto group = static_cast<int64_t>(kKvGroup);
      k = CodebookRows(k, bits, group, fixed.at("kv_hadamard"));
      v = CodebookRows(v, bits, group, fixed.at("kv_hadamard"));
    }
    const double scale = 1.0 / std::sqrt(static_cast<double>(E));
    const Value queries = Transpose(Reshape(q * scale, {G, T, K, M, E}), {0, 2, 3, 1, 4});
    const auto keys = [&](Value x) { return Transpose(Reshape(x, {G, T, K, E}), {0, 2, 1, 3}); };
    Value o;
    if (capacity_ > 0) {
      o = PlainAttention(queries, Cached(keys(k), w, fixed, &cache->k),
                         Cached(keys(v), w, fixed, &cache->v), fixed.at("visible"));
    } else if (p_.options_.attention == Attention::kPlain) {
      o = PlainAttention(queries, keys(k), keys(v), fixed.at("visible"));
    } else {
      o = BlockedAttention(queries, keys(k), keys(v), fixed.at("visible"),
                           std::min(p_.options_.key_block, T));
    }
    return Reshape(Transpose(o, {0, 3, 1, 2, 4}), {N(), c_.AttnDim()});
  }

  /// Puts this layer's rows [1, K, rows, E] into a cache; all that it holds. [1, K, capacity, E]
  Value Cached(Value rows, const NamedValues& w, const NamedValues& fixed, Value* cache) const {
    const Value zero = Scalar(*rows.graph, 0, DType::kS32), layer = w.at("layer");
    *cache = DynamicUpdateSlice(*cache, rows, {layer, zero, fixed.at("start"), zero});
    return DynamicSlice(*cache, {layer, zero, zero, zero},
                        {1, c_.num_kv_heads, capacity_, c_.HeadDim()});
  }

  const Programs& p_;
  const ModelConfig& c_;
  Graph& g_;
  BlockShape shape_;
  bool differentiable_ = false;
  int64_t capacity_ = 0;  // of the caches; 0: none
  NamedValues used_, value_, block_, cache_;
  Value rope_cos_, rope_sin_;
};

// ------------------------------------------------------------------ programs

Programs::Programs(const ModelConfig& config, std::vector<ParamSpec> targets,
                   ProgramOptions options)
    : config_(config),
      targets_(std::move(targets)),
      all_(TrainingParams(config)),
      options_(std::move(options)) {
  for (const ParamSpec& spec : all_)
    if (!Contains(kFused, spec.path) && !Contains(kPhi, spec.path))
      used_[spec.path] = Floats(spec.shape);
  used_["qkvg"] = Joined(kFused, all_);
  used_["phi"] = Joined(kPhi, all_);
  for (const ParamSpec& spec : targets_) {
    if (lora()) {
      const int64_t R = options_.lora.rank;
      leaves_[spec.path + "/A"] = Floats({spec.shape[0], spec.shape[1], R});
      leaves_[spec.path + "/B"] = Floats({spec.shape[0], R, spec.shape[2]});
    } else {
      leaves_[spec.path] = Floats(spec.shape);
    }
  }
  gradients_ = lora() ? leaves_ : used_;
  if (lora()) {
    derived_ = {"qkvg", kOut};
  } else {
    for (const auto& [name, type] : used_) {
      const bool fused = name == "qkvg" || name == "phi";
      if (fused || (options_.numerics.quantise_weights && Spec(name).quantised))
        derived_.push_back(name);
    }
  }
}

const ParamSpec& Programs::Spec(const std::string& path) const {
  const auto at = std::find_if(all_.begin(), all_.end(),
                               [&](const ParamSpec& spec) { return spec.path == path; });
  assert(at != all_.end());
  return *at;
}

std::vector<std::string> Programs::kept_base() const {
  std::vector<std::string> out;
  if (!lora()) return out;
  for (const std::string& name : derived_)
    for (const std::string& path : Weights::PathsOf(name)) out.push_back(path);
  return out;
}

NamedProgram Programs::Merge(bool all) const {
  Graph g;
  g.precision = options_.precision;
  std::vector<std::string> names = derived_;
  if (all) {
    names.clear();
    for (const auto& named : used_) names.push_back(named.first);
  }
  NamedValues source, factors;
  for (const std::string& name : names)
    for (const std::string& path : Weights::PathsOf(name))
      source[path] = g.Parameter(Floats(Spec(path).shape), (lora() ? "base/" : "value/") + path);
  if (lora())
    for (const auto& [name, type] : leaves_) factors[name] = g.Parameter(type, "value/" + name);
  Weights weights(*this, g);
  std::vector<std::pair<std::string, Value>> results;
  results.reserve(names.size());
  for (const std::string& name : names)
    results.emplace_back("used/" + name, weights.Used(name, source, factors));
  g.SetResults(results);
  return Print(g);
}

NamedProgram Programs::Accumulate(const BlockShape& shape) const {
  Graph g;
  g.precision = options_.precision;
  NamedValues sums;
  std::map<std::string, std::string> reused = {{"loss", "loss"}};
  for (const auto& [name, type] : gradients_) {
    sums[name] = g.Parameter(type, "grad/" + name);
    reused["grad/" + name] = "grad/" + name;
  }
  const Type scalar{DType::kF32, {}};
  const Value loss_sum = g.Parameter(scalar, "loss");
  const Value keep = g.Parameter({DType::kPred, {}}, "keep");  // false: the sums start here
  Forward forward(*this, g, shape, /*differentiable=*/true);
  const Value loss = forward.Loss();
  const NamedValues trained = forward.Trained();
  Values xs;
  for (const auto& [name, x] : trained) xs.push_back(x);
  const Values grads = Gradients({loss}, {Scalar(g, 1)}, xs);
  const auto added = [&](Value sum, Value more) {
    const Value kept = Select(BroadcastFront(keep, sum.shape()), sum, Zeros(g, sum.type()));
    return more ? kept + more : kept;
  };
  std::vector<std::pair<std::string, Value>> results;
  size_t i = 0;
  for (const auto& named : trained)
    results.emplace_back("grad/" + named.first, added(sums.at(named.first), grads[i++]));
  results.emplace_back("loss", added(loss_sum, loss));
  g.SetResults(results);
  return Print(g, reused);
}

NamedProgram Programs::Apply() const {
  Graph g;
  g.precision = options_.precision;
  const int64_t replicas = options_.devices;
  const Type scalar{DType::kF32, {}};
  std::map<std::string, std::string> reused;
  NamedValues value, first, second, grad;
  for (const auto& [name, type] : leaves_) {
    for (auto& [kind, map] :
         {std::pair{"value/", &value}, {"first/", &first}, {"second/", &second}}) {
      (*map)[name] = g.Parameter(type, kind + name);
      reused[kind + name] = kind + name;
    }
  }
  for (const auto& [name, type] : gradients_)
    grad[name] = AllReduce(g.Parameter(type, "grad/" + name), replicas);
  const Value loss = AllReduce(g.Parameter(scalar, "loss"), replicas);
  const Value scalars = g.Parameter({DType::kF32, {3}}, "scalars");  // lr, c1, c2
  NamedValues base;
  for (const std::string& path : kept_base())
    base[path] = g.Parameter(Floats(Spec(path).shape), "base/" + path);

  for (const auto& [name, paths] : {std::pair{"qkvg", kFused}, {"phi", kPhi}}) {
    if (!grad.count(name)) continue;  // gradients of joined weights, leaf by leaf
    const Value joined = grad.at(name);
    grad.erase(name);
    const Values parts = Split(joined, 2, Widths(paths, all_));
    for (size_t i = 0; i < paths.size(); ++i)
      grad[paths[i]] = Reshape(parts[i], Spec(paths[i]).shape);
  }
  Value squares;
  for (const auto& [name, x] : grad) {
    Dims all(x.rank());
    for (size_t d = 0; d < all.size(); ++d) all[d] = static_cast<int64_t>(d);
    const Value sum = ReduceAdd(x * x, all);
    squares = squares ? squares + sum : sum;
  }
  const Value norm = Sqrt(squares);
  const Value good = And(IsFinite(loss), IsFinite(norm));
  const auto scalar_at = [&](int64_t i) { return Reshape(SliceDim(scalars, 0, i, i + 1), {}); };
  const AdamWOptions& o = options_.adamw;
  std::vector<std::pair<std::string, Value>> results;
  NamedValues updated;
  for (const auto& [name, type] : leaves_) {
    const auto spread = [shape = type.shape](Value s) { return BroadcastFront(s, shape); };
    const Value x = grad.at(name), p = value.at(name), m = first.at(name), v = second.at(name);
    const Value clip = Scalar(g, o.clip);
    const Value clipped = Select(spread(Compare(norm, "LT", clip)), x,
                                 x / spread(norm) * static_cast<double>(o.clip));
    const Value m1 = clipped * double{1.0f - o.b1} + m * double{o.b1};
    const Value v1 = clipped * clipped * double{1.0f - o.b2} + v * double{o.b2};
    const Value root = Sqrt(v1 / spread(scalar_at(2))) + double{o.eps};
    const Value u = m1 / spread(scalar_at(1)) / root + p * double{o.weight_decay};
    const Value p1 = p - u * spread(scalar_at(0));
    const Value keep = spread(good);
    updated[name] = Select(keep, p1, p);
    results.emplace_back("value/" + name, updated[name]);
    results.emplace_back("first/" + name, Select(keep, m1, m));
    results.emplace_back("second/" + name, Select(keep, v1, v));
  }
  Weights weights(*this, g);
  const NamedValues none;
  for (const std::string& name : derived_)
    results.emplace_back("used/" + name,
                         weights.Used(name, lora() ? base : updated, lora() ? updated : none));
  results.emplace_back("report", Concatenate({Reshape(loss, {1}), Reshape(norm, {1})}, 0));
  g.SetResults(results);
  return Print(g, reused);
}

NamedProgram Programs::Evaluate(const BlockShape& shape) const {
  Graph g;
  g.precision = options_.precision;
  Forward forward(*this, g, shape, /*differentiable=*/false);
  g.SetResults({{"evaluated", forward.Loss()}});
  return Print(g);
}

NamedProgram Programs::Logits(const BlockShape& shape) const {
  Graph g;
  g.precision = options_.precision;
  Forward forward(*this, g, shape, /*differentiable=*/false);
  g.SetResults({{"evaluated", forward.Logits()}});
  return Print(g);
}

NamedProgram Programs::Append(const AppendShape& shape) const {
  Graph g;
  g.precision = options_.precision;
  Forward forward(*this, g, shape);
  std::vector<std::pair<std::string, Value>> results = {{"logits", forward.Logits()}};
  std::map<std::string, std::string> reused;
  for (const auto& [name, value] : forward.Caches()) {
    results.emplace_back("cache/" + name, value);
    reused["cache/" + name] = "cache/" + name;
  }
  g.SetResults(results);
  return Print(g, reused);
}

}  // namespace needle::pjrt
