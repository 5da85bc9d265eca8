#include "backend/pjrt/hlo/print.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>

#include "base/str_cat.h"

namespace needle::hlo {
namespace {

std::string TypeText(const Type& type) {
  std::string out = "tensor<";
  for (const int64_t d : type.shape) out += StrCat(d, "x");
  return StrCat(out, pjrt::Name(type.dtype), ">");
}

std::string List(const Dims& dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) out += StrCat(i ? ", " : "", dims[i]);
  return out + "]";
}

/// Bits for floats, so that nothing is lost.
std::string Number(double value, DType dtype) {
  if (dtype == DType::kPred) return value != 0 ? "true" : "false";
  char text[24];
  if (dtype == DType::kF64) {
    std::snprintf(text, sizeof text, "0x%016llX",
                  static_cast<unsigned long long>(std::bit_cast<uint64_t>(value)));
    return text;
  }
  if (dtype != DType::kF32) return StrCat(static_cast<int64_t>(value));
  std::snprintf(text, sizeof text, "0x%08X", std::bit_cast<uint32_t>(static_cast<float>(value)));
  return text;
}

/// Nested brackets around the elements.
std::string Elements(const std::vector<double>& values, const Dims& shape, DType dtype, size_t dim,
                     size_t* at) {
  if (dim == shape.size()) return Number(values[(*at)++], dtype);
  std::string out = "[";
  for (int64_t i = 0; i < shape[dim]; ++i)
    out += (i ? ", " : "") + Elements(values, shape, dtype, dim + 1, at);
  return out + "]";
}

const char* Mnemonic(Op op) {
  switch (op) {
    case Op::kAdd:
      return "add";
    case Op::kSubtract:
      return "subtract";
    case Op::kMultiply:
      return "multiply";
    case Op::kDivide:
      return "divide";
    case Op::kMaximum:
      return "maximum";
    case Op::kMinimum:
      return "minimum";
    case Op::kAnd:
      return "and";
    case Op::kXor:
      return "xor";
    case Op::kNegate:
      return "negate";
    case Op::kExp:
      return "exponential";
    case Op::kLog:
      return "log";
    case Op::kLogistic:
      return "logistic";
    case Op::kRsqrt:
      return "rsqrt";
    case Op::kSqrt:
      return "sqrt";
    case Op::kAbs:
      return "abs";
    case Op::kRoundEven:
      return "round_nearest_even";
    case Op::kPopulationCount:
      return "popcnt";
    case Op::kIsFinite:
      return "is_finite";
    case Op::kConvert:
      return "convert";
    case Op::kReshape:
      return "reshape";
    default:
      return nullptr;
  }
}

class Printer {
 public:
  explicit Printer(std::string* out) : out_(*out) {}

  /// `names`: of the graph's parameters.
  std::vector<std::string> Body(const Graph& g, const std::vector<std::string>& names,
                                const std::string& indent) {
    Scope scope{g, std::vector<std::string>(static_cast<size_t>(g.size())), indent};
    std::vector<bool> need(static_cast<size_t>(g.size()));
    for (const int id : g.results()) need[static_cast<size_t>(id)] = true;
    for (int id = g.size() - 1; id >= 0; --id)
      if (need[static_cast<size_t>(id)])
        for (const int in : g.node(id).in) need[static_cast<size_t>(in)] = true;
    for (size_t i = 0; i < names.size(); ++i)
      scope.name[static_cast<size_t>(g.parameters()[i])] = names[i];
    for (int id = 0; id < g.size(); ++id)
      if (need[static_cast<size_t>(id)]) Emit(scope, id);
    std::vector<std::string> results;
    for (const int id : g.results()) results.push_back(scope.name[static_cast<size_t>(id)]);
    return results;
  }

 private:
  struct Scope {
    const Graph& g;
    std::vector<std::string> name;
    std::string indent;
    const std::string& Of(int id) const { return name[static_cast<size_t>(id)]; }
    std::string TypeOf(int id) const { return TypeText(g.node(id).type); }
  };

  std::string Fresh() { return StrCat("%", next_++); }

