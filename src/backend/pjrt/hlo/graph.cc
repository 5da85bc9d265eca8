#include "backend/pjrt/hlo/graph.h"

#include <algorithm>
#include <numeric>

namespace needle::hlo {
namespace {

[[maybe_unused]] int64_t Elements(const Dims& shape) {  // for assertions
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

Value Unary(Op op, Value x) { return x.graph->Add({.op = op, .in = {x.id}, .type = x.type()}); }

Value Binary(Op op, Value x, Value y) {
  assert(x.graph == y.graph && x.type() == y.type());
  return x.graph->Add({.op = op, .in = {x.id, y.id}, .type = x.type()});
}

Value Like(Value x, double number) { return Constant(*x.graph, number, x.type()); }

std::vector<int> Ids(const Values& values) {
  std::vector<int> ids;
  for (const Value& v : values) ids.push_back(v.id);
  return ids;
}

bool Has(const Dims& dims, int64_t d) { return std::count(dims.begin(), dims.end(), d) != 0; }

Dims Without(const Dims& shape, const Dims& dims) {
  Dims out;
  for (size_t d = 0; d < shape.size(); ++d)
    if (!Has(dims, static_cast<int64_t>(d))) out.push_back(shape[d]);
  return out;
}

Dims Sequence(int64_t first, size_t n) {
  Dims out(n);
  std::iota(out.begin(), out.end(), first);
  return out;
}

}  // namespace

const Type& Value::type() const { return graph->node(id).type; }

Value Graph::Parameter(const Type& type, std::string name) {
  const Value v = Add({.op = Op::kParameter, .type = type, .text = std::move(name)});
  parameters_.push_back(v.id);
  return v;
}

Value Graph::Add(Node node) {
  nodes_.push_back(std::move(node));
  return {this, size() - 1};
}

void Graph::SetResults(const Values& results) { results_ = Ids(results); }

void Graph::SetResults(const std::vector<std::pair<std::string, Value>>& named) {
  results_.clear();
  result_names_.clear();
  for (const auto& [name, value] : named) {
    results_.push_back(value.id);
    result_names_.push_back(name);
  }
}

Values Graph::AddCustom(const Values& inputs, const Values& outputs, CustomGradient gradient) {
  const auto index = static_cast<int>(customs_.size());
  Values out;
  for (const Value& y : outputs)
    out.push_back(Add({.op = Op::kCustom, .in = {y.id}, .type = y.type(), .custom = index}));
  customs_.push_back({Ids(inputs), Ids(out), std::move(gradient)});
  return out;
}

Value Constant(Graph& g, double number, const Type& type) {
  return Constant(g, std::vector<double>{number}, type);
}

Value Constant(Graph& g, std::vector<double> values, const Type& type) {
  assert(values.size() == 1 || static_cast<int64_t>(values.size()) == Elements(type.shape));
  return g.Add({.op = Op::kConstant, .type = type, .values = std::move(values)});
}

Value Scalar(Graph& g, double number, DType dtype) { return Constant(g, number, {dtype, {}}); }

Value Iota(Graph& g, const Type& type, int64_t dim) {
  return g.Add({.op = Op::kIota, .type = type, .a = {dim}});
}

Value operator+(Value x, Value y) { return Binary(Op::kAdd, x, y); }
Value operator-(Value x, Value y) { return Binary(Op::kSubtract, x, y); }
Value operator*(Value x, Value y) { return Binary(Op::kMultiply, x, y); }
Value operator/(Value x, Value y) { return Binary(Op::kDivide, x, y); }
Value operator+(Value x, double y) { return x + Like(x, y); }
Value operator-(Value x, double y) { return x - Like(x, y); }
Value operator*(Value x, double y) { return x * Like(x, y); }
Value operator/(Value x, double y) { return x / Like(x, y); }
Value operator-(Value x) { return Unary(Op::kNegate, x); }
Value Maximum(Value x, Value y) { return Binary(Op::kMaximum, x, y); }
Value Minimum(Value x, Value y) { return Binary(Op::kMinimum, x, y); }
Value And(Value x, Value y) { return Binary(Op::kAnd, x, y); }
Value Xor(Value x, Value y) { return Binary(Op::kXor, x, y); }
Value Exp(Value x) { return Unary(Op::kExp, x); }
Value Log(Value x) { return Unary(Op::kLog, x); }
Value Logistic(Value x) { return Unary(Op::kLogistic, x); }
Value Rsqrt(Value x) { return Unary(Op::kRsqrt, x); }
Value Sqrt(Value x) { return Unary(Op::kSqrt, x); }
Value Abs(Value x) { return Unary(Op::kAbs, x); }
Value RoundEven(Value x) { return Unary(Op::kRoundEven, x); }
Value PopulationCount(Value x) { return Unary(Op::kPopulationCount, x); }

Value ReducePrecision(Value x, int64_t exponent_bits, int64_t mantissa_bits) {
  return x.graph->Add({.op = Op::kReducePrecision,
                       .in = {x.id},
                       .type = x.type(),
                       .a = {exponent_bits, mantissa_bits}});
}

Value IsFinite(Value x) {
  return x.graph->Add({.op = Op::kIsFinite, .in = {x.id}, .type = {DType::kPred, x.shape()}});
}

Value Convert(Value x, DType to) {
  if (x.type().dtype == to) return x;
  return x.graph->Add({.op = Op::kConvert, .in = {x.id}, .type = {to, x.shape()}});
}

Value Compare(Value x, const char* direction, Value y) {
  assert(x.type() == y.type());
  const Type type{DType::kPred, x.shape()};
  return x.graph->Add({.op = Op::kCompare, .in = {x.id, y.id}, .type = type, .text = direction});
}

Value Select(Value pred, Value yes, Value no) {
  assert(yes.type() == no.type() && pred.shape() == yes.shape());
  return yes.graph->Add({.op = Op::kSelect, .in = {pred.id, yes.id, no.id}, .type = yes.type()});
}

Value Broadcast(Value x, const Dims& shape, const Dims& dims) {
  assert(dims.size() == x.rank());
  for (size_t i = 0; i < dims.size(); ++i) assert(shape[static_cast<size_t>(dims[i])] == x.dim(i));
  if (x.shape() == shape) return x;
  return x.graph->Add(
      {.op = Op::kBroadcast, .in = {x.id}, .type = {x.type().dtype, shape}, .a = dims});
}

Value BroadcastFront(Value x, const Dims& sizes) {
  Dims shape = sizes;
  shape.insert(shape.end(), x.shape().begin(), x.shape().end());
  return Broadcast(x, shape, Sequence(static_cast<int64_t>(sizes.size()), x.rank()));
}

Value BroadcastBack(Value x, const Dims& sizes) {
  Dims shape = x.shape();
  shape.insert(shape.end(), sizes.begin(), sizes.end());
  return Broadcast(x, shape, Sequence(0, x.rank()));
}

Value Reshape(Value x, const Dims& shape) {
  assert(Elements(x.shape()) == Elements(shape));
  if (x.shape() == shape) return x;
  return x.graph->Add({.op = Op::kReshape, .in = {x.id}, .type = {x.type().dtype, shape}});
}

Value Transpose(Value x, const Dims& order) {
  assert(order.size() == x.rank());
  if (order == Sequence(0, x.rank())) return x;
  Dims shape;
  for (const int64_t d : order) shape.push_back(x.dim(static_cast<size_t>(d)));
  return x.graph->Add(
      {.op = Op::kTranspose, .in = {x.id}, .type = {x.type().dtype, shape}, .a = order});
}

Value Slice(Value x, const Dims& first, const Dims& last) {
  Dims shape;
  for (size_t d = 0; d < x.rank(); ++d) {
    assert(0 <= first[d] && first[d] <= last[d] && last[d] <= x.dim(d));
    shape.push_back(last[d] - first[d]);
  }
  if (shape == x.shape()) return x;
  return x.graph->Add(
      {.op = Op::kSlice, .in = {x.id}, .type = {x.type().dtype, shape}, .a = first, .b = last});
}

Value SliceDim(Value x, int64_t dim, int64_t first, int64_t last) {
  Dims from(x.rank(), 0), to = x.shape();
  from[static_cast<size_t>(dim)] = first;
  to[static_cast<size_t>(dim)] = last;
  return Slice(x, from, to);
}

Value Concatenate(const Values& parts, int64_t dim) {
  if (parts.size() == 1) return parts[0];
  Type type = parts[0].type();
  int64_t& size = type.shape[static_cast<size_t>(dim)];
  size = 0;
  for (const Value& p : parts) size += p.dim(static_cast<size_t>(dim));
  return parts[0].graph->Add({.op = Op::kConcatenate, .in = Ids(parts), .type = type, .a = {dim}});
}

Value Pad(Value x, const Dims& before, const Dims& after) {
  Type type = x.type();
  for (size_t d = 0; d < x.rank(); ++d) type.shape[d] += before[d] + after[d];
  if (type == x.type()) return x;
  return x.graph->Add({.op = Op::kPad, .in = {x.id}, .type = type, .a = before, .b = after});
}

Value GatherRows(Value table, Value index) {
  assert(index.rank() == 1);
  Type type = table.type();
  type.shape[0] = index.dim(0);
  return table.graph->Add({.op = Op::kGatherRows, .in = {table.id, index.id}, .type = type});
}

Value ScatterRows(Value table, Value index, Value rows) {
  assert(index.rank() == 1 && rows.dim(0) == index.dim(0));
  return table.graph->Add(
      {.op = Op::kScatterRows, .in = {table.id, index.id, rows.id}, .type = table.type()});
}

Value DynamicSlice(Value x, const Values& index, const Dims& sizes) {
  std::vector<int> in = {x.id};
  for (const Value& i : index) in.push_back(i.id);
  return x.graph->Add(
      {.op = Op::kDynamicSlice, .in = in, .type = {x.type().dtype, sizes}, .a = sizes});
}

Value DynamicUpdateSlice(Value x, Value part, const Values& index) {
  std::vector<int> in = {x.id, part.id};
  for (const Value& i : index) in.push_back(i.id);
  return x.graph->Add({.op = Op::kDynamicUpdateSlice, .in = in, .type = x.type()});
}

Value Row(Value x, Value i) {
  Values index(x.rank(), Scalar(*x.graph, 0, DType::kS32));
  index[0] = i;
  Dims sizes = x.shape();
  sizes[0] = 1;
  return Reshape(DynamicSlice(x, index, sizes), Dims(sizes.begin() + 1, sizes.end()));
}

Value SetRow(Value x, Value i, Value part) {
  Values index(x.rank(), Scalar(*x.graph, 0, DType::kS32));
  index[0] = i;
  Dims sizes = x.shape();
  sizes[0] = 1;
  return DynamicUpdateSlice(x, Reshape(part, sizes), index);
}

Value ReduceAdd(Value x, const Dims& dims) {
  if (dims.empty()) return x;
  return x.graph->Add({.op = Op::kReduceAdd,
                       .in = {x.id},
                       .type = {x.type().dtype, Without(x.shape(), dims)},
                       .a = dims});
}

Value ReduceMax(Value x, const Dims& dims) {
  return x.graph->Add({.op = Op::kReduceMax,
                       .in = {x.id},
                       .type = {x.type().dtype, Without(x.shape(), dims)},
                       .a = dims});
}

Value Dot(Value x, Value y, const Dims& batch_x, const Dims& batch_y, const Dims& over_x,
          const Dims& over_y) {
  assert(x.graph == y.graph && batch_x.size() == batch_y.size() && over_x.size() == over_y.size());
  Graph& g = *x.graph;
  Type type{x.type().dtype, {}};
  Dims used_x = batch_x, used_y = batch_y;
  used_x.insert(used_x.end(), over_x.begin(), over_x.end());
  used_y.insert(used_y.end(), over_y.begin(), over_y.end());
  for (const int64_t d : batch_x) type.shape.push_back(x.dim(static_cast<size_t>(d)));
  for (const Dims& free : {Without(x.shape(), used_x), Without(y.shape(), used_y)})
    type.shape.insert(type.shape.end(), free.begin(), free.end());
  for (size_t i = 0; i < over_x.size(); ++i)
    assert(x.dim(static_cast<size_t>(over_x[i])) == y.dim(static_cast<size_t>(over_y[i])));
  return g.Add({.op = Op::kDot,
                .in = {x.id, y.id},
                .type = type,
                .a = batch_x,
                .b = batch_y,
                .c = over_x,
                .d = over_y,
                .text = g.precision == Precision::kHighest ? "HIGHEST"
                        : g.precision == Precision::kTf32  ? "DEFAULT"
                                                           : "BF16"});
}

Value MatMul(Value x, Value w) {
  return Dot(x, w, {}, {}, {static_cast<int64_t>(x.rank()) - 1}, {0});
}

Values Barrier(const Values& xs) {
  Graph& g = *xs[0].graph;
  const Value barrier = g.Add({.op = Op::kBarrier, .in = Ids(xs)});
  Values out;
  for (size_t i = 0; i < xs.size(); ++i)
    out.push_back(g.Add({.op = Op::kResult,
                         .in = {barrier.id},
                         .type = xs[i].type(),
                         .a = {static_cast<int64_t>(i)}}));
  return out;
}

Value AllReduce(Value x, int64_t replicas) {
  if (replicas == 1) return x;
  return x.graph->Add({.op = Op::kAllReduce, .in = {x.id}, .type = x.type(), .a = {replicas}});
}

Value StopGradient(Value x) { return Unary(Op::kStop, x); }

Values Custom(const Values& inputs, const Values& outputs, CustomGradient gradient) {
  return outputs[0].graph->AddCustom(inputs, outputs, std::move(gradient));
}

Values Split(Value x, int64_t dim, const Dims& sizes) {
  Values parts;
  int64_t at = 0;
  for (const int64_t size : sizes) {
    parts.push_back(SliceDim(x, dim, at, at + size));
    at += size;
  }
  assert(at == x.dim(static_cast<size_t>(dim)));
  return Custom({x}, parts, [dim](const Values& dparts, const std::vector<bool>&) -> Values {
    return {Concatenate(dparts, dim)};
  });
}

Values Loop(Graph& g, int64_t times, const Values& init, const Values& invariant,
            const LoopBody& body) {
  const auto inner = std::make_shared<Graph>();
  inner->precision = g.precision;
  Node loop{.op = Op::kWhile, .in = {Scalar(g, 0, DType::kS32).id}, .a = {times}};
  const Value i = inner->Parameter({DType::kS32, {}});
  Values carried, kept;
  for (const Value& v : init) {
    carried.push_back(inner->Parameter(v.type()));
    loop.in.push_back(v.id);
  }
  for (const Value& v : invariant) {
    kept.push_back(inner->Parameter(v.type()));
    loop.in.push_back(v.id);
  }
  Values results = body(*inner, i, carried, kept);
  assert(results.size() == init.size());
  for (size_t k = 0; k < init.size(); ++k) assert(results[k].type() == init[k].type());
  results.insert(results.begin(), i + Scalar(*inner, 1, DType::kS32));
  results.insert(results.end(), kept.begin(), kept.end());
  inner->SetResults(results);
  loop.body = inner;
  const Value node = g.Add(std::move(loop));
  Values out;
  for (size_t k = 0; k < init.size(); ++k)
    out.push_back(g.Add({.op = Op::kResult,
                         .in = {node.id},
                         .type = init[k].type(),
                         .a = {static_cast<int64_t>(k) + 1}}));
  return out;
}

void CloneInto(const Graph& from, std::span<const int> wanted, Graph& to,
               std::vector<Value>& known) {
  known.resize(static_cast<size_t>(from.size()));
  std::vector<bool> need(static_cast<size_t>(from.size()));
  for (const int id : wanted) need[static_cast<size_t>(id)] = true;
  for (int id = from.size() - 1; id >= 0; --id)
    if (need[static_cast<size_t>(id)] && !known[static_cast<size_t>(id)])
      for (const int in : from.node(id).in) need[static_cast<size_t>(in)] = true;
  for (int id = 0; id < from.size(); ++id) {
    if (!need[static_cast<size_t>(id)] || known[static_cast<size_t>(id)]) continue;
    Node copy = from.node(id);
    assert(copy.op != Op::kParameter);
    if (copy.op == Op::kCustom) copy.op = Op::kStop;  // the gradient stays behind
    copy.custom = -1;
    for (int& in : copy.in) in = known[static_cast<size_t>(in)].id;
    known[static_cast<size_t>(id)] = to.Add(std::move(copy));
  }
}

}  // namespace needle::hlo
