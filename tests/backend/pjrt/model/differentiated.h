// Test support: a function's gradient on the CPU plugin in float64, beside central differences.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/pjrt/hlo/gradient.h"
#include "backend/pjrt/hlo/print.h"
#include "backend/pjrt/model/on_plugin.h"
#include "support/mismatch.h"
#include "support/witness.h"

namespace needle::hlo {

using Function = std::function<Value(Graph& g, const Values& x)>;

inline constexpr DType kReal = DType::kF64;

struct Point {
  std::vector<Dims> shapes;
  std::vector<std::vector<double>> values;
  static Point Of(const std::vector<Dims>& shapes, double scale = 1) {
    Point p{shapes, {}};
    for (size_t i = 0; i < shapes.size(); ++i) {
      size_t n = 1;
      for (const int64_t d : shapes[i]) n *= static_cast<size_t>(d);
      p.values.push_back(test::Normal(n, static_cast<uint32_t>(i) + 1, scale));
    }
    return p;
  }
};

/// A function's value, the sum of that value times fixed weights, and the gradients of that sum.
class Differentiated {
 public:
  Differentiated(const Point& at, const Function& f)
      : at_(at), client_(test::CpuClient(test::CpuPlugin())) {
    Graph g;
    Values xs;
    for (size_t i = 0; i < at.shapes.size(); ++i)
      xs.push_back(g.Parameter({kReal, at.shapes[i]}, std::to_string(i)));
    const Value y = f(g, xs);
    size_t n = 1;
    for (const int64_t d : y.shape()) n *= static_cast<size_t>(d);
    value_.resize(n);
    const Value dy = Constant(g, test::Normal(n, 99), y.type());
    Dims all(y.rank());
    for (size_t d = 0; d < all.size(); ++d) all[d] = static_cast<int64_t>(d);
    Values results = {ReduceAdd(y * dy, all), y};
    for (const Value& d : Gradients({y}, {dy}, xs)) {
      EXPECT_TRUE(static_cast<bool>(d)) << "an input without a gradient";
      if (d) results.push_back(d);
    }
    g.SetResults(results);
    Result<pjrt::Executable> made = client_->Compile(Print(g).program, {});
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message()) << Print(g).program.text;
    if (made.ok()) program_.emplace(*std::move(made));
  }

  /// "" when the gradient agrees with the five-point difference.
  std::string Compare() {
    if (!program_) return "not compiled";
    const std::vector<std::vector<double>> got = Run(at_.values);
    value_ = got[1];
    for (size_t i = 0; i < at_.values.size(); ++i) {
      std::vector<std::vector<double>> moved = at_.values;
      const auto sum = [&](std::span<const double> x) {
        moved[i].assign(x.begin(), x.end());
        return Run(moved)[0][0];
      };
      const std::string wrong =
          test::Mismatch(got[2 + i], test::FiniteDifference(sum, at_.values[i]), 1e-7, 1e-9);
      if (!wrong.empty()) return "input " + std::to_string(i) + ": " + wrong;
    }
    return "";
  }
  /// The function's value, after Compare.
  const std::vector<double>& value() const { return value_; }

 private:
  std::vector<std::vector<double>> Run(const std::vector<std::vector<double>>& x) {
    std::vector<pjrt::Buffer> in;
    std::vector<pjrt::Buffer*> args;
    for (size_t i = 0; i < x.size(); ++i)
      in.push_back(client_->Upload(x[i].data(), {kReal, at_.shapes[i]}).value());
    for (pjrt::Buffer& b : in) args.push_back(&b);
    std::vector<std::vector<double>> out;
    const std::vector<std::vector<pjrt::Buffer>> results = program_->Run({args}).value();
    for (const pjrt::Buffer& b : results[0]) {
      out.emplace_back(static_cast<size_t>(b.spec().elements()));
      EXPECT_TRUE(b.CopyTo(out.back().data()).ok());
    }
    return out;
  }

  Point at_;
  std::shared_ptr<pjrt::Client> client_;
  std::optional<pjrt::Executable> program_;
  std::vector<double> value_;
};

class HloGradient : public testing::Test {
 protected:
  void SetUp() override { NEEDLE_NEED_PLUGIN(test::CpuPlugin()); }
};

}  // namespace needle::hlo
