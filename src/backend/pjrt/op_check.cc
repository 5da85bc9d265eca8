#include "backend/pjrt/op_check.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "base/str_cat.h"

namespace needle::pjrt {
namespace {

// A few units in the last place of float32: devices approximate exp, log and the like themselves.
constexpr double kExact = 0, kRounded = 2e-7, kApproximate = 1e-5;

using Floats = std::vector<float>;

struct Case {
  std::string operation;
  std::string body;  // of @main, without its return; the result is %y
  ArraySpec result;  // float32
  Floats a, b;       // %a and %b: [2,3] each
  Floats wanted;
  double allowed = kRounded;
};

constexpr const char* kIn = "tensor<2x3xf32>";
const ArraySpec kSpec{DType::kF32, {2, 3}};

std::string TypeText(const ArraySpec& spec) {
  std::string out = "tensor<";
  for (const int64_t n : spec.shape) out += StrCat(n, "x");
  return StrCat(out, Name(spec.dtype), ">");
}

Case Unary(const std::string& name, const Floats& a, const std::function<double(double)>& f,
           double allowed) {
  Case c{name, StrCat("%y = stablehlo.", name, " %a : ", kIn), kSpec, a, a, {}, allowed};
  for (const float x : a) c.wanted.push_back(static_cast<float>(f(x)));
  return c;
}

Case Binary(const std::string& name, const Floats& a, const Floats& b,
            const std::function<double(double, double)>& f) {
  Case c{name, StrCat("%y = stablehlo.", name, " %a, %b : ", kIn), kSpec, a, b, {}, kRounded};
  for (size_t i = 0; i < a.size(); ++i) c.wanted.push_back(static_cast<float>(f(a[i], b[i])));
  return c;
}

const Floats kMixed = {-2.5f, -0.75f, 0.5f, 1.25f, 3.5f, -4.0f};
const Floats kOther = {0.5f, -1.5f, 2.25f, -3.0f, 0.125f, 1.0f};
const Floats kPositive = {0.03f, 0.5f, 1.0f, 2.7f, 19.0f, 400.0f};

void AddElementwise(std::vector<Case>& cases) {
  cases.push_back(Binary("add", kMixed, kOther, [](double x, double y) { return x + y; }));
  cases.push_back(Binary("subtract", kMixed, kOther, [](double x, double y) { return x - y; }));
  cases.push_back(Binary("multiply", kMixed, kOther, [](double x, double y) { return x * y; }));
  cases.push_back(Binary("divide", kMixed, kOther, [](double x, double y) { return x / y; }));
  cases.push_back(
      Binary("maximum", kMixed, kOther, [](double x, double y) { return std::max(x, y); }));
  cases.push_back(
      Binary("minimum", kMixed, kOther, [](double x, double y) { return std::min(x, y); }));
  cases.push_back(Unary(
      "negate", kMixed, [](double x) { return -x; }, kExact));
  cases.push_back(Unary(
      "abs", kMixed, [](double x) { return std::abs(x); }, kExact));
  cases.push_back(Unary(
      "round_nearest_even", kMixed, [](double x) { return std::nearbyint(x); }, kExact));
  cases.push_back(Unary(
      "exponential", kMixed, [](double x) { return std::exp(x); }, kApproximate));
  cases.push_back(Unary(
      "log", kPositive, [](double x) { return std::log(x); }, kApproximate));
  cases.push_back(Unary(
      "logistic", kMixed, [](double x) { return 1 / (1 + std::exp(-x)); }, kApproximate));
  cases.push_back(Unary(
      "sqrt", kPositive, [](double x) { return std::sqrt(x); }, kApproximate));
  cases.push_back(Unary(
      "rsqrt", kPositive, [](double x) { return 1 / std::sqrt(x); }, kApproximate));
}

/// Adds a case of kMixed and kOther. (The result has a name: GCC 12 warns of one that has none.)
auto RoundedCasesOf(std::vector<Case>& cases) {
  return [&cases](const char* operation, const std::string& body, std::vector<int64_t> shape,
                  Floats wanted) {
    const ArraySpec result{DType::kF32, std::move(shape)};
    cases.push_back({operation, body, result, kMixed, kOther, std::move(wanted), kRounded});
  };
}

// What moves and sums elements: %a is [2,3] row-major, so element (i, j) is a[3 * i + j].
void AddStructural(std::vector<Case>& cases) {
  const Floats &a = kMixed, &b = kOther;
  const auto add = RoundedCasesOf(cases);
  Floats product;
  for (size_t i = 0; i < 2; ++i)
    for (size_t j = 0; j < 2; ++j) {
      double sum = 0;
      for (size_t k = 0; k < 3; ++k) sum += double{a[3 * i + k]} * b[3 * j + k];
      product.push_back(static_cast<float>(sum));
    }
  add("dot_general",
      "%y = stablehlo.dot_general %a, %b, contracting_dims = [1] x [1], precision = [HIGHEST, "
      "HIGHEST] : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2xf32>",
      {2, 2}, product);
  add("transpose",
      "%y = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>", {3, 2},
      {a[0], a[3], a[1], a[4], a[2], a[5]});
  add("reshape", "%y = stablehlo.reshape %a : (tensor<2x3xf32>) -> tensor<6xf32>", {6}, a);
  add("slice", "%y = stablehlo.slice %a [0:2, 1:3] : (tensor<2x3xf32>) -> tensor<2x2xf32>", {2, 2},
      {a[1], a[2], a[4], a[5]});
  add("concatenate",
      "%y = stablehlo.concatenate %a, %b, dim = 1 : (tensor<2x3xf32>, tensor<2x3xf32>) -> "
      "tensor<2x6xf32>",
      {2, 6}, {a[0], a[1], a[2], b[0], b[1], b[2], a[3], a[4], a[5], b[3], b[4], b[5]});
  add("pad",
      "%z = stablehlo.constant dense<0.0> : tensor<f32>\n"
      "%y = stablehlo.pad %a, %z, low = [1, 0], high = [0, 0], interior = [0, 0] : "
      "(tensor<2x3xf32>, tensor<f32>) -> tensor<3x3xf32>",
      {3, 3}, {0, 0, 0, a[0], a[1], a[2], a[3], a[4], a[5]});
  add("broadcast_in_dim",
      "%r = stablehlo.slice %a [1:2, 0:3] : (tensor<2x3xf32>) -> tensor<1x3xf32>\n"
      "%f = stablehlo.reshape %r : (tensor<1x3xf32>) -> tensor<3xf32>\n"
      "%y = stablehlo.broadcast_in_dim %f, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>",
      {2, 3}, {a[3], a[4], a[5], a[3], a[4], a[5]});
  add("iota", "%y = stablehlo.iota dim = 1 : tensor<2x3xf32>", {2, 3}, {0, 1, 2, 0, 1, 2});
  add("convert",
      "%i = stablehlo.convert %a : (tensor<2x3xf32>) -> tensor<2x3xi32>\n"
      "%y = stablehlo.convert %i : (tensor<2x3xi32>) -> tensor<2x3xf32>",
      {2, 3}, {-2, 0, 0, 1, 3, -4});
}

void AddChoices(std::vector<Case>& cases) {
  const Floats &a = kMixed, &b = kOther;
  const auto add = RoundedCasesOf(cases);
  Floats chosen;
  for (size_t i = 0; i < 6; ++i) chosen.push_back(a[i] > b[i] ? a[i] : b[i]);
  add("select",
      "%c = stablehlo.compare GT, %a, %b : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>\n"
      "%y = stablehlo.select %c, %a, %b : tensor<2x3xi1>, tensor<2x3xf32>",
      {2, 3}, chosen);
  for (const bool sum : {true, false}) {
    Floats wanted;
    for (size_t i = 0; i < 2; ++i)
      wanted.push_back(sum ? a[3 * i] + a[3 * i + 1] + a[3 * i + 2]
                           : std::max({a[3 * i], a[3 * i + 1], a[3 * i + 2]}));
    add(sum ? "reduce (add)" : "reduce (maximum)",
        StrCat("%z = stablehlo.constant dense<", sum ? "0.0" : "0xFF800000",
               "> : tensor<f32>\n%y = stablehlo.reduce(%a init: %z) applies stablehlo.",
               sum ? "add" : "maximum",
               " across dimensions = [1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<2xf32>"),
        {2}, wanted);
  }
  add("dynamic_slice",
      "%i = stablehlo.constant dense<1> : tensor<i32>\n"
      "%y = stablehlo.dynamic_slice %a, %i, %i, sizes = [1, 2] : (tensor<2x3xf32>, tensor<i32>, "
      "tensor<i32>) -> tensor<1x2xf32>",
      {1, 2}, {a[4], a[5]});
  add("dynamic_update_slice",
      "%i = stablehlo.constant dense<1> : tensor<i32>\n%o = stablehlo.constant dense<0> : "
      "tensor<i32>\n%r = stablehlo.slice %b [0:1, 0:3] : (tensor<2x3xf32>) -> tensor<1x3xf32>\n"
      "%y = stablehlo.dynamic_update_slice %a, %r, %i, %o : (tensor<2x3xf32>, tensor<1x3xf32>, "
      "tensor<i32>, tensor<i32>) -> tensor<2x3xf32>",
      {2, 3}, {a[0], a[1], a[2], b[0], b[1], b[2]});
}

// Rows 1, 0, 1 of %a; and %b's rows added to rows 1 and 1 of %a. A loop that doubles three times.
void AddGathers(std::vector<Case>& cases) {
  const Floats &a = kMixed, &b = kOther;
  const ArraySpec three_rows{DType::kF32, {3, 3}};
  cases.push_back(
      {"gather",
       "%i = stablehlo.constant dense<[[1], [0], [1]]> : tensor<3x1xi32>\n"
       "%y = \"stablehlo.gather\"(%a, %i) <{dimension_numbers = #stablehlo.gather<offset_dims = "
       "[1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, "
       "indices_are_sorted = false, slice_sizes = array<i64: 1, 3>}> : (tensor<2x3xf32>, "
       "tensor<3x1xi32>) -> tensor<3x3xf32>",
       three_rows,
       a,
       b,
       {a[3], a[4], a[5], a[0], a[1], a[2], a[3], a[4], a[5]},
       kExact});
  cases.push_back(
      {"scatter",
       "%i = stablehlo.constant dense<[[1], [1]]> : tensor<2x1xi32>\n"
       "%y = \"stablehlo.scatter\"(%a, %i, %b) <{scatter_dimension_numbers = "
       "#stablehlo.scatter<update_window_dims = [1], inserted_window_dims = [0], "
       "scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, indices_are_sorted = false, "
       "unique_indices = false}> ({\n^bb0(%p: tensor<f32>, %q: tensor<f32>):\n"
       "%s = stablehlo.add %p, %q : tensor<f32>\nstablehlo.return %s : tensor<f32>\n}) : "
       "(tensor<2x3xf32>, tensor<2x1xi32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
       kSpec,
       a,
       b,
       {a[0], a[1], a[2], a[3] + b[0] + b[3], a[4] + b[1] + b[4], a[5] + b[2] + b[5]},
       kRounded});
  Case loop{"while",
            "%o = stablehlo.constant dense<0> : tensor<i32>\n"
            "%one = stablehlo.constant dense<1> : tensor<i32>\n"
            "%n = stablehlo.constant dense<3> : tensor<i32>\n"
            "%w:2 = stablehlo.while(%i = %o, %x = %a) : tensor<i32>, tensor<2x3xf32>\n"
            "cond {\n%c = stablehlo.compare LT, %i, %n : (tensor<i32>, tensor<i32>) -> "
            "tensor<i1>\nstablehlo.return %c : tensor<i1>\n} do {\n"
            "%x2 = stablehlo.add %x, %x : tensor<2x3xf32>\n"
            "%i2 = stablehlo.add %i, %one : tensor<i32>\n"
            "stablehlo.return %i2, %x2 : tensor<i32>, tensor<2x3xf32>\n}\n"
            "%y = stablehlo.reshape %w#1 : (tensor<2x3xf32>) -> tensor<2x3xf32>",
            kSpec,
            a,
            b,
            {},
            kExact};
  for (const float x : a) loop.wanted.push_back(8 * x);
  cases.push_back(std::move(loop));
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  AddElementwise(cases);
  AddStructural(cases);
  AddChoices(cases);
  AddGathers(cases);
  return cases;
}

Program ProgramOf(const Case& c) {
  const std::string result = TypeText(c.result);
  return {StrCat("module @check {\nfunc.func public @main(%a: ", kIn, ", %b: ", kIn, ") -> ",
                 result, " {\n", c.body, "\nreturn %y : ", result, "\n}\n}\n"),
          {kSpec, kSpec},
          {c.result},
          {}};
}

Result<Floats> RunOn(Client& client, int device, const Case& c) {
  CompileOptions options;
  options.devices = {client.Devices()[static_cast<size_t>(device)].id};
  NEEDLE_ASSIGN(Executable program, client.Compile(ProgramOf(c), options));
  NEEDLE_ASSIGN(Buffer a, client.Upload(c.a.data(), kSpec, device));
  NEEDLE_ASSIGN(Buffer b, client.Upload(c.b.data(), kSpec, device));
  NEEDLE_ASSIGN(const auto out, program.Run({{&a, &b}}));
  return out[0][0].Floats();
}

double RelativeError(const Floats& got, const Floats& wanted) {
  double worst = 0, largest = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double difference = std::abs(double{got[i]} - wanted[i]);
    worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
    largest = std::max(largest, std::abs(double{wanted[i]}));
  }
  return worst / largest;
}

}  // namespace

std::vector<OpCheck> CheckOperations(Client& client, int device) {
  std::vector<OpCheck> checks;
  for (const Case& c : Cases()) {
    OpCheck check;
    check.operation = c.operation;
    check.allowed = c.allowed;
    const Result<Floats> got = RunOn(client, device, c);
    if (got.ok()) {
      check.error = RelativeError(*got, c.wanted);
    } else {
      check.failure = got.error().message();
    }
    checks.push_back(std::move(check));
  }
  return checks;
}

}  // namespace needle::pjrt
