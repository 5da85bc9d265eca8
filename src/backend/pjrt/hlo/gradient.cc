#include "backend/pjrt/hlo/gradient.h"

#include <algorithm>
#include <numeric>

namespace needle::hlo {
namespace {

bool Has(const Dims& dims, int64_t d) { return std::count(dims.begin(), dims.end(), d) != 0; }

class Reverse {
 public:
  Reverse(Graph& g, const Values& xs) : g_(g), first_(g.size()), end_(g.size()) {
    for (const Value& x : xs) first_ = std::min(first_, x.id);
    active_.resize(static_cast<size_t>(end_ - first_));
    gradient_.resize(active_.size());
    for (const Value& x : xs) active_[Index(x.id)] = true;
    for (int id = first_; id < end_; ++id)
      if (!active_[Index(id)]) active_[Index(id)] = Depends(id);
  }

  void Seed(const Values& ys, const Values& dys) {
    for (size_t k = 0; k < ys.size(); ++k)
      if (dys[k] && Active(ys[k].id)) Accumulate(ys[k].id, dys[k]);
  }

  void Run(const Values& xs) {
    for (int id = end_ - 1; id >= first_; --id) {
      const Op op = g_.node(id).op;
      if (op == Op::kCustom && Active(id)) {
        RunCustom(id);
      } else if (Active(id) && gradient_[Index(id)] && !IsX(id, xs)) {
        Rule(id, gradient_[Index(id)]);
      }
    }
  }

  Value Of(int id) const { return gradient_[Index(id)]; }

 private:
  static bool IsX(int id, const Values& xs) {
    return std::any_of(xs.begin(), xs.end(), [&](const Value& x) { return x.id == id; });
  }
  size_t Index(int id) const { return static_cast<size_t>(id - first_); }
  bool Active(int id) const { return id >= first_ && id < end_ && active_[Index(id)]; }

  bool Depends(int id) const {
    const Node& n = g_.node(id);
    if (n.op == Op::kStop) return false;
    const auto active = [&](int in) { return Active(in); };
    if (n.op == Op::kCustom) {
      const auto& inputs = g_.customs()[static_cast<size_t>(n.custom)].inputs;
      return std::any_of(inputs.begin(), inputs.end(), active);
    }
    return std::any_of(n.in.begin(), n.in.end(), active);
  }

  void Accumulate(int id, Value d) {
    if (!Active(id) || !d) return;
    assert(d.type() == g_.node(id).type);
    Value& sum = gradient_[Index(id)];
    sum = sum ? sum + d : d;
  }

  /// Runs at the first output (the lowest id), when all outputs have their gradients.
  void RunCustom(int id) {
    const Graph::CustomRecord record = g_.customs()[static_cast<size_t>(g_.node(id).custom)];
    if (record.outputs.front() != id) return;
    Values dout;
    bool any = false;
    for (const int y : record.outputs) {
      dout.push_back(gradient_[Index(y)]);
      any |= static_cast<bool>(dout.back());
    }
    if (!any) return;
    for (size_t k = 0; k < dout.size(); ++k)
      dout[k] = dout[k] ? dout[k] : Zeros(g_, g_.node(record.outputs[k]).type);
    std::vector<bool> wanted;
    for (const int x : record.inputs) wanted.push_back(Active(x));
    const Values din = record.gradient(dout, wanted);
    for (size_t k = 0; k < din.size(); ++k)
      if (wanted[k]) Accumulate(record.inputs[k], din[k]);
  }

  void Rule(int id, Value dy);
  void DotRule(const Node& n, Value dy);

