#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/kernel_support.h"
#include "kernels/kernels.h"
#include "support/mismatch.h"

namespace needle {
namespace {

using test::Mismatch;
using test::NormalFloats;

/// Queries and keys of a forest; strides wider than the rows. A row with key_end 0 is seen by none.
struct Case {
  AttentionBlock block;
  size_t rows = 0;  // of k and v
  std::vector<float> q, k, v;
  std::vector<int32_t> key_first, key_end;

  Case(size_t m, size_t first_row, size_t group, size_t E, std::vector<int32_t> firsts,
       std::vector<int32_t> ends)
      : rows(firsts.size()), key_first(std::move(firsts)), key_end(std::move(ends)) {
    q = NormalFloats(m * (group * E + 3), 1);
    k = NormalFloats(rows * (E + 5), 2);
    v = NormalFloats(rows * (E + 7), 3);
    block.m = m;
    block.group = group;
    block.E = E;
    block.first_row = first_row;
    block.q = q.data();
    block.q_stride = group * E + 3;
    block.k = k.data();
    block.k_stride = E + 5;
    block.v = v.data();
    block.v_stride = E + 7;
    block.key_first = key_first.data();
    block.key_end = key_end.data();
    block.scale = 1.0f / std::sqrt(static_cast<float>(E));
  }
  Case(const Case&) = delete;
};

/// A case with spans and panels for one table of kernels. Rows past the keys of a panel, and
/// columns of scores between spans, are NaN.
struct Packed {
  AttentionBlock block;
  std::vector<KeySpan> spans;
  std::vector<float> key_columns, value_rows, value_columns, key_rows, scratch;

  Packed(const Case& c, const Kernels& kernels) : block(c.block) {
    const size_t n = c.rows, E = block.E;
    Spans(c, kernels.panel_width);
    const auto panels = [&](const float* from, size_t row, size_t column, size_t K, size_t N) {
      std::vector<float> to(kernels.PackedSize(K, N), NAN);
      if (n > 0) kernels.PackB(from, row, column, K, N, to.data());
      return to;
    };
    key_columns = panels(block.k, 1, block.k_stride, E, n);
    value_rows = panels(block.v, block.v_stride, 1, n, E);
    value_columns = panels(block.v, 1, block.v_stride, E, n);
    key_rows = panels(block.k, block.k_stride, 1, n, E);
    block.rows = n;
    block.key_columns = key_columns.data();
    block.value_rows = value_rows.data();
    block.value_columns = value_columns.data();
    block.key_rows = key_rows.data();
    scratch.assign(kernels.attention_scratch(block.m, block.columns, block.group, E), NAN);
  }
  Packed(const Packed&) = delete;

 private:
  void Spans(const Case& c, size_t width) {
    const auto low = static_cast<int32_t>(block.first_row);
    const auto high = static_cast<int32_t>(block.first_row + block.m - 1);
    const auto panel = [&](int32_t row) { return static_cast<size_t>(row) / width * width; };
    for (int32_t j = 0; j < static_cast<int32_t>(c.rows); ++j) {
      const auto row = static_cast<size_t>(j);
      if (c.key_first[row] > high || c.key_end[row] <= low) continue;
      if (spans.empty() || (j != spans.back().end && panel(j) != panel(spans.back().end - 1)))
        spans.push_back({j, j, j, 0});
      const bool run = spans.back().all_end == j;
      spans.back().end = j + 1;
      if (run && c.key_first[row] <= low && high < c.key_end[row]) spans.back().all_end = j + 1;
    }
    for (KeySpan& span : spans) {
      span.column = block.columns;
      block.columns += (static_cast<size_t>(span.end) - panel(span.begin) + 15) / 16 * 16;
    }
    block.spans = spans.data();
    block.span_count = spans.size();
  }
};

/// A chain: rows [first_row, first_row + m) see all before them.
struct Chain : Case {
  Chain(size_t m, size_t first_row, size_t group, size_t E)
      : Case(m, first_row, group, E, Iota(first_row + m),
             std::vector<int32_t>(first_row + m, static_cast<int32_t>(first_row + m))) {}
  static std::vector<int32_t> Iota(size_t n) {
    std::vector<int32_t> x(n);
    for (size_t i = 0; i < n; ++i) x[i] = static_cast<int32_t>(i);
    return x;
  }
};

/// A shared prefix and branches of `length` rows; the block starts inside the first branch.
Case Tree(size_t prefix, size_t length, size_t branches, size_t m, size_t first_row, size_t group,
          size_t E) {
  std::vector<int32_t> keys, ends;
  const size_t total = prefix + length * branches;
  for (size_t r = 0; r < first_row + m && r < total; ++r) {
    const bool seen = r % 11 != 5 || r >= prefix;   // holes inside of panels
    const bool near = r % 200 < 60 || r >= prefix;  // and larger ones
    const size_t branch = r < prefix ? 0 : (r - prefix) / length;
    keys.push_back(static_cast<int32_t>(r));
    ends.push_back(!seen || !near
                       ? 0
                       : static_cast<int32_t>(r < prefix ? total : prefix + (branch + 1) * length));
  }
  return Case(m, first_row, group, E, std::move(keys), std::move(ends));
}

/// Plain loops in double, forward and backward.
struct Plain {
  std::vector<double> o, lse, dq, dk, dv;
  Plain(const Case& c, const std::vector<float>& d_o) {
    const AttentionBlock& b = c.block;
    const size_t E = b.E, width = b.group * E;
    o.assign(b.m * width, 0);
    lse.assign(b.m * b.group, 0);
    dq.assign(b.m * width, 0);
    dk.assign(c.rows * E, 0);
    dv.assign(c.rows * E, 0);
    for (size_t i = 0; i < b.m; ++i)
      for (size_t g = 0; g < b.group; ++g) Row(c, i, g, d_o);
  }