  static std::string Operands(const Scope& s, const std::vector<int>& in, size_t first = 0) {
    std::string out;
    for (size_t i = first; i < in.size(); ++i) out += StrCat(i > first ? ", " : "", s.Of(in[i]));
    return out;
  }
  static std::string OperandTypes(const Scope& s, const std::vector<int>& in) {
    std::string out;
    for (size_t i = 0; i < in.size(); ++i) out += StrCat(i ? ", " : "", s.TypeOf(in[i]));
    return out;
  }

  void Line(const Scope& s, const std::string& text) { out_ += s.indent + text + "\n"; }

  void Emit(Scope& s, int id) {
    const Node& n = s.g.node(id);
    std::string& name = s.name[static_cast<size_t>(id)];
    switch (n.op) {
      case Op::kParameter:
        return;
      case Op::kStop:
      case Op::kCustom:
        name = s.Of(n.in[0]);
        return;
      case Op::kResult: {
        const Node& source = s.g.node(n.in[0]);
        name = source.op == Op::kBarrier && source.in.size() == 1
                   ? s.Of(n.in[0])
                   : StrCat(s.Of(n.in[0]), "#", n.a[0]);
        return;
      }
      case Op::kWhile:
        name = Fresh();
        return While(s, n, name);
      default:
        break;
    }
    name = Fresh();
    const std::string head =
        n.op == Op::kBarrier && n.in.size() > 1 ? StrCat(name, ":", n.in.size()) : name;
    Line(s, StrCat(head, " = ", Expression(s, n)));
  }

  std::string Expression(const Scope& s, const Node& n) {
    const std::string to = TypeText(n.type);
    const std::string types = StrCat(" : (", OperandTypes(s, n.in), ") -> ", to);
    switch (n.op) {
      case Op::kConstant: {
        size_t at = 0;
        const std::string text = n.values.size() == 1
                                     ? Number(n.values[0], n.type.dtype)
                                     : Elements(n.values, n.type.shape, n.type.dtype, 0, &at);
        return StrCat("stablehlo.constant dense<", text, "> : ", to);
      }
      case Op::kIota:
        return StrCat("stablehlo.iota dim = ", n.a[0], " : ", to);
      case Op::kCompare:
        return StrCat("stablehlo.compare ", n.text, ", ", Operands(s, n.in), ", ",
                      Kind(s.g.node(n.in[0]).type.dtype), types);
      case Op::kSelect:
        return StrCat("stablehlo.select ", Operands(s, n.in), " : ", s.TypeOf(n.in[0]), ", ", to);
      case Op::kReducePrecision:
        return StrCat("stablehlo.reduce_precision ", Operands(s, n.in), ", format = e", n.a[0], "m",
                      n.a[1], " : ", to);
      case Op::kBroadcast:
        return StrCat("stablehlo.broadcast_in_dim ", Operands(s, n.in), ", dims = ", List(n.a),
                      types);
      case Op::kTranspose:
        return StrCat("stablehlo.transpose ", Operands(s, n.in), ", dims = ", List(n.a), types);
      case Op::kSlice: {
        std::string ranges;
        for (size_t d = 0; d < n.a.size(); ++d)
          ranges += StrCat(d ? ", " : "", n.a[d], ":", n.b[d]);
        return StrCat("stablehlo.slice ", Operands(s, n.in), " [", ranges, "]", types);
      }
      case Op::kConcatenate:
        return StrCat("stablehlo.concatenate ", Operands(s, n.in), ", dim = ", n.a[0], types);
      case Op::kPad:
        return Padding(s, n, to);
      case Op::kGatherRows:
        return Gather(s, n, types);
      case Op::kScatterRows:
        return Scatter(s, n, types);
      case Op::kDynamicSlice:
        return StrCat("stablehlo.dynamic_slice ", Operands(s, n.in), ", sizes = ", List(n.a),
                      types);
      case Op::kDynamicUpdateSlice:
        return StrCat("stablehlo.dynamic_update_slice ", Operands(s, n.in), types);
      case Op::kReduceAdd:
      case Op::kReduceMax:
        return Reduce(s, n, to);
      case Op::kDot:
        return DotText(s, n, types);
      case Op::kBarrier:
        return StrCat("stablehlo.optimization_barrier ", Operands(s, n.in), " : ",
                      OperandTypes(s, n.in));
      case Op::kAllReduce:
        return AllReduceText(s, n, types);
      case Op::kConvert:
      case Op::kReshape:
      case Op::kIsFinite:
        return StrCat("stablehlo.", Mnemonic(n.op), " ", Operands(s, n.in), types);
      default:
        return StrCat("stablehlo.", Mnemonic(n.op), " ", Operands(s, n.in), " : ", to);
    }
  }

