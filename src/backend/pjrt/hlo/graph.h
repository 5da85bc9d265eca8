// A small StableHLO program builder: typed values in single assignment, in straight lines; loops
// hold a graph of their own. Printed as text by print.h, differentiated by gradient.h.
//   Graph g;
//   Value x = g.Parameter({DType::kF32, {4, 8}}, "x");
//   g.SetResults({{"y", ReduceAdd(x * x, {1})}});
// Only operations whose text has stayed the same over StableHLO's versions are here.
// Shapes are checked by asserts: a wrong one is a bug of the caller. Thread-safety: one graph, one
// thread.
#pragma once

#include <cassert>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/pjrt/client.h"

namespace needle::hlo {

using Type = pjrt::ArraySpec;
using pjrt::DType;
using Dims = std::vector<int64_t>;

enum class Op : uint8_t {
  kParameter,
  kConstant,  // values (one: all elements)
  kIota,      // a[0]: the dimension that counts
  // Elementwise, two operands of one type.
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kMaximum,
  kMinimum,
  kAnd,
  kXor,
  // Elementwise, one operand.
  kNegate,
  kExp,
  kLog,
  kLogistic,
  kRsqrt,
  kSqrt,
  kAbs,
  kRoundEven,
  kPopulationCount,
  kReducePrecision,  // a = {exponent bits, mantissa bits}
  kIsFinite,         // to kPred
  kConvert,          // to another number type
  kCompare,          // text: EQ, LT, LE, GT, GE; to kPred
  kSelect,           // (pred, then, else)
  // Moving elements.
  kBroadcast,           // a: the result's dimension of each of the operand's
  kReshape,             //
  kTranspose,           // a: the operand's dimension of each of the result's
  kSlice,               // a: first, b: past the end
  kConcatenate,         // a[0]: dimension
  kPad,                 // a: zeros before, b: zeros after
  kGatherRows,          // (table [n, ...], index [m]) -> [m, ...]
  kScatterRows,         // (table [n, ...], index [m], rows [m, ...]): adds the rows; repeats add up
  kDynamicSlice,        // (x, one scalar index a dimension); a: sizes
  kDynamicUpdateSlice,  // (x, part, one scalar index a dimension)
  // Sums.
  kReduceAdd,  // a: dimensions
  kReduceMax,
  kDot,  // a, b: batch dimensions of both; c, d: contracted dimensions of both
  // Structure.
  kWhile,      // `body` a[0] times; see Loop
  kResult,     // a[0]: which result of the kWhile or kBarrier before it
  kBarrier,    // its results are its operands; the compiler may not look through
  kAllReduce,  // the sum over a[0] replicas
  kStop,       // its operand; no gradient passes
  kCustom,     // its first operand; the gradient is Graph::customs
};

/// How dots of float32 are computed.
enum class Precision { kHighest, kTf32, kBf16 };

class Graph;

/// A handle. Default: no value.
struct Value {
  Graph* graph = nullptr;
  int id = -1;
  explicit operator bool() const { return id >= 0; }
  const Type& type() const;
  const Dims& shape() const { return type().shape; }
  int64_t dim(size_t i) const { return shape()[i]; }
  size_t rank() const { return shape().size(); }
};
using Values = std::vector<Value>;

struct Node {
  Op op = Op::kParameter;
  std::vector<int> in = {};
  Type type = {};
  Dims a = {}, b = {}, c = {}, d = {};  // by operation, see Op
  std::vector<double> values = {};      // kConstant
  std::string text = {};                // kCompare's direction; kParameter's name
  std::shared_ptr<const Graph> body = {};
  int custom = -1;  // kCustom: index into Graph::customs
};

/// From the gradients of the outputs to those of the inputs (kCustom). `wanted` per input; what is
/// not wanted may be left out (no value).
using CustomGradient = std::function<Values(const Values& dout, const std::vector<bool>& wanted)>;

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Value Parameter(const Type& type, std::string name = "");
  Value Add(Node node);
  Value At(int id) { return {this, id}; }

  void SetResults(const Values& results);
  void SetResults(const std::vector<std::pair<std::string, Value>>& named);

  int size() const { return static_cast<int>(nodes_.size()); }
  const Node& node(int id) const { return nodes_[static_cast<size_t>(id)]; }
  const std::vector<int>& parameters() const { return parameters_; }
  const std::vector<int>& results() const { return results_; }
  const std::vector<std::string>& result_names() const { return result_names_; }

