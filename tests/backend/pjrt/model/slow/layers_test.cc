// Layers in a loop and in a row, kept and computed again, in float64 on the CPU plugin against
// central differences.
#include "backend/pjrt/hlo/scan.h"
#include "backend/pjrt/model/differentiated.h"
#include "backend/pjrt/pieces.h"

namespace needle::hlo {
namespace {

using namespace test;  // NOLINT

/// x <- x + tanh-like mix of x with a stacked weight, an invariant and a low-rank square.
Values MixLayer(Graph&, const Values& x, const NamedValues& w, const NamedValues& fixed) {
  const Value mixed = MatMul(x[0], w.at("w")) * Logistic(x[1]);
  return {x[0] + mixed * fixed.at("k"), x[1] - pjrt::Softmax(mixed) + x[0] * x[1]};
}

TEST_F(HloGradient, OfLayersIsTheSameScannedUnrolledSavedAndComputedAgain) {
  const Point at = Point::Of({{2, 3}, {2, 3}, {4, 3, 3}, {2, 3}}, 0.5);
  std::vector<double> first;
  for (const bool unroll : {false, true})
    for (const bool remat : {false, true}) {
      const Function f = [&](Graph& g, const Values& x) {
        ScanInputs in;
        in.carried = {x[0], x[1]};
        in.stacked["w"] = x[2];
        in.invariant["k"] = x[3];
        in.trained = {"w", "k"};
        ScanOptions options;
        options.unroll = unroll;
        options.remat = remat;
        const Values out = Scan(g, 4, in, MixLayer, options);
        return out[0] * out[1];
      };
      Differentiated d(at, f);
      EXPECT_EQ("", d.Compare()) << "unroll " << unroll << ", remat " << remat;
      if (first.empty()) first = d.value();
      EXPECT_EQ("", Mismatch(d.value(), first, 1e-14, 0));
    }
}

}  // namespace
}  // namespace needle::hlo