  static const char* Kind(DType dtype) {
    if (dtype == DType::kF32 || dtype == DType::kF64) return "FLOAT";
    return dtype == DType::kS32 ? "SIGNED" : "UNSIGNED";
  }

  std::string ScalarConstant(const Scope& s, const std::string& text, DType dtype) {
    std::string name = Fresh();
    Line(s,
         StrCat(name, " = stablehlo.constant dense<", text, "> : tensor<", pjrt::Name(dtype), ">"));
    return name;
  }

  std::string Padding(const Scope& s, const Node& n, const std::string& to) {
    const DType dtype = n.type.dtype;
    const std::string zero = ScalarConstant(s, Number(0, dtype), dtype);
    const Dims none(n.a.size(), 0);
    return StrCat("stablehlo.pad ", Operands(s, n.in), ", ", zero, ", low = ", List(n.a),
                  ", high = ", List(n.b), ", interior = ", List(none), " : (", s.TypeOf(n.in[0]),
                  ", tensor<", pjrt::Name(dtype), ">) -> ", to);
  }

  std::string Reduce(const Scope& s, const Node& n, const std::string& to) {
    const DType dtype = n.type.dtype;
    const bool sum = n.op == Op::kReduceAdd;
    const std::string init = ScalarConstant(s, Number(sum ? 0 : -INFINITY, dtype), dtype);
    return StrCat("stablehlo.reduce(", Operands(s, n.in), " init: ", init, ") applies stablehlo.",
                  sum ? "add" : "maximum", " across dimensions = ", List(n.a), " : (",
                  s.TypeOf(n.in[0]), ", tensor<", pjrt::Name(dtype), ">) -> ", to);
  }

  std::string DotText(const Scope& s, const Node& n, const std::string& types) {
    const std::string batch =
        n.a.empty() ? "" : StrCat("batching_dims = ", List(n.a), " x ", List(n.b), ", ");
    const std::string over = StrCat("contracting_dims = ", List(n.c), " x ", List(n.d));
    if (n.text != "BF16")
      return StrCat("stablehlo.dot_general ", Operands(s, n.in), ", ", batch, over,
                    ", precision = [", n.text, ", ", n.text, "]", types);
    std::string narrow[2], narrow_type[2];
    for (size_t i = 0; i < 2; ++i) {
      narrow[i] = Fresh();
      narrow_type[i] = TypeText({DType::kBf16, s.g.node(n.in[i]).type.shape});
      Line(s, StrCat(narrow[i], " = stablehlo.convert ", s.Of(n.in[i]), " : (", s.TypeOf(n.in[i]),
                     ") -> ", narrow_type[i]));
    }
    return StrCat("stablehlo.dot_general ", narrow[0], ", ", narrow[1], ", ", batch, over, " : (",
                  narrow_type[0], ", ", narrow_type[1], ") -> ", TypeText(n.type));
  }

  std::string Gather(const Scope& s, const Node& n, const std::string& types) {
    const Dims& table = s.g.node(n.in[0]).type.shape;
    Dims offset, sizes = table;
    for (size_t d = 1; d < table.size(); ++d) offset.push_back(static_cast<int64_t>(d));
    sizes[0] = 1;
    std::string size_list;
    for (size_t d = 0; d < sizes.size(); ++d) size_list += StrCat(d ? ", " : "", sizes[d]);
    return StrCat("\"stablehlo.gather\"(", Operands(s, n.in),
                  ") <{dimension_numbers = #stablehlo.gather<offset_dims = ", List(offset),
                  ", collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
                  "indices_are_sorted = false, slice_sizes = array<i64: ",
                  size_list, ">}>", types);
  }

  std::string Sum(DType dtype) {
    const std::string scalar = StrCat("tensor<", pjrt::Name(dtype), ">");
    const std::string a = Fresh(), b = Fresh(), sum = Fresh();
    return StrCat("({ ^bb0(", a, ": ", scalar, ", ", b, ": ", scalar, "): ", sum,
                  " = stablehlo.add ", a, ", ", b, " : ", scalar, " stablehlo.return ", sum, " : ",
                  scalar, " })");
  }

