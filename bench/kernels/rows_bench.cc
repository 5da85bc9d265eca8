// The row-block kernels at the sizes of the base model: one block of 84 rows, D 512, E 64, S 4.
// Items are rows.
#include "kernels/bench_support.h"

namespace needle::bench {
namespace {

constexpr size_t kRows = 84, kD = 512, kE = 64, kS = 4, kC = LaneColumns(kS);

struct Block {
  explicit Block(size_t cols_in, uint32_t seed = 1)
      : data(Normal(kRows * cols_in, seed)), cols(cols_in) {}
  MatView<float> View() { return {data.data(), kRows, cols}; }
  std::vector<float> data;
  size_t cols;
};

/// Registers body(kernels), which handles kRows rows.
template <class Body>
void RegisterRows(const std::string& name, Body body) {
  Register(name, [body](benchmark::State& state, const Kernels& k) mutable {
    for (auto _ : state) {
      body(k);
      benchmark::ClobberMemory();
    }
    state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kRows));
  });
}

void RegisterNorms() {
  for (const size_t E : {kD, kE}) {
    const std::string of = E == kD ? "/wide" : "/heads";
    const std::vector<float> scale = Normal(E, 2);
    RegisterRows("rms_norm_forward" + of,
                 [x = Block(kD), y = Block(kD), scale](const Kernels& k) mutable {
                   k.rms_norm_forward(x.View(), scale, y.View());
                 });
    RegisterRows("rms_norm_backward" + of,
                 [x = Block(kD), dy = Block(kD), dx = Block(kD), scale](const Kernels& k) mutable {
                   k.rms_norm_backward(x.View(), scale, dy.View(), dx.View(), {});
                 });
  }
  RegisterRows("rope", [x = Block(kD), table = RopeTable<float>(1024, kE, 1e5),
                        position = std::vector<int32_t>(kRows, 77)](const Kernels& k) mutable {
    k.rope(x.View(), position, table, 1);
  });
}

void RegisterGates() {
  RegisterRows("gate_forward",
               [a = Block(kD), g = Block(kD), o = Block(kD)](const Kernels& k) mutable {
                 k.gate_forward(a.View(), g.View(), o.View());
               });
  RegisterRows("gate_backward", [a = Block(kD), g = Block(kD), d_o = Block(kD), da = Block(kD),
                                 dg = Block(kD)](const Kernels& k) mutable {
    k.gate_backward(a.View(), g.View(), d_o.View(), da.View(), dg.View());
  });
  RegisterRows("hadamard_mlp_forward",
               [x = Block(kD), y = Block(kD), d = Normal(kD, 3)](const Kernels& k) mutable {
                 k.hadamard_mlp_forward(x.View(), d, d, d, y.View());
               });
  RegisterRows("hadamard_mlp_backward", [x = Block(kD), dy = Block(kD), dx = Block(kD),
                                         d = Normal(kD, 3)](const Kernels& k) mutable {
    k.hadamard_mlp_backward(x.View(), d, d, d, dy.View(), dx.View(), {}, {}, {});
  });
}

void RegisterLanes() {
  const std::vector<float> b4 = Normal(kS, 4), b16 = Normal(kS * kS, 5);
  RegisterRows("lane_coefficients_forward", [r = Block(kC), c = Block(kC), b4,
                                             b16](const Kernels& k) mutable {
    k.lane_coefficients_forward(r.View(), {0.1f, 0.1f, 0.1f, b4, b4, b16, 1}, c.View());
  });
  RegisterRows("lane_coefficients_backward", [r = Block(kC), c = Block(kC), dc = Block(kC),
                                              dr = Block(kC), b4, b16](const Kernels& k) mutable {
    k.lane_coefficients_backward(r.View(), c.View(), {0.1f, 0.1f, 0.1f, b4, b4, b16, 1}, dc.View(),
                                 dr.View(), {});
  });
  RegisterRows("lanes_in_forward",
               [x = Block(kS * kD), c = Block(kC), u = Block(kD)](const Kernels& k) mutable {
                 k.lanes_in_forward(x.View(), c.View(), u.View());
               });
  RegisterRows("lanes_in_backward",
               [x = Block(kS * kD), c = Block(kC), du = Block(kD), dx = Block(kS * kD),
                dc = Block(kC)](const Kernels& k) mutable {
                 k.lanes_in_backward(x.View(), c.View(), du.View(), dx.View(), dc.View());
               });
  RegisterRows("lanes_out_forward", [x = Block(kS * kD), c = Block(kC), y = Block(kD),
                                     next = Block(kS * kD)](const Kernels& k) mutable {
    k.lanes_out_forward(x.View(), c.View(), y.View(), next.View());
  });
  RegisterRows("lanes_out_backward",
               [x = Block(kS * kD), c = Block(kC), y = Block(kD), dnext = Block(kS * kD),
                dx = Block(kS * kD), dy = Block(kD), dc = Block(kC)](const Kernels& k) mutable {
                 k.lanes_out_backward(x.View(), c.View(), y.View(), dnext.View(), dx.View(),
                                      dy.View(), dc.View());
               });
  RegisterRows("unit_scale_forward", [x = Block(kS * kD), r = Block(kC)](const Kernels& k) mutable {
    k.unit_scale_forward(x.View(), r.View());
  });
  RegisterRows("unit_scale_backward", [x = Block(kS * kD), r = Block(kC), dr = Block(kC),
                                       dx = Block(kS * kD)](const Kernels& k) mutable {
    k.unit_scale_backward(x.View(), r.View(), dr.View(), dx.View());
  });
}

void RegisterQuantise() {
  for (const Bits bits : {Bits::k2, Bits::k4})
    RegisterRows("fake_quantise/" + std::string(Name(bits)),
                 [x = Block(kD), bits](const Kernels& k) mutable {
                   k.fake_quantise(x.View(), kD, bits, kGroup);
                 });
  RegisterRows("fake_quantise_activations", [x = Block(kD)](const Kernels& k) mutable {
    k.fake_quantise_activations(x.View(), 8);
  });
  RegisterRows("cross_entropy_row/8192",
               [x = Block(8192), ids = std::vector<int32_t>{5},
                weights = std::vector<float>{1}](const Kernels& k) mutable {
                 for (size_t t = 0; t < kRows; ++t)
                   benchmark::DoNotOptimize(k.cross_entropy_row(x.View().RowSpan(t), ids, weights));
               });
  RegisterRows("adamw", [g = Block(kD), p = Block(kD), m = Block(kD),
                         v = std::vector<float>(kRows * kD, 0.1f)](const Kernels& k) mutable {
    k.adamw({}, {1e-4f, 0.5f, 0.5f}, 2.0f, g.data, p.data, m.data, v);
  });
}

}  // namespace

void RegisterRowKernels() {
  RegisterNorms();
  RegisterGates();
  RegisterLanes();
  RegisterQuantise();
}

}  // namespace needle::bench
