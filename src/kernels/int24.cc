// Products of 8-bit rows with 24-bit weights by VPDPBUSD, which adds four products of an unsigned
// and a signed byte to each of sixteen 32-bit sums: three of them do what four multiply-adds of
// floats do, and their sums are exact.
//
// A weight w of a column whose largest magnitude is m is the integer q = round(w * (2^23 - 1) / m),
// stored as q + 2^23 in three bytes. A panel holds 16 columns: for each four of K, the lowest byte
// of all columns (16 x 4), the middle byte, the highest byte; then the columns' scales m / (2^23 -
// 1). What 2^23 adds to a row's result, 2^23 times the sum of its levels, is taken out of the
// highest byte's sum at the start. Sums stay below 2^31 up to K = 65536.
#include "kernels/int24.h"

#if defined(__x86_64__)

// GCC 12 takes the undefined operands of unmasked AVX-512 intrinsics for a mistake (bug 105593).
#if !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/unroll.h"

#define NEEDLE_VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")))

namespace needle {
namespace {

constexpr size_t kBytes = 3;                        // of a weight
constexpr size_t kPanel = Kernels::kInt24Panel;     // columns
constexpr size_t kDepth = 4;                        // of K, that one instruction sums
constexpr size_t kStep = kBytes * kPanel * kDepth;  // bytes of a panel for them
constexpr size_t kMaxRows = 9, kAccumulators = 27;  // of 32 registers
constexpr float kTop = 8388607;                     // 2^23 - 1
constexpr float kNothing = 1e-30f;                  // below: no reciprocal is formed
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// The first n lanes of sixteen, all where n is larger.
__mmask16 FirstLanes(size_t n) { return static_cast<__mmask16>(n >= 16 ? 0xffff : (1u << n) - 1); }

size_t Steps(size_t K) { return (K + kDepth - 1) / kDepth; }

/// Largest magnitude of x, and whether all of x is finite.
struct Range {
  float largest;
  bool finite;
};
NEEDLE_VNNI Range RangeOf(const float* x, size_t n) {
  __m512 largest = _mm512_setzero_ps();
  __mmask16 bad = 0;
  for (size_t i = 0; i < n; i += 16) {
    const __mmask16 live = FirstLanes(n - i);
    const __m512 v = _mm512_maskz_loadu_ps(live, x + i);
    bad |= _mm512_fpclass_ps_mask(v, 0x99);  // NaN of both kinds, infinity of both signs
    largest = _mm512_max_ps(largest, _mm512_abs_ps(v));
  }
  return {_mm512_reduce_max_ps(largest), bad == 0};
}

NEEDLE_VNNI void QuantiseInt8(MatView<const float> x, int bits, const Int8Rows& rows) {
  const float top = static_cast<float>((1 << (bits - 1)) - 1);
  const __m512 high = _mm512_set1_ps(top), low = _mm512_set1_ps(-top - 1);
  const size_t n = x.cols(), padded = Steps(n) * kDepth;
  for (size_t t = 0; t < x.rows(); ++t) {
    const float* row = x.Row(t);
    int8_t* level = rows.level + t * rows.stride;
    const Range range = RangeOf(row, n);
    const float scale = range.largest == 0 ? 1.0f : range.largest / top;
    rows.scale[t] = range.finite ? scale : kNan;
    const __m512 divisor = _mm512_set1_ps(scale);
    __m512i sum = _mm512_setzero_si512();
    for (size_t i = 0; i < padded; i += 16) {
      const __mmask16 live = FirstLanes(n - i), stored = FirstLanes(padded - i);
      const __m512 v = _mm512_div_ps(_mm512_maskz_loadu_ps(live, row + i), divisor);
      const __m512 rounded = _mm512_roundscale_ps(v, 0);  // halves to even
      // A value that is not finite becomes some level; the scale says what the row is.
      const __m512i q = _mm512_cvtps_epi32(_mm512_max_ps(_mm512_min_ps(rounded, high), low));
      sum = _mm512_add_epi32(sum, q);
      _mm512_mask_cvtepi32_storeu_epi8(level + i, stored, q);
    }
    rows.sum[t] = _mm512_reduce_add_epi32(sum);
  }
}

/// One column [K] at `to`, the place of its first byte in its panel.
NEEDLE_VNNI void PackColumn(const float* w, size_t K, uint8_t* to, float* scale) {
  const Range range = RangeOf(w, K);
  const bool some = range.largest >= kNothing && range.finite;
  *scale = !range.finite ? kNan : some ? range.largest / kTop : 0.0f;
  const __m512 factor = _mm512_set1_ps(some ? kTop / range.largest : 0.0f);
  const auto top = static_cast<int>(kTop);
  const __m512i high = _mm512_set1_epi32(top), offset = _mm512_set1_epi32(top + 1);
  for (size_t k = 0; k < K; k += 16) {
    const __mmask16 live = FirstLanes(K - k);
    const __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(live, w + k), factor);
    // The product may round up to one more than the top.
    __m512i q = _mm512_min_epi32(_mm512_maskz_cvtps_epi32(live, v), high);
    q = _mm512_add_epi32(q, offset);
    const size_t steps = std::min<size_t>(4, Steps(K - k));
    for (size_t byte = 0; byte < kBytes; ++byte) {
      alignas(16) int32_t four[4];
      _mm_store_si128(reinterpret_cast<__m128i*>(four), _mm512_cvtepi32_epi8(q));
      uint8_t* at = to + k / kDepth * kStep + byte * kPanel * kDepth;
      for (size_t step = 0; step < steps; ++step)
        std::copy_n(reinterpret_cast<const uint8_t*>(&four[step]), kDepth, at + step * kStep);
      q = _mm512_srli_epi32(q, 8);
    }
  }
}

NEEDLE_VNNI void PackInt24(const float* rows, size_t K, size_t N, uint8_t* panels, size_t n0) {
  const size_t panel_bytes = Kernels::Int24PanelBytes(K);
  for (size_t n = 0; n < N; ++n) {
    uint8_t* panel = panels + (n0 + n) / kPanel * panel_bytes;
    const size_t column = (n0 + n) % kPanel;
    auto* scales = reinterpret_cast<float*>(panel + Steps(K) * kStep);
    PackColumn(rows + n * K, K, panel + column * kDepth, scales + column);
  }
}

struct Product {
  size_t steps, N;
  Int8Rows x;
  const uint8_t* panels;
  size_t panel_bytes;
  float* c;
  size_t ldc;
  // Where the next panel lies, of which this product asks for a part: `steps` lines, each
  // ahead_bytes further.
  const uint8_t* ahead;
  size_t ahead_bytes;
};

/// R rows times P panels from column n on.
template <size_t R, size_t P>
NEEDLE_VNNI inline __attribute__((always_inline)) void Tile(const Product& p, size_t n) {
  __m512i sum[R][P][kBytes];
  NEEDLE_UNROLL
  for (size_t i = 0; i < R; ++i) {
    const __m512i start = _mm512_set1_epi32(-128 * p.x.sum[i]);
    NEEDLE_UNROLL
    for (size_t j = 0; j < P; ++j) {
      sum[i][j][0] = sum[i][j][1] = _mm512_setzero_si512();
      sum[i][j][2] = start;
    }
  }
  const uint8_t* w = p.panels + n / kPanel * p.panel_bytes;
  const int8_t* x = p.x.level;
  const size_t stride = p.x.stride, panel_bytes = p.panel_bytes;
  const uint8_t* ahead = p.ahead;
  for (size_t step = 0; step < p.steps; ++step, w += kStep, x += kDepth) {
    if constexpr (P == 1) {
      // The rest of a panel is near; all groups of rows together ask in time for the next one.
      __builtin_prefetch(ahead, 0, 2);
      ahead += p.ahead_bytes;
    }
    NEEDLE_UNROLL
    for (size_t j = 0; j < P; ++j) {
      __m512i weight[kBytes];
      NEEDLE_UNROLL
      for (size_t byte = 0; byte < kBytes; ++byte)
        weight[byte] = _mm512_loadu_si512(w + j * panel_bytes + byte * kPanel * kDepth);
      NEEDLE_UNROLL
      for (size_t i = 0; i < R; ++i) {
        NEEDLE_UNROLL
        for (size_t byte = 0; byte < kBytes; ++byte) {
          // As the intrinsic, but GCC 12 copies and spills the sums around that one.
          __asm__("vpdpbusd %2%{1to16%}, %1, %0"
                  : "+v"(sum[i][j][byte])
                  : "v"(weight[byte]), "m"(*reinterpret_cast<const int32_t(*)>(x + i * stride)));
        }
      }
    }
  }
  NEEDLE_UNROLL
  for (size_t j = 0; j < P; ++j) {
    const size_t column = n + j * kPanel;
    if (column >= p.N) return;
    const __mmask16 live = FirstLanes(p.N - column);
    const uint8_t* panel = p.panels + column / kPanel * panel_bytes;
    const __m512 scales = _mm512_loadu_ps(panel + p.steps * kStep);
    NEEDLE_UNROLL
    for (size_t i = 0; i < R; ++i) {
      __m512 y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][j][1]), _mm512_set1_ps(256),
                                 _mm512_cvtepi32_ps(sum[i][j][0]));
      y = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[i][j][2]), _mm512_set1_ps(65536), y);
      y = _mm512_mul_ps(y, _mm512_mul_ps(_mm512_set1_ps(p.x.scale[i]), scales));
      _mm512_mask_storeu_ps(p.c + i * p.ldc + column, live, y);
    }
  }
}