  std::string Scatter(const Scope& s, const Node& n, const std::string& types) {
    Dims window;
    for (size_t d = 1; d < n.type.shape.size(); ++d) window.push_back(static_cast<int64_t>(d));
    return StrCat(
        "\"stablehlo.scatter\"(", Operands(s, n.in),
        ") <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<"
        "update_window_dims = ",
        List(window),
        ", inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, "
        "unique_indices = false}> ",
        Sum(n.type.dtype), types);
  }

  std::string AllReduceText(const Scope& s, const Node& n, const std::string& types) {
    std::string group;
    for (int64_t r = 0; r < n.a[0]; ++r) group += StrCat(r ? ", " : "", r);
    return StrCat("\"stablehlo.all_reduce\"(", Operands(s, n.in), ") <{replica_groups = dense<[[",
                  group, "]]> : tensor<1x", n.a[0], "xi64>}> ", Sum(n.type.dtype), types);
  }

  void While(Scope& s, const Node& n, const std::string& name) {
    const Graph& body = *n.body;
    std::vector<std::string> inside;
    std::string heads, types;
    for (size_t i = 0; i < n.in.size(); ++i) {
      inside.push_back(Fresh());
      heads += StrCat(i ? ", " : "", inside[i], " = ", s.Of(n.in[i]));
      types += StrCat(i ? ", " : "", s.TypeOf(n.in[i]));
    }
    Line(s, StrCat(name, ":", n.in.size(), " = stablehlo.while(", heads, ") : ", types));
    const Scope in{body, {}, s.indent + "  "};
    Line(s, "cond {");
    const std::string limit = ScalarConstant(in, StrCat(n.a[0]), DType::kS32), more = Fresh();
    Line(in, StrCat(more, " = stablehlo.compare LT, ", inside[0], ", ", limit,
                    ", SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>"));
    Line(in, StrCat("stablehlo.return ", more, " : tensor<i1>"));
    Line(s, "} do {");
    const std::vector<std::string> results = Body(body, inside, in.indent);
    std::string all;
    for (size_t i = 0; i < results.size(); ++i) all += StrCat(i ? ", " : "", results[i]);
    Line(in, StrCat("stablehlo.return ", all, " : ", types));
    Line(s, "}");
  }

  std::string& out_;
  int64_t next_ = 0;
};

}  // namespace

NamedProgram Print(const Graph& graph, const std::map<std::string, std::string>& reused) {
  NamedProgram out;
  std::string arguments, result_types;
  std::vector<std::string> names;
  for (const int id : graph.results()) {
    result_types += StrCat(out.program.outputs.empty() ? "" : ", ", TypeText(graph.node(id).type));
    out.program.outputs.push_back(graph.node(id).type);
  }
  out.outputs = graph.result_names();
  for (const int id : graph.parameters()) {
    const Node& n = graph.node(id);
    const size_t i = names.size();
    names.push_back(StrCat("%arg", i));
    std::string attribute;
    if (const auto reuse = reused.find(n.text); reuse != reused.end()) {
      const auto at = std::find(out.outputs.begin(), out.outputs.end(), reuse->second);
      assert(at != out.outputs.end());
      attribute = StrCat(" {tf.aliasing_output = ", at - out.outputs.begin(), " : i32}");
      out.program.donates.push_back(static_cast<int>(i));
    }
    arguments += StrCat(i ? ", " : "", names[i], ": ", TypeText(n.type), attribute);
    out.program.inputs.push_back(n.type);
    out.inputs.push_back(n.text);
  }
  std::string& text = out.program.text;
  text = StrCat("module @needle {\n  func.func public @main(", arguments, ") -> (", result_types,
                ") {\n");
  const std::vector<std::string> results = Printer(&text).Body(graph, names, "    ");
  std::string all;
  for (size_t i = 0; i < results.size(); ++i) all += StrCat(i ? ", " : "", results[i]);
  text += StrCat("    return ", all, " : ", result_types, "\n  }\n}\n");
  return out;
}

}  // namespace needle::hlo