 private:
  void Row(const Case& c, size_t i, size_t g, const std::vector<float>& d_o) {
    const AttentionBlock& b = c.block;
    const size_t E = b.E, at = (i * b.group + g) * E;
    const float* q = b.q + i * b.q_stride + g * E;
    const auto row = static_cast<int32_t>(b.first_row + i);
    const size_t n = c.rows;
    std::vector<double> p(n, 0), dp(n, 0);
    double max = -INFINITY, sum = 0, delta = 0;
    std::vector<bool> visible(n);
    for (size_t j = 0; j < n; ++j) {
      visible[j] = b.key_first[j] <= row && row < b.key_end[j];
      if (!visible[j]) continue;
      for (size_t e = 0; e < E; ++e) p[j] += double{q[e]} * b.k[j * b.k_stride + e];
      p[j] *= b.scale;
      max = std::max(max, p[j]);
    }
    for (size_t j = 0; j < n; ++j) sum += visible[j] ? std::exp(p[j] - max) : 0;
    lse[i * b.group + g] = max + std::log(sum);
    for (size_t j = 0; j < n; ++j) {
      if (!visible[j]) continue;
      const size_t r = j;
      p[j] = std::exp(p[j] - max) / sum;
      for (size_t e = 0; e < E; ++e) {
        o[at + e] += p[j] * b.v[r * b.v_stride + e];
        dp[j] += double{d_o[at + e]} * b.v[r * b.v_stride + e];
        dv[r * E + e] += p[j] * d_o[at + e];
      }
      delta += p[j] * dp[j];
    }
    for (size_t j = 0; j < n; ++j) {
      if (!visible[j]) continue;
      const size_t r = j;
      const double ds = b.scale * p[j] * (dp[j] - delta);
      for (size_t e = 0; e < E; ++e) {
        dq[at + e] += ds * b.k[r * b.k_stride + e];
        dk[r * E + e] += ds * q[e];
      }
    }
  }
};

/// Runs the kernel forward and backward (gradients of keys start at 1) and compares. A logit of
/// size `logits` is itself rounded by that many half units, which exp turns into a relative error.
void ExpectAgreement(const Case& c, const std::string& what, double logits = 1) {
  const AttentionBlock& b = c.block;
  const size_t width = b.group * b.E;
  const auto d_o = NormalFloats(b.m * width, 4);
  const Plain want(c, d_o);
  for (const Isa isa : SupportedIsas()) {
    const Kernels& kernels = KernelsFor(isa);
    SCOPED_TRACE(what + " on " + std::string(Name(isa)));
    Packed packed(c, kernels);
    std::vector<float>& scratch = packed.scratch;
    std::vector<float> o(b.m * width, NAN), lse(b.m * b.group, NAN), dq(b.m * width, NAN);
    std::vector<float> dk(c.rows * b.E, 1.0f), dv(c.rows * b.E, 1.0f);
    kernels.attention_forward(packed.block, o.data(), width, lse.data(), scratch.data());
    std::fill(scratch.begin(), scratch.end(), NAN);
    kernels.attention_backward(
        packed.block, o.data(), width, lse.data(),
        {d_o.data(), width, dq.data(), width, dk.data(), b.E, dv.data(), b.E}, scratch.data());
    for (float& x : dk) x -= 1.0f;
    for (float& x : dv) x -= 1.0f;
    // Sums of up to n + E rounded terms; values are of order 1.
    EXPECT_EQ("", Mismatch(o, want.o, 3e-6 * logits, 0));
    EXPECT_EQ("", Mismatch(lse, want.lse, 1e-6, 1e-6));
    EXPECT_EQ("", Mismatch(dq, want.dq, 1e-5 * logits, 1e-6));
    EXPECT_EQ("", Mismatch(dk, want.dk, 1e-5 * logits, 1e-6 * logits));
    EXPECT_EQ("", Mismatch(dv, want.dv, 1e-5 * logits, 1e-6));
  }
}

TEST(Attention, ChainsOfEveryLengthAgreeWithPlainLoops) {
  for (const size_t m : {1, 2, 3, 7, 15, 16, 33, 84, 128})
    for (const size_t first : {0, 1, 13, 150})
      ExpectAgreement(Chain(m, first, 2, 16),
                      "chain m " + std::to_string(m) + " from " + std::to_string(first));
}

TEST(Attention, HeadSizesAndGroupsAgreeWithPlainLoops) {
  for (const size_t E : {1, 8, 16, 24, 32, 33, 64, 80})
    for (const size_t group : {1, 2, 3})
      for (const size_t m : {1, 21})
        ExpectAgreement(Chain(m, 20, group, E),
                        "E " + std::to_string(E) + " group " + std::to_string(group));
}

TEST(Attention, BranchesSeeThePrefixAndThemselvesOnly) {
  for (const size_t prefix : {1, 40, 300})
    for (const size_t length : {1, 9, 60}) {
      const size_t first = prefix + length / 2;
      const size_t m = std::min<size_t>(84, length * 4 - length / 2);
      ExpectAgreement(
          Tree(prefix, length, 4, m, first, 2, 64),
          "prefix " + std::to_string(prefix) + " branches of " + std::to_string(length));
    }
}

TEST(Attention, LongKeyListsAgreeWithPlainLoops) {
  ExpectAgreement(Chain(30, 2000, 2, 32), "2030 keys");
  ExpectAgreement(Chain(1, 703, 2, 64), "one query, 704 keys");
}

TEST(Attention, AQueryThatSeesNothingGivesZeroAndMinusInfinity) {
  for (const size_t m : {1, 4}) {
    // Rows 12 and up see nothing; a span says that a query of the block might.
    const Case c(m, 12, 2, 16, {0, 1, 2}, {5, 6, 12});
    for (const Isa isa : SupportedIsas()) {
      const Kernels& kernels = KernelsFor(isa);
      for (const bool empty_span : {false, true}) {
        Packed packed(c, kernels);
        KeySpan span{0, 0, 3, 0};
        if (empty_span) {
          packed.block.spans = &span;
          packed.block.span_count = 1;
          packed.block.columns = 16;
          packed.scratch.resize(kernels.attention_scratch(m, 16, 2, 16));
        }
        std::vector<float> o(m * 32, 3.0f), lse(m * 2, 3.0f), dq(m * 32, 3.0f);
        std::vector<float> dk(c.rows * 16, 0.0f), dv = dk;
        kernels.attention_forward(packed.block, o.data(), 32, lse.data(), packed.scratch.data());
        EXPECT_EQ(o, std::vector<float>(m * 32, 0.0f)) << Name(isa);
        for (const float x : lse) EXPECT_EQ(x, -INFINITY) << Name(isa);
        const auto d_o = NormalFloats(m * 32, 5);
        kernels.attention_backward(packed.block, o.data(), 32, lse.data(),
                                   {d_o.data(), 32, dq.data(), 32, dk.data(), 16, dv.data(), 16},
                                   packed.scratch.data());
        EXPECT_EQ(dq, std::vector<float>(m * 32, 0.0f)) << Name(isa);
        EXPECT_EQ(dk, std::vector<float>(dk.size(), 0.0f)) << Name(isa);
        EXPECT_EQ(dv, std::vector<float>(dv.size(), 0.0f)) << Name(isa);
      }
    }
  }
}

TEST(Attention, LargeLogitsDoNotOverflow) {
  for (const size_t m : {1, 6}) {
    Chain c(m, 30, 2, 32);
    for (float& x : c.q) x *= 200.0f;
    ExpectAgreement(c, "logits in the hundreds", 500);
  }
}

TEST(Attention, ANanReachesEveryQueryThatSeesItAndNoOther) {
  for (const Isa isa : SupportedIsas()) {
    const Kernels& kernels = KernelsFor(isa);
    Chain c(40, 0, 1, 16);
    c.k[22 * c.block.k_stride + 3] = NAN;
    Packed packed(c, kernels);
    std::vector<float> o(40 * 16), lse(40);
    kernels.attention_forward(packed.block, o.data(), 16, lse.data(), packed.scratch.data());
    for (size_t i = 0; i < 40; ++i) EXPECT_EQ(std::isnan(o[i * 16 + 5]), i >= 22) << Name(isa) << i;
  }
}

TEST(Attention, ScratchForMoreServesLess) {
  for (const Isa isa : SupportedIsas()) {
    const auto scratch = KernelsFor(isa).attention_scratch;
    size_t before = 0;
    for (size_t n = 0; n < 3000; n += 7) {
      EXPECT_GE(scratch(100, n, 2, 64), before);
      before = scratch(100, n, 2, 64);
    }
    for (size_t m = 1; m < 128; ++m) EXPECT_GE(scratch(m + 1, 500, 2, 64), scratch(m, 500, 2, 64));
  }
}

}  // namespace
}  // namespace needle