/// Panels that R rows take at once, so that few rows still keep many sums in flight.
constexpr size_t PanelsAtOnce(size_t rows) {
  const size_t panels = kAccumulators / (rows * kBytes);
  return panels >= 4 ? 4 : panels >= 2 ? 2 : 1;
}

/// R rows times the panels from column n on: P panels, or what is left of them.
template <size_t R>
NEEDLE_VNNI void RunTiles(const Product& p, size_t n) {
  constexpr size_t P = PanelsAtOnce(R);
  if (n + (P - 1) * kPanel < p.N) return Tile<R, P>(p, n);
  for (; n < p.N; n += kPanel) Tile<R, 1>(p, n);
}

void GemmInt24(size_t M, size_t N, size_t K, const Int8Rows& x, const uint8_t* panels, float* c,
               size_t ldc) {
  if (M == 0 || N == 0) return;
  using Run = void (*)(const Product&, size_t);
  static constexpr Run kRun[kMaxRows] = {&RunTiles<1>, &RunTiles<2>, &RunTiles<3>,
                                         &RunTiles<4>, &RunTiles<5>, &RunTiles<6>,
                                         &RunTiles<7>, &RunTiles<8>, &RunTiles<9>};
  // Equal groups of rows; each panel serves all of them while it is in the first-level cache.
  const size_t groups = (M + kMaxRows - 1) / kMaxRows;
  const size_t at_once = PanelsAtOnce((M + groups - 1) / groups);
  Product p{Steps(K), N, x, panels, Kernels::Int24PanelBytes(K), c, ldc, panels, kStep / groups};
  for (size_t n = 0; n < N; n += at_once * kPanel) {
    p.N = std::min(N, n + at_once * kPanel);
    const uint8_t* next = p.N < N ? panels + p.N / kPanel * p.panel_bytes : panels;
    for (size_t g = 0; g < groups; ++g) {
      p.ahead = next + g * p.steps * p.ahead_bytes;
      const size_t begin = g * M / groups, rows = (g + 1) * M / groups - begin;
      p.x = {x.level + begin * x.stride, x.stride, x.scale + begin, x.sum + begin};
      p.c = c + begin * ldc;
      kRun[rows - 1](p, n);
    }
  }
}

}  // namespace

void FillInt24(Kernels& table) {
  table.quantise_int8 = &QuantiseInt8;
  table.pack_int24 = &PackInt24;
  table.gemm_int24 = &GemmInt24;
}

}  // namespace needle

#else

namespace needle {

void FillInt24(Kernels&) {}

}  // namespace needle

#endif
