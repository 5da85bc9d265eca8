#include "backend/pjrt/hlo/scan.h"

#include <algorithm>

#include "backend/pjrt/hlo/gradient.h"

namespace needle::hlo {
namespace {

Type SliceType(const Type& stacked) {
  return {stacked.dtype, Dims(stacked.shape.begin() + 1, stacked.shape.end())};
}
Type StackType(const Type& slice, int64_t layers) {
  Type out = slice;
  out.shape.insert(out.shape.begin(), layers);
  return out;
}

/// Values without their names, in the map's order; and back.
Values Flat(const NamedValues& named) {
  Values out;
  for (const auto& [name, value] : named) out.push_back(value);
  return out;
}
NamedValues Named(const NamedValues& names, Values::const_iterator first) {
  NamedValues out;
  for (const auto& [name, value] : names) out[name] = *first++;
  return out;
}
void Append(Values* to, const Values& more) { to->insert(to->end(), more.begin(), more.end()); }

/// The trained inputs, split: which slices, which invariants.
struct Trained {
  std::vector<std::string> stacked, invariant;
  explicit Trained(const ScanInputs& in) {
    for (const std::string& name : in.trained)
      (in.stacked.count(name) ? stacked : invariant).push_back(name);
  }
};

Values Pick(const NamedValues& from, const std::vector<std::string>& names) {
  Values out;
  for (const std::string& name : names) out.push_back(from.at(name));
  return out;
}

/// The inputs of the custom gradient: carried, then trained stacks, then trained invariants.
Values CustomInputs(const ScanInputs& in, const Trained& trained) {
  Values out = in.carried;
  Append(&out, Pick(in.stacked, trained.stacked));
  Append(&out, Pick(in.invariant, trained.invariant));
  return out;
}

/// One layer, forward and backward, in a graph of its own.
struct Joint {
  Graph graph;
  Values carried, dcarried;  // parameters
  NamedValues slices, invariant;
  Values out;  // carried of the next layer
  Values dcarried_in, dslices, dinvariant;
  int forward_end = 0;  // nodes from here on belong to the backward

  Joint(const Graph& outer, const ScanInputs& in, const Trained& trained, const ScanBody& body) {
    graph.precision = outer.precision;
    for (const Value& v : in.carried) carried.push_back(graph.Parameter(v.type()));
    for (const auto& [name, v] : in.stacked) slices[name] = graph.Parameter(SliceType(v.type()));
    for (const auto& [name, v] : in.invariant) invariant[name] = graph.Parameter(v.type());
    for (const Value& v : in.carried) dcarried.push_back(graph.Parameter(v.type()));
    out = body(graph, carried, slices, invariant);
    forward_end = graph.size();
    Values xs = carried;
    Append(&xs, Pick(slices, trained.stacked));
    Append(&xs, Pick(invariant, trained.invariant));
    Values d = Gradients(out, dcarried, xs);
    for (size_t i = 0; i < d.size(); ++i) d[i] = OrZeros(d[i], graph, xs[i].type());
    const auto slices_at = d.begin() + static_cast<std::ptrdiff_t>(carried.size());
    const auto invariant_at = slices_at + static_cast<std::ptrdiff_t>(trained.stacked.size());
    dcarried_in.assign(d.begin(), slices_at);
    dslices.assign(slices_at, invariant_at);
    dinvariant.assign(invariant_at, d.end());
  }

  Values Gradient() const {
    Values all = dcarried_in;
    Append(&all, dslices);
    Append(&all, dinvariant);
    return all;
  }
};

/// Whether a value is worth saving; what is not is computed again from what is.
bool IsCostly(const Node& n) {
  switch (n.op) {
    case Op::kDot:
    case Op::kReduceAdd:
    case Op::kReduceMax:
    case Op::kResult:
    case Op::kGatherRows:
    case Op::kConcatenate:
      return true;
    default:
      return false;
  }
}

/// The forward values that the backward is to find saved.
std::vector<int> Saved(const Joint& j, bool remat) {
  std::vector<int> saved;
  if (remat) return saved;
  std::vector<bool> need(static_cast<size_t>(j.graph.size()));
  for (const Value& v : j.Gradient()) need[static_cast<size_t>(v.id)] = true;
  for (int id = j.graph.size() - 1; id >= 0; --id) {
    if (!need[static_cast<size_t>(id)]) continue;
    const Node& n = j.graph.node(id);
    if (id < j.forward_end && IsCostly(n)) {
      saved.push_back(id);
      continue;
    }
    for (const int in : n.in) need[static_cast<size_t>(in)] = true;
  }
  std::reverse(saved.begin(), saved.end());
  return saved;
}

std::vector<int> Ids(const Values& values) {
  std::vector<int> out;
  for (const Value& v : values) out.push_back(v.id);
  return out;
}

Values RowsOf(const Values& stacks, Value i) {
  Values out;
  for (const Value& v : stacks) out.push_back(Row(v, i));
  return out;
}

/// `known` for CloneInto: the parameters of a joint graph as values of another.
std::vector<Value> Known(const Joint& j, const Values& carried, const Values& slices,
                         const Values& invariant) {
  std::vector<Value> known(static_cast<size_t>(j.graph.size()));
  const auto bind = [&](const Values& from, const Values& to) {
    for (size_t i = 0; i < from.size(); ++i) known[static_cast<size_t>(from[i].id)] = to[i];
  };
  bind(j.carried, carried);
  bind(Flat(j.slices), slices);
  bind(Flat(j.invariant), invariant);
  return known;
}

Values Cloned(const Graph& from, const std::vector<int>& ids, Graph& to,
              std::vector<Value>* known) {
  CloneInto(from, ids, to, *known);
  Values out;
  for (const int id : ids) out.push_back((*known)[static_cast<size_t>(id)]);
  return out;
}

/// Splits a flat list back into the lists it was joined from.
class Parts {
 public:
  explicit Parts(const Values& all) : next_(all.begin()) {}
  Values Take(size_t n) {
    const auto first = next_;
    next_ += static_cast<std::ptrdiff_t>(n);
    return {first, next_};
  }

