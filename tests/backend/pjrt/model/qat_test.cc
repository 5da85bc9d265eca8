// The quantisers on the CPU plugin against the archive's. Whole models: the trajectories, and the
// slow program's gradients.
#include <gtest/gtest.h>

#include "backend/pjrt/model/on_plugin.h"
#include "backend/pjrt/pieces.h"
#include "support/mismatch.h"

namespace needle {
namespace {

using namespace test;  // NOLINT

/// Runs a function of one float array on the plugin.
std::vector<float> OnDevice(const std::vector<float>& x, const hlo::Dims& shape,
                            const std::function<hlo::Value(hlo::Graph&, hlo::Value)>& f) {
  hlo::Graph g;
  const hlo::Value in = g.Parameter({hlo::DType::kF32, shape}, "x");
  g.SetResults(hlo::Values{f(g, in)});
  const std::shared_ptr<pjrt::Client> client = CpuClient(CpuPlugin());
  Result<pjrt::Executable> program = client->Compile(hlo::Print(g).program, {});
  EXPECT_TRUE(program.ok()) << (program.ok() ? "" : program.error().message());
  pjrt::Buffer buffer = client->Upload(x.data(), {hlo::DType::kF32, shape}).value();
  return program->Run({{&buffer}}).value()[0][0].Floats().value();
}

class PjrtCodebook : public testing::Test {
 protected:
  void SetUp() override { NEEDLE_NEED_PLUGIN(CpuPlugin()); }
};

/// w + (q - w) by the quantiser of the archive.
std::vector<float> StraightThrough(const std::vector<float>& w, size_t rows, Bits bits,
                                   size_t group) {
  std::vector<float> out = w, q(w.size() / rows);
  const size_t n = w.size() / rows;
  for (size_t r = 0; r < rows; ++r) {
    FakeQuantizeRow({&w[r * n], n}, q, bits, group);
    for (size_t i = 0; i < n; ++i) out[r * n + i] += q[i] - out[r * n + i];
  }
  return out;
}

TEST_F(PjrtCodebook, RowsAreQuantisedAsTheArchiveDoes) {
  const Npz golden = ReadNpz(Golden("quant/cq.npz"));
  for (const std::string name : {"a", "b", "c", "e"}) {
    const NpyArray& w = golden.at(name + "/w");
    const std::vector<float> values = w.As<float>();
    for (const Bits bits : {Bits::k2, Bits::k3, Bits::k4, Bits::kTernary}) {
      const std::vector<float> got = OnDevice(values, w.shape, [&](hlo::Graph& g, hlo::Value x) {
        return pjrt::CodebookRows(x, bits, kGroup, pjrt::HadamardMatrix(g, kGroup));
      });
      const std::vector<float> want =
          StraightThrough(values, static_cast<size_t>(w.shape[0]), bits, kGroup);
      const auto n = static_cast<size_t>(w.shape[1]);
      size_t flipped = 0;  // a code within rounding of a midpoint moves its whole group
      for (size_t first = 0; first < got.size(); first += std::min(kGroup, n - first % n)) {
        double worst = 0, largest = 0;
        bool finite = true;
        for (size_t i = first; i < first + std::min(kGroup, n - first % n); ++i) {
          finite &= std::isfinite(want[i]);
          EXPECT_TRUE(finite || !std::isfinite(got[i])) << name << " " << i;
          worst = std::max(worst, std::abs(double{got[i]} - double{want[i]}));
          largest = std::max(largest, std::abs(double{want[i]}));
        }
        flipped += finite && worst > 2e-6 * largest;
      }
      EXPECT_LE(flipped, 1u) << name << " " << Name(bits);
    }
  }
}

TEST_F(PjrtCodebook, ColumnsAreTheTransposedRows) {
  const Npz golden = ReadNpz(Golden("quant/cq.npz"));
  const std::vector<float> values = golden.at("a/w").As<float>();  // [8, 200]
  std::vector<float> turned(values.size());
  for (size_t r = 0; r < 8; ++r)
    for (size_t c = 0; c < 200; ++c) turned[c * 8 + r] = values[r * 200 + c];
  const std::vector<float> rows = OnDevice(values, {8, 200}, [&](hlo::Graph& g, hlo::Value x) {
    return pjrt::CodebookRows(x, Bits::k4, kGroup, pjrt::HadamardMatrix(g, kGroup));
  });
  const std::vector<float> columns = OnDevice(turned, {200, 8}, [&](hlo::Graph& g, hlo::Value x) {
    return pjrt::CodebookColumns(x, Bits::k4, kGroup, pjrt::HadamardMatrix(g, kGroup));
  });
  std::vector<float> back(values.size());
  for (size_t r = 0; r < 8; ++r)
    for (size_t c = 0; c < 200; ++c) back[r * 200 + c] = columns[c * 8 + r];
  EXPECT_LE(RelativeMax(back, rows), 1e-6);
}

TEST_F(PjrtCodebook, ActivationsAreQuantisedAsTheEngineDoes) {
  const Npz golden = ReadNpz(Golden("quant/cq.npz"));
  const NpyArray& x = golden.at("act/x");
  const std::vector<float> values = x.As<float>();
  const size_t n = static_cast<size_t>(x.shape[1]);
  const std::vector<float> got =
      OnDevice(values, x.shape, [](hlo::Graph&, hlo::Value v) { return pjrt::FakeQuantise(v, 8); });
  std::vector<float> want = values;
  for (size_t r = 0; r < want.size() / n; ++r) FakeQuantizeActivations({&want[r * n], n}, 8);
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace needle