  Graph& g_;
  int first_, end_;
  std::vector<bool> active_;
  Values gradient_;  // of each node since first_
};

void Reverse::Rule(int id, Value dy) {
  const Node n = g_.node(id);  // a copy: rules add nodes
  const auto in = [&](size_t i) { return g_.At(n.in[i]); };
  const auto want = [&](size_t i) { return Active(n.in[i]); };
  const Value y = g_.At(id);
  switch (n.op) {
    case Op::kAdd:
      Accumulate(n.in[0], dy);
      Accumulate(n.in[1], dy);
      return;
    case Op::kSubtract:
      Accumulate(n.in[0], dy);
      if (want(1)) Accumulate(n.in[1], -dy);
      return;
    case Op::kMultiply:
      if (want(0)) Accumulate(n.in[0], dy * in(1));
      if (want(1)) Accumulate(n.in[1], dy * in(0));
      return;
    case Op::kDivide:
      if (want(0)) Accumulate(n.in[0], dy / in(1));
      if (want(1)) Accumulate(n.in[1], -(dy * y / in(1)));
      return;
    case Op::kNegate:
      return Accumulate(n.in[0], -dy);
    case Op::kExp:
      return Accumulate(n.in[0], dy * y);
    case Op::kLog:
      return Accumulate(n.in[0], dy / in(0));
    case Op::kLogistic:
      return Accumulate(n.in[0], dy * y * (Constant(g_, 1, n.type) - y));
    case Op::kRsqrt:
      return Accumulate(n.in[0], dy * (y * y * y) * -0.5);
    case Op::kSqrt:
      return Accumulate(n.in[0], dy / y * 0.5);
    case Op::kSelect: {
      const Value zero = Zeros(g_, n.type);
      if (want(1)) Accumulate(n.in[1], Select(in(0), dy, zero));
      if (want(2)) Accumulate(n.in[2], Select(in(0), zero, dy));
      return;
    }
    case Op::kBroadcast: {
      Dims over;
      for (size_t d = 0; d < n.type.shape.size(); ++d)
        if (!Has(n.a, static_cast<int64_t>(d))) over.push_back(static_cast<int64_t>(d));
      return Accumulate(n.in[0], ReduceAdd(dy, over));
    }
    case Op::kReshape:
      return Accumulate(n.in[0], Reshape(dy, in(0).shape()));
    case Op::kTranspose: {
      Dims back(n.a.size());
      for (size_t i = 0; i < n.a.size(); ++i)
        back[static_cast<size_t>(n.a[i])] = static_cast<int64_t>(i);
      return Accumulate(n.in[0], Transpose(dy, back));
    }
    case Op::kSlice: {
      Dims after = in(0).shape();
      for (size_t d = 0; d < after.size(); ++d) after[d] -= n.b[d];
      return Accumulate(n.in[0], Pad(dy, n.a, after));
    }
    case Op::kPad: {
      Dims last = n.a;
      for (size_t d = 0; d < last.size(); ++d) last[d] += in(0).dim(d);
      return Accumulate(n.in[0], Slice(dy, n.a, last));
    }
    case Op::kConcatenate: {
      int64_t at = 0;
      for (size_t i = 0; i < n.in.size(); ++i) {
        const int64_t size = in(i).dim(static_cast<size_t>(n.a[0]));
        if (want(i)) Accumulate(n.in[i], SliceDim(dy, n.a[0], at, at + size));
        at += size;
      }
      return;
    }
    case Op::kGatherRows:
      return Accumulate(n.in[0], ScatterRows(Zeros(g_, in(0).type()), in(1), dy));
    case Op::kScatterRows:
      Accumulate(n.in[0], dy);
      if (want(2)) Accumulate(n.in[2], GatherRows(dy, in(1)));
      return;
    case Op::kDynamicSlice: {
      Values index;
      for (size_t i = 1; i < n.in.size(); ++i) index.push_back(in(i));
      return Accumulate(n.in[0], DynamicUpdateSlice(Zeros(g_, in(0).type()), dy, index));
    }
    case Op::kReduceAdd: {
      Dims kept;
      for (size_t d = 0; d < in(0).rank(); ++d)
        if (!Has(n.a, static_cast<int64_t>(d))) kept.push_back(static_cast<int64_t>(d));
      return Accumulate(n.in[0], Broadcast(dy, in(0).shape(), kept));
    }
    case Op::kDot:
      return DotRule(n, dy);
    case Op::kIota:
    case Op::kConstant:
    case Op::kParameter:
    case Op::kCompare:
    case Op::kIsFinite:
      return;
    default:
      assert(false && "this operation has no gradient; wrap it in StopGradient or Custom");
  }
}

/// dx = dy y^T and dy' = x^T dy, for any dimensions: contract with the other's free ones, then put
/// the dimensions in order.
void Reverse::DotRule(const Node& n, Value dy) {
  const Value x = g_.At(n.in[0]), y = g_.At(n.in[1]);
  const size_t batches = n.a.size();
  const auto free_of = [](Value v, const Dims& batch, const Dims& over) {
    Dims out;
    for (size_t d = 0; d < v.rank(); ++d)
      if (!Has(batch, static_cast<int64_t>(d)) && !Has(over, static_cast<int64_t>(d)))
        out.push_back(static_cast<int64_t>(d));
    return out;
  };
  const Dims free_x = free_of(x, n.a, n.c), free_y = free_of(y, n.b, n.d);
  Dims in_batch(batches), in_x(free_x.size()), in_y(free_y.size());  // dimensions of dy
  std::iota(in_batch.begin(), in_batch.end(), 0);
  std::iota(in_x.begin(), in_x.end(), batches);
  std::iota(in_y.begin(), in_y.end(), batches + free_x.size());
  // Where the c-th contracted dimension of the other operand is in the result of such a dot.
  const auto rank_of = [](const Dims& over, size_t c) {
    return std::count_if(over.begin(), over.end(), [&](int64_t d) { return d < over[c]; });
  };
  if (Active(n.in[0])) {
    const Value d = Dot(dy, y, in_batch, n.b, in_y, free_y);  // batch, x's free, contracted
    Dims order(x.rank());
    for (size_t b = 0; b < batches; ++b) order[static_cast<size_t>(n.a[b])] = in_batch[b];
    for (size_t f = 0; f < free_x.size(); ++f) order[static_cast<size_t>(free_x[f])] = in_x[f];
    for (size_t c = 0; c < n.c.size(); ++c)
      order[static_cast<size_t>(n.c[c])] =
          static_cast<int64_t>(batches + free_x.size()) + rank_of(n.d, c);
    Accumulate(n.in[0], Transpose(d, order));
  }
  if (Active(n.in[1])) {
    const Value d = Dot(x, dy, n.a, in_batch, free_x, in_x);  // batch, contracted, y's free
    Dims order(y.rank());
    for (size_t b = 0; b < batches; ++b) order[static_cast<size_t>(n.b[b])] = in_batch[b];
    for (size_t c = 0; c < n.d.size(); ++c)
      order[static_cast<size_t>(n.d[c])] = static_cast<int64_t>(batches) + rank_of(n.c, c);
    for (size_t f = 0; f < free_y.size(); ++f)
      order[static_cast<size_t>(free_y[f])] = static_cast<int64_t>(batches + n.d.size() + f);
    Accumulate(n.in[1], Transpose(d, order));
  }
}

}  // namespace

Values Gradients(const Values& ys, const Values& dys, const Values& xs) {
  assert(ys.size() == dys.size());
  if (xs.empty()) return {};
  Graph& g = *xs[0].graph;
  Reverse reverse(g, xs);
  reverse.Seed(ys, dys);
  reverse.Run(xs);
  Values out;
  for (const Value& x : xs) out.push_back(reverse.Of(x.id));
  return out;
}

}  // namespace needle::hlo
