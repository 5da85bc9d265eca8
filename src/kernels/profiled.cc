#include "kernels/profiled.h"

#include <algorithm>

#include "base/profile.h"

namespace needle {
namespace {

Kernels timed;  // the table whose calls are recorded

/// FLOP of a call, from its arguments; 0 for what is not a product.
template <auto kMember>
struct FlopOf {
  template <class... Args>
  static double Count(const Args&...) {
    return 0;
  }
};

double Product(size_t M, size_t N, size_t K) {
  return 2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K);
}

/// One product over the pairs of query and visible key, all heads of the group.
double VisibleProduct(const AttentionBlock& b) {
  size_t pairs = 0;
  const auto first = static_cast<int32_t>(b.first_row);
  const auto last = static_cast<int32_t>(b.first_row + b.m);
  for (size_t s = 0; s < b.span_count; ++s)
    for (int32_t j = b.spans[s].begin; j < b.spans[s].end; ++j)
      pairs += static_cast<size_t>(
          std::max(0, std::min(b.key_end[j], last) - std::max(b.key_first[j], first)));
  return Product(pairs, b.E, b.group);
}

/// The sizes of a product come first, the summed one last.
struct FlopOfProduct {
  template <class... Rest>
  static double Count(size_t M, size_t N, size_t K, const Rest&...) {
    return Product(M, N, K);
  }
};
template <>
struct FlopOf<&Kernels::gemm> : FlopOfProduct {};
template <>
struct FlopOf<&Kernels::gemm_tn> : FlopOfProduct {};
template <>
struct FlopOf<&Kernels::gemm_int24> : FlopOfProduct {};
template <>
struct FlopOf<&Kernels::attention_forward> {
  template <class... Rest>
  static double Count(const AttentionBlock& b, const Rest&...) {
    return 2 * VisibleProduct(b);
  }
};
template <>
struct FlopOf<&Kernels::attention_backward> {
  template <class... Rest>
  static double Count(const AttentionBlock& b, const Rest&...) {
    return 5 * VisibleProduct(b);
  }
};

template <auto kMember>
const char* name_of = "";

template <auto kMember, class Function>
struct Wrapper;
template <auto kMember, class R, class... Args>
struct Wrapper<kMember, R (*Kernels::*)(Args...)> {
  static R Call(Args... args) {
    const ProfileOperation scope(name_of<kMember>, FlopOf<kMember>::Count(args...));
    return (timed.*kMember)(args...);
  }
};

template <auto kMember>
void Wrap(Kernels& table, const char* name) {
  if (table.*kMember == nullptr) return;
  name_of<kMember> = name;
  table.*kMember = &Wrapper<kMember, decltype(kMember)>::Call;
}

}  // namespace

const Kernels& ProfiledKernels(const Kernels& kernels) {
  static Kernels table;
  timed = kernels;
  table = kernels;
#define NEEDLE_WRAP(member) Wrap<&Kernels::member>(table, #member)
  NEEDLE_WRAP(pack);
  NEEDLE_WRAP(gemm);
  NEEDLE_WRAP(gemm_tn);
  NEEDLE_WRAP(quantise_int8);
  NEEDLE_WRAP(pack_int24);
  NEEDLE_WRAP(gemm_int24);
  NEEDLE_WRAP(attention_forward);
  NEEDLE_WRAP(attention_backward);
  NEEDLE_WRAP(rms_norm_forward);
  NEEDLE_WRAP(rms_norm_backward);
  NEEDLE_WRAP(rope);
  NEEDLE_WRAP(gate_forward);
  NEEDLE_WRAP(gate_backward);
  NEEDLE_WRAP(scalar_gate_forward);
  NEEDLE_WRAP(scalar_gate_backward);
  NEEDLE_WRAP(hadamard_mlp_forward);
  NEEDLE_WRAP(hadamard_mlp_backward);
  NEEDLE_WRAP(lane_coefficients_forward);
  NEEDLE_WRAP(lane_coefficients_backward);
  NEEDLE_WRAP(lanes_in_forward);
  NEEDLE_WRAP(lanes_in_backward);
  NEEDLE_WRAP(lanes_out_forward);
  NEEDLE_WRAP(lanes_out_backward);
  NEEDLE_WRAP(unit_scale_forward);
  NEEDLE_WRAP(unit_scale_backward);
  NEEDLE_WRAP(engram_mix_forward);
  NEEDLE_WRAP(engram_mix_backward);
  NEEDLE_WRAP(lane_mean_forward);
  NEEDLE_WRAP(lane_mean_backward);
  NEEDLE_WRAP(cross_entropy_row);
  NEEDLE_WRAP(residual);
  NEEDLE_WRAP(walsh_hadamard);
  NEEDLE_WRAP(fake_quantise);
  NEEDLE_WRAP(fake_quantise_activations);
  NEEDLE_WRAP(sum_squares);
  NEEDLE_WRAP(axpy);
  NEEDLE_WRAP(adamw);
#undef NEEDLE_WRAP
  return table;
}

}  // namespace needle