  struct CustomRecord {
    std::vector<int> inputs, outputs;  // outputs: consecutive kCustom nodes
    CustomGradient gradient;
  };
  const std::vector<CustomRecord>& customs() const { return customs_; }
  Values AddCustom(const Values& inputs, const Values& outputs, CustomGradient gradient);

  /// How the dots that are added from now compute.
  Precision precision = Precision::kHighest;

 private:
  std::deque<Node> nodes_;  // a type may be referred to while nodes are added
  std::vector<int> parameters_, results_;
  std::vector<std::string> result_names_;
  std::vector<CustomRecord> customs_;
};

// ------------------------------------------------------------------ making values

Value Constant(Graph& g, double number, const Type& type);
Value Constant(Graph& g, std::vector<double> values, const Type& type);
Value Scalar(Graph& g, double number, DType dtype = DType::kF32);
inline Value Zeros(Graph& g, const Type& type) { return Constant(g, 0, type); }
Value Iota(Graph& g, const Type& type, int64_t dim);

Value operator+(Value x, Value y);
Value operator-(Value x, Value y);
Value operator*(Value x, Value y);
Value operator/(Value x, Value y);
Value operator+(Value x, double y);
Value operator-(Value x, double y);
Value operator*(Value x, double y);
Value operator/(Value x, double y);
Value operator-(Value x);
Value Maximum(Value x, Value y);
Value Minimum(Value x, Value y);
Value And(Value x, Value y);
Value Xor(Value x, Value y);
Value Exp(Value x);
Value Log(Value x);
Value Logistic(Value x);
Value Rsqrt(Value x);
Value Sqrt(Value x);
Value Abs(Value x);
Value RoundEven(Value x);
Value PopulationCount(Value x);
Value ReducePrecision(Value x, int64_t exponent_bits, int64_t mantissa_bits);
Value IsFinite(Value x);
Value Convert(Value x, DType to);
Value Compare(Value x, const char* direction, Value y);
Value Select(Value pred, Value yes, Value no);

Value Broadcast(Value x, const Dims& shape, const Dims& dims);
/// x with new dimensions of the given sizes in front / at the end.
Value BroadcastFront(Value x, const Dims& sizes);
Value BroadcastBack(Value x, const Dims& sizes);
Value Reshape(Value x, const Dims& shape);
Value Transpose(Value x, const Dims& order);
Value Slice(Value x, const Dims& first, const Dims& last);
/// Elements [first, last) of one dimension.
Value SliceDim(Value x, int64_t dim, int64_t first, int64_t last);
Value Concatenate(const Values& parts, int64_t dim);
Value Pad(Value x, const Dims& before, const Dims& after);
Value GatherRows(Value table, Value index);
Value ScatterRows(Value table, Value index, Value rows);
Value DynamicSlice(Value x, const Values& index, const Dims& sizes);
Value DynamicUpdateSlice(Value x, Value part, const Values& index);
/// x[i] and x with x[i] = part, along the first dimension; i a scalar of kS32.
Value Row(Value x, Value i);
Value SetRow(Value x, Value i, Value part);

Value ReduceAdd(Value x, const Dims& dims);
Value ReduceMax(Value x, const Dims& dims);
/// Result: batch dimensions, x's free ones, y's free ones.
Value Dot(Value x, Value y, const Dims& batch_x, const Dims& batch_y, const Dims& over_x,
          const Dims& over_y);
/// x [..., i] times w [i, o].
Value MatMul(Value x, Value w);

Values Barrier(const Values& xs);
Value AllReduce(Value x, int64_t replicas);

/// x, through which no gradient passes.
Value StopGradient(Value x);
/// `outputs`, computed from `inputs` by any operations; their gradient is `gradient` alone.
Values Custom(const Values& inputs, const Values& outputs, CustomGradient gradient);
/// The parts of x along a dimension; their gradients are joined again, not padded.
Values Split(Value x, int64_t dim, const Dims& sizes);

/// body(i, carried, invariant) -> carried, `times` times, i = 0, 1, ... (scalar kS32). Not
/// differentiated by itself: see scan.h.
using LoopBody =
    std::function<Values(Graph& g, Value i, const Values& carried, const Values& invariant)>;
Values Loop(Graph& g, int64_t times, const Values& init, const Values& invariant,
            const LoopBody& body);

/// Copies what `wanted` (ids of `from`) need into `to`; `known` maps ids of `from` to values of
/// `to` and grows.
void CloneInto(const Graph& from, std::span<const int> wanted, Graph& to,
               std::vector<Value>& known);

}  // namespace needle::hlo