 private:
  Values::const_iterator next_;
};

Values ForwardOnly(Graph& g, int64_t layers, const ScanInputs& in, const ScanBody& body) {
  Values kept = Flat(in.stacked);
  Append(&kept, Flat(in.invariant));
  return Loop(g, layers, in.carried, kept,
              [&](Graph& b, Value i, const Values& carried, const Values& all) {
                Parts parts(all);
                const Values slices = RowsOf(parts.Take(in.stacked.size()), i);
                const Values invariant = parts.Take(in.invariant.size());
                return body(b, carried, Named(in.stacked, slices.begin()),
                            Named(in.invariant, invariant.begin()));
              });
}

/// The forward loop keeps what enters each layer and what is saved of it.
Values Scanned(Graph& g, int64_t layers, const ScanInputs& in, const ScanBody& body, bool remat) {
  const Trained trained(in);
  const auto joint = std::make_shared<Joint>(g, in, trained, body);
  const std::vector<int> saved = Saved(*joint, remat);
  const size_t C = in.carried.size(), S = in.stacked.size(), I = in.invariant.size();

  Values init = in.carried;
  for (const Value& v : in.carried) init.push_back(Zeros(g, StackType(v.type(), layers)));
  for (const int id : saved)
    init.push_back(Zeros(g, StackType(joint->graph.node(id).type, layers)));
  Values kept = Flat(in.stacked);
  Append(&kept, Flat(in.invariant));
  const Values after =
      Loop(g, layers, init, kept, [&](Graph& b, Value i, const Values& state, const Values& all) {
        Parts now(state), inputs(all);
        const Values carried = now.Take(C), entered = now.Take(C), stacks = now.Take(saved.size());
        const Values slices = RowsOf(inputs.Take(S), i), invariant = inputs.Take(I);
        std::vector<Value> known = Known(*joint, carried, slices, invariant);
        Values next = Cloned(joint->graph, Ids(joint->out), b, &known);
        const Values keep = Cloned(joint->graph, saved, b, &known);
        for (size_t c = 0; c < C; ++c) next.push_back(SetRow(entered[c], i, carried[c]));
        for (size_t k = 0; k < keep.size(); ++k) next.push_back(SetRow(stacks[k], i, keep[k]));
        return next;
      });
  Parts parts(after);
  const Values outputs = parts.Take(C), stacks = parts.Take(C + saved.size());

  const Values inputs = CustomInputs(in, trained);
  return Custom(inputs, outputs, [=, &g](const Values& dout, const std::vector<bool>&) {
    Values init_back = dout;
    for (const std::string& name : trained.stacked)
      init_back.push_back(Zeros(g, in.stacked.at(name).type()));
    for (const std::string& name : trained.invariant)
      init_back.push_back(Zeros(g, in.invariant.at(name).type()));
    Values fixed = stacks;
    Append(&fixed, kept);
    return Loop(g, layers, init_back, fixed,
                [&](Graph& b, Value i, const Values& state, const Values& all) {
                  const Value l = Scalar(b, static_cast<double>(layers - 1), DType::kS32) - i;
                  Parts now(state), read(all);
                  const Values dcarried = now.Take(C), dstacks = now.Take(trained.stacked.size());
                  const Values dinvariant = now.Take(trained.invariant.size());
                  const Values carried = RowsOf(read.Take(C), l);
                  const Values kept_rows = RowsOf(read.Take(saved.size()), l);
                  const Values slices = RowsOf(read.Take(S), l), invariant = read.Take(I);
                  std::vector<Value> known = Known(*joint, carried, slices, invariant);
                  for (size_t k = 0; k < saved.size(); ++k)
                    known[static_cast<size_t>(saved[k])] = kept_rows[k];
                  for (size_t c = 0; c < C; ++c)
                    known[static_cast<size_t>(joint->dcarried[c].id)] = dcarried[c];
                  const Values d = Cloned(joint->graph, Ids(joint->Gradient()), b, &known);
                  Values next(d.begin(), d.begin() + static_cast<std::ptrdiff_t>(C));
                  for (size_t k = 0; k < dstacks.size(); ++k)
                    next.push_back(SetRow(dstacks[k], l, d[C + k]));
                  for (size_t k = 0; k < dinvariant.size(); ++k)
                    next.push_back(dinvariant[k] + d[C + dstacks.size() + k]);
                  return next;
                });
  });
}

/// One layer of an unrolled run.
struct UnrolledLayer {
  Values entered, out;
  NamedValues slices;
};

/// The layer's gradients: from its own values, or from the same layer written a second time behind
/// a barrier (else the compiler would find the two equal and keep the first).
Values LayerGradient(Graph& g, const UnrolledLayer& layer, const ScanInputs& in,
                     const Trained& trained, const ScanBody& body, bool remat, Values dout) {
  Values entered = layer.entered, out = layer.out;
  NamedValues slices = layer.slices, invariant = in.invariant;
  if (remat) {
    Values behind = entered;
    Append(&behind, dout);
    behind = Barrier(behind);
    Parts parts(behind);
    entered = parts.Take(entered.size());
    dout = parts.Take(dout.size());
    // Handles of their own, so that this writing's gradients end here.
    for (auto& [name, v] : slices) v = StopGradient(v);
    for (auto& [name, v] : invariant) v = StopGradient(v);
    out = body(g, entered, slices, invariant);
  }
  Values xs = entered;
  Append(&xs, Pick(slices, trained.stacked));
  Append(&xs, Pick(invariant, trained.invariant));
  Values d = Gradients(out, dout, xs);
  for (size_t i = 0; i < d.size(); ++i) d[i] = OrZeros(d[i], g, xs[i].type());
  return d;
}

Values Unrolled(Graph& g, int64_t layers, const ScanInputs& in, const ScanBody& body,
                const ScanOptions& options) {
  const Trained trained(in);
  std::vector<UnrolledLayer> run;
  Values carried = in.carried;
  // The gradient of a layer must not walk into what made its inputs.
  const auto cut = [](Values values) {
    for (Value& v : values) v = StopGradient(v);
    return values;
  };
  ScanInputs fixed = in;
  for (auto& [name, v] : fixed.invariant) v = StopGradient(v);
  for (int64_t l = 0; l < layers; ++l) {
    UnrolledLayer layer;
    layer.entered = cut(carried);
    for (const auto& [name, v] : in.stacked)
      layer.slices[name] =
          StopGradient(Reshape(SliceDim(v, 0, l, l + 1), SliceType(v.type()).shape));
    layer.out = body(g, layer.entered, layer.slices, fixed.invariant);
    carried = layer.out;
    run.push_back(std::move(layer));
  }
  if (!options.differentiable) return carried;
  const bool remat = options.remat;
  return Custom(
      CustomInputs(in, trained), carried, [=, &g](const Values& dout, const std::vector<bool>&) {
        const size_t C = dout.size(), P = trained.stacked.size(), I = trained.invariant.size();
        Values dcarried = dout, dinvariant(I);
        std::vector<Values> dslices(P);
        for (size_t l = run.size(); l-- > 0;) {
          const Values d = LayerGradient(g, run[l], fixed, trained, body, remat, dcarried);
          dcarried.assign(d.begin(), d.begin() + static_cast<std::ptrdiff_t>(C));
          for (size_t p = 0; p < P; ++p) {
            Dims row = d[C + p].shape();
            row.insert(row.begin(), 1);
            dslices[p].insert(dslices[p].begin(), Reshape(d[C + p], row));
          }
          for (size_t i = 0; i < I; ++i) {
            const Value part = d[C + P + i];
            dinvariant[i] = dinvariant[i] ? dinvariant[i] + part : part;
          }
        }
        for (const Values& rows : dslices) dcarried.push_back(Concatenate(rows, 0));
        Append(&dcarried, dinvariant);
        return dcarried;
      });
}

}  // namespace

Values Scan(Graph& g, int64_t layers, const ScanInputs& inputs, const ScanBody& body,
            const ScanOptions& options) {
  if (options.unroll) return Unrolled(g, layers, inputs, body, options);
  if (!options.differentiable) return ForwardOnly(g, layers, inputs, body);
  return Scanned(g, layers, inputs, body, options.remat);
}

}  // namespace needle::hlo
