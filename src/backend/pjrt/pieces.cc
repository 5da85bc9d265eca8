#include "backend/pjrt/pieces.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/pjrt/hlo/gradient.h"

namespace needle::pjrt {

using namespace hlo;  // NOLINT: the builder's vocabulary

namespace {

constexpr double kEpsilon = 1e-6;
constexpr int kRounds = 20;  // of Sinkhorn
constexpr double kFloatMax = std::numeric_limits<float>::max();
constexpr double kUnseen = -0.7 * kFloatMax;  // added to the scores of unseen keys

int64_t Last(Value x) { return static_cast<int64_t>(x.rank()) - 1; }
Value SumLast(Value x) { return ReduceAdd(x, {Last(x)}); }
/// y [..., ] against x [..., n]: the same value along the last axis.
Value AlongLast(Value y, Value x) { return BroadcastBack(y, {x.shape().back()}); }
/// scale [n] for x [..., n].
Value ForEach(Value scale, Value x) { return Broadcast(scale, x.shape(), {Last(x)}); }

/// x cos - y sin, y cos + x sin of the halves x, y of the last axis.
Value Rotate(Value x, Value cos, Value sin) {
  const int64_t half = x.dim(2) / 2;
  const Value a = SliceDim(x, 2, 0, half), b = SliceDim(x, 2, half, 2 * half);
  const Value c = Broadcast(cos, a.shape(), {0, 2}), s = Broadcast(sin, a.shape(), {0, 2});
  return Concatenate({a * c - b * s, b * c + a * s}, 2);
}

/// log(sum(exp(x))) over one axis of [S, S, N].
Value LogSumExp(Value x, int64_t axis) {
  Dims kept;
  for (int64_t d = 0; d < 3; ++d)
    if (d != axis) kept.push_back(d);
  const Value largest = ReduceMax(x, {axis});
  return largest + Log(ReduceAdd(Exp(x - Broadcast(largest, x.shape(), kept)), {axis}));
}

/// The potentials of Sinkhorn: after a half-round the logarithm of the matrix is z - f_i - g_j.
Value Balanced(Value z, Value f, Value g) {
  return Exp(z - Broadcast(f, z.shape(), {0, 2}) - Broadcast(g, z.shape(), {1, 2}));
}

struct Potentials {
  Value f, g;    // after the last round [S, N]
  Value fs, gs;  // of every round [20, S, N], [21, S, N] (g before the first round is 0)
};

Potentials BalancedRounds(Value z, bool keep) {
  Graph& outer = *z.graph;
  const DType dtype = z.type().dtype;
  const Type one{dtype, {z.dim(0), z.dim(2)}};
  Values init = {Zeros(outer, one), Zeros(outer, one)};
  if (keep) {
    init.push_back(Zeros(outer, {dtype, {kRounds, one.shape[0], one.shape[1]}}));
    init.push_back(Zeros(outer, {dtype, {kRounds + 1, one.shape[0], one.shape[1]}}));
  }
  const Values after = Loop(
      outer, kRounds, init, {z}, [&](Graph& g, Value i, const Values& now, const Values& fixed) {
        const Value zz = fixed[0];
        const Value f = LogSumExp(zz - Broadcast(now[1], zz.shape(), {1, 2}), 1);
        const Value next = LogSumExp(zz - Broadcast(f, zz.shape(), {0, 2}), 0);
        Values out = {f, next};
        if (keep) {
          out.push_back(SetRow(now[2], i, f));
          out.push_back(SetRow(now[3], i + Scalar(g, 1, DType::kS32), next));
        }
        return out;
      });
  Potentials p{after[0], after[1], {}, {}};
  if (keep) p.fs = after[2], p.gs = after[3];
  return p;
}

Value BalancedBackward(Value z, const Potentials& p, Value d) {
  return Loop(
      *z.graph, kRounds, {d}, {z, p.fs, p.gs},
      [](Graph& g, Value i, const Values& now, const Values& fixed) -> Values {
        const Value zz = fixed[0];
        const Value round = Scalar(g, kRounds - 1, DType::kS32) - i;
        const Value f = Row(fixed[1], round), before = Row(fixed[2], round);
        const Value after = Row(fixed[2], round + Scalar(g, 1, DType::kS32));
        Value dz = now[0];
        dz = dz - Balanced(zz, f, after) * Broadcast(ReduceAdd(dz, {0}), zz.shape(), {1, 2});
        dz = dz - Balanced(zz, f, before) * Broadcast(ReduceAdd(dz, {1}), zz.shape(), {0, 2});
        return {dz};
      })[0];
}

/// The additive mask [G, T, width] of keys [first, first + width): key j is seen from row i when
/// j <= i and i < end[j]. `ends` [G, width]; `first` a scalar.
Value MaskOf(Value ends, Value first, int64_t T, DType dtype) {
  Graph& g = *ends.graph;
  const Dims shape = {ends.dim(0), T, ends.dim(1)};
  const Value row = Iota(g, {DType::kS32, shape}, 1);
  const Value key = Iota(g, {DType::kS32, shape}, 2) + BroadcastFront(first, shape);
  const Value sees =
      And(Compare(key, "LE", row), Compare(row, "LT", Broadcast(ends, shape, {0, 2})));
  return AdditiveMask(sees, dtype);
}

/// scores [G, K, M, T, n] of queries against a block of keys [G, K, n, E], masked.
Value Scores(Value q, Value k, Value mask) {
  const int64_t G = q.dim(0), K = q.dim(1), M = q.dim(2), T = q.dim(3), E = q.dim(4), n = k.dim(2);
  const Value flat = Reshape(q, {G, K, M * T, E});
  const Value scores = Reshape(Dot(flat, k, {0, 1}, {0, 1}, {3}, {3}), {G, K, M, T, n});
  return scores + Broadcast(mask, scores.shape(), {0, 3, 4});
}

/// p [G, K, M, T, n] times v [G, K, n, E].
Value Weighted(Value p, Value v) {
  const int64_t G = p.dim(0), K = p.dim(1), M = p.dim(2), T = p.dim(3);
  const Value flat = Reshape(p, {G, K, M * T, p.dim(4)});
  return Reshape(Dot(flat, v, {0, 1}, {0, 1}, {3}, {2}), {G, K, M, T, v.dim(3)});
}

/// p^T x over queries: p [G, K, M, T, n], x [G, K, M, T, E] -> [G, K, n, E].
Value Gathered(Value p, Value x) {
  const int64_t G = p.dim(0), K = p.dim(1), rows = p.dim(2) * p.dim(3);
  return Dot(Reshape(p, {G, K, rows, p.dim(4)}), Reshape(x, {G, K, rows, x.dim(4)}), {0, 1}, {0, 1},
             {2}, {2});
}

/// Keys [first, first + block) of k [G, K, T, E], or ends [G, T].
Value KeysOf(Value k, Value first, int64_t block) {
  Graph& g = *k.graph;
  const Value zero = Scalar(g, 0, DType::kS32);
  return DynamicSlice(k, {zero, zero, first, zero}, {k.dim(0), k.dim(1), block, k.dim(3)});
}
Value EndsOf(Value ends, Value first, int64_t block) {
  return DynamicSlice(ends, {Scalar(*ends.graph, 0, DType::kS32), first}, {ends.dim(0), block});
}

struct Attended {
  Value o, lse;  // [G, K, M, T, E], [G, K, M, T]
};

/// A running softmax over blocks of keys: the largest score so far, the sum and the output, each
/// corrected when a larger score comes.
Attended RunningSoftmax(Value q, Value k, Value v, Value ends, int64_t block) {
  Graph& outer = *q.graph;
  const DType dtype = q.type().dtype;
  const int64_t T = q.dim(3);
  Dims rows = q.shape();
  rows.pop_back();
  const Values after = Loop(
      outer, T / block,
      {Constant(outer, -kFloatMax, {dtype, rows}), Zeros(outer, {dtype, rows}),
       Zeros(outer, q.type())},
      {q, k, v, ends}, [&](Graph& g, Value i, const Values& now, const Values& fixed) -> Values {
        const Value first = i * Scalar(g, static_cast<double>(block), DType::kS32);
        const Value mask = MaskOf(EndsOf(fixed[3], first, block), first, T, q.type().dtype);
        const Value s = Scores(fixed[0], KeysOf(fixed[1], first, block), mask);
        const Value largest = Maximum(now[0], ReduceMax(s, {4}));
        const Value p = Exp(s - AlongLast(largest, s));
        const Value correct = Exp(now[0] - largest);
        return {largest, now[1] * correct + SumLast(p),
                now[2] * AlongLast(correct, now[2]) + Weighted(p, KeysOf(fixed[2], first, block))};
      });
  return {after[2] / AlongLast(after[1], after[2]), after[0] + Log(after[1])};
}

Values RunningSoftmaxBackward(Value q, Value k, Value v, Value ends, int64_t block,
                              const Attended& a, Value d_o) {
  Graph& outer = *q.graph;
  const int64_t G = q.dim(0), K = q.dim(1), T = q.dim(3), E = q.dim(4), blocks = T / block;
  const Value along = SumLast(d_o * a.o);
  const Type stack{q.type().dtype, {blocks, G, K, block, E}};
  const Values after = Loop(
      outer, blocks, {Zeros(outer, q.type()), Zeros(outer, stack), Zeros(outer, stack)},
      {q, k, v, ends, a.lse, d_o, along},
      [&](Graph& g, Value i, const Values& now, const Values& fixed) -> Values {
        const Value first = i * Scalar(g, static_cast<double>(block), DType::kS32);
        const Value mask = MaskOf(EndsOf(fixed[3], first, block), first, T, q.type().dtype);
        const Value keys = KeysOf(fixed[1], first, block), vals = KeysOf(fixed[2], first, block);
        const Value s = Scores(fixed[0], keys, mask);
        const Value p = Exp(s - AlongLast(fixed[4], s));
        const Value flat = Reshape(fixed[5], {G, K, q.dim(2) * T, E});
        const Value dp = Reshape(Dot(flat, vals, {0, 1}, {0, 1}, {3}, {3}), p.shape());
        const Value ds = p * (dp - AlongLast(fixed[6], dp));
        return {now[0] + Weighted(ds, keys), SetRow(now[1], i, Gathered(ds, fixed[0])),
                SetRow(now[2], i, Gathered(p, fixed[5]))};
      });
  const auto whole = [&](Value blocks_first) {
    return Reshape(Transpose(blocks_first, {1, 2, 0, 3, 4}), {G, K, T, E});
  };
  return {after[0], whole(after[1]), whole(after[2])};
}

/// The largest float for which NearestCode still takes entry k or a lower one.
float ThresholdAfter(std::span<const float> codebook, size_t k) {
  const auto ordered = [](float x) {
    const int32_t bits = std::bit_cast<int32_t>(x);
    return bits < 0 ? std::numeric_limits<int32_t>::min() - int64_t{bits} : int64_t{bits};
  };
  const auto value = [](int64_t o) {
    return std::bit_cast<float>(
        static_cast<int32_t>(o < 0 ? std::numeric_limits<int32_t>::min() - o : o));
  };
  int64_t low = ordered(codebook[k]), high = ordered(codebook[k + 1]);
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (NearestCode(value(middle), codebook) <= k ? low : high) = middle;
  }
  return value(low);
}

Value NearestEntry(Value u, Bits bits, int64_t group) {
  Graph& g = *u.graph;
  const std::span<const float> codebook = Codebook(bits, static_cast<size_t>(group));
  Value out = Constant(g, codebook[0], u.type());
  for (size_t k = 0; k + 1 < codebook.size(); ++k) {
    const Value above = Compare(u, "GT", Constant(g, ThresholdAfter(codebook, k), u.type()));
    out = Select(above, Constant(g, codebook[k + 1], u.type()), out);
  }
  return out;
}

/// To float16 and back: reduce_precision flushes subnormals, so those are rounded as multiples of
/// the smallest one.
Value RoundedToHalf(Value x) {
  Graph& g = *x.graph;
  const Value small = RoundEven(x * 0x1p24) * 0x1p-24;
  const Value subnormal = Compare(x, "LT", Constant(g, 0x1p-14, x.type()));
  return Select(subnormal, small, ReducePrecision(x, 5, 10));
}

/// Rotated groups along the last axis -> the rotated values that codes and stored norm stand for.
Value CodedGroups(Value r, Bits bits, int64_t group) {
  Graph& g = *r.graph;
  const Value norm = Sqrt(SumLast(r * r));
  const Value u = r / AlongLast(Maximum(norm, Constant(g, 1e-12, norm.type())), r);
  return NearestEntry(u, bits, group) * AlongLast(RoundedToHalf(norm), r);
}

Value StraightThrough(Value x, Value q) { return x + StopGradient(q - x); }

/// Zeros at the end of an axis, up to a multiple of `group`.
Value PaddedTo(Value x, int64_t axis, int64_t group) {
  Dims before(x.rank(), 0), after(x.rank(), 0);
  const int64_t n = x.dim(static_cast<size_t>(axis));
  after[static_cast<size_t>(axis)] = (n + group - 1) / group * group - n;
  return Pad(x, before, after);
}

}  // namespace

Value InverseRms(const Values& xs) {
  Value sum;
  double count = 0;
  for (const Value& x : xs) {
    const Value squares = SumLast(x * x);
    sum = sum ? sum + squares : squares;
    count += static_cast<double>(x.shape().back());
  }
  return Rsqrt(sum / count + kEpsilon);
}

Value RmsNorm(Value x, Value scale) {
  return x * ForEach(scale + 1.0, x) * AlongLast(InverseRms({x}), x);
}

Value Softmax(Value x) {
  const Value e = Exp(x - AlongLast(ReduceMax(x, {Last(x)}), x));
  const Value y = e / AlongLast(SumLast(e), e);
  return Custom({x}, {y}, [y](const Values& dy, const std::vector<bool>&) -> Values {
    return {y * (dy[0] - AlongLast(SumLast(dy[0] * y), y))};
  })[0];
}

Value Rope(Value x, Value cos, Value sin) {
  return Custom({x}, {Rotate(x, cos, sin)},
                [=](const Values& dy, const std::vector<bool>&) -> Values {
                  return {Rotate(dy[0], cos, -sin)};
                })[0];
}

Value HadamardMatrix(Graph& g, int64_t n, DType dtype) {
  const Type type{DType::kS32, {n, n}};
  const Value common = PopulationCount(And(Iota(g, type, 0), Iota(g, type, 1)));
  const Value odd = Convert(And(common, Constant(g, 1, type)), dtype);
  const double entry = 1.0 / std::sqrt(static_cast<double>(n));
  return (Constant(g, 1, odd.type()) - odd * 2.0) * entry;
}

Value HadamardMlp(Value h, Value d1, Value d2, Value d3, Value hadamard) {
  const int64_t D = h.dim(1), M = d1.dim(0);
  Value z = Pad(h, {0, 0}, {0, M - D});
  z = MatMul(z * ForEach(d1, z), hadamard);
  z = z * ForEach(d2, z);
  z = MatMul(z * Logistic(z), hadamard);
  return SliceDim(z * ForEach(d3, z), 1, 0, D);
}

Value Sinkhorn(Value z, bool differentiable) {
  const Potentials p = BalancedRounds(z, differentiable);
  const Value out = Balanced(z, p.f, p.g);
  if (!differentiable) return out;
  return Custom({z}, {out}, [=](const Values& dout, const std::vector<bool>&) -> Values {
    return {BalancedBackward(z, p, dout[0] * out)};
  })[0];
}

Value AdditiveMask(Value sees, DType dtype) {
  const Type type{dtype, sees.shape()};
  return Select(sees, Zeros(*sees.graph, type), Constant(*sees.graph, kUnseen, type));
}

Value VisibilityMask(Value subtree_end, DType dtype) {
  return MaskOf(subtree_end, Scalar(*subtree_end.graph, 0, DType::kS32), subtree_end.dim(1), dtype);
}

Value PlainAttention(Value q, Value k, Value v, Value mask) {
  return Weighted(Softmax(Scores(q, k, mask)), v);
}

Value BlockedAttention(Value q, Value k, Value v, Value subtree_end, int64_t block) {
  const Attended a = RunningSoftmax(q, k, v, subtree_end, block);
  return Custom({q, k, v}, {a.o}, [=](const Values& d_o, const std::vector<bool>&) {
    return RunningSoftmaxBackward(q, k, v, subtree_end, block, a, d_o[0]);
  })[0];
}

Value FakeQuantise(Value x, int bits) {
  Graph& g = *x.graph;
  const double top = (1 << (bits - 1)) - 1;
  const Value largest = ReduceMax(Abs(x), {Last(x)});
  const Value scale = AlongLast(Select(Compare(largest, "EQ", Zeros(g, largest.type())),
                                       Constant(g, 1, largest.type()), largest / top),
                                x);
  const Value level = Maximum(Minimum(RoundEven(x / scale), Constant(g, top, x.type())),
                              Constant(g, -top - 1, x.type()));
  return StraightThrough(x, level * scale);
}

Value CodebookRows(Value x, Bits bits, int64_t group, Value hadamard) {
  const Value padded = PaddedTo(x, Last(x), group);
  Dims grouped = padded.shape();
  grouped.back() /= group;
  grouped.push_back(group);
  const Value coded = CodedGroups(MatMul(Reshape(padded, grouped), hadamard), bits, group);
  const Value q = Reshape(MatMul(coded, hadamard), padded.shape());
  return StraightThrough(x, SliceDim(q, Last(x), 0, x.shape().back()));
}

Value CodebookColumns(Value x, Bits bits, int64_t group, Value hadamard) {
  const int64_t in = Last(x) - 1;  // the grouped axis
  const Value padded = PaddedTo(x, in, group);
  Dims grouped = padded.shape();
  grouped[static_cast<size_t>(in)] /= group;
  grouped.insert(grouped.end() - 1, group);  // [..., groups, group, out]
  const Value rotated = Dot(Reshape(padded, grouped), hadamard, {}, {}, {in + 1}, {0});
  const Value q = MatMul(CodedGroups(rotated, bits, group), hadamard);  // [..., groups, out, group]
  Dims order(q.rank());
  for (size_t d = 0; d < order.size(); ++d) order[d] = static_cast<int64_t>(d);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  const Value back = Reshape(Transpose(q, order), padded.shape());
  return StraightThrough(x, SliceDim(back, in, 0, x.dim(static_cast<size_t>(in))));
}

Value LoraProduct(Value x, Value merged, const std::vector<LoraColumns>& lora, double scale) {
  Values inputs = {x}, as;
  for (const LoraColumns& l : lora) {
    inputs.push_back(l.a);
    inputs.push_back(l.b);
    as.push_back(l.a);
  }
  const Value y = MatMul(x, merged);
  return Custom(inputs, {y}, [=](const Values& dout, const std::vector<bool>& wanted) {
    const Value dy = dout[0];
    Values out(1 + 2 * lora.size());
    if (wanted[0]) out[0] = Dot(dy, merged, {}, {}, {1}, {1});
    if (lora.empty()) return out;
    const int64_t R = lora[0].a.dim(1);
    const Value xa = MatMul(x, Concatenate(as, 1)) * scale;  // [N, factors * R]
    Values dxa;
    for (size_t i = 0; i < lora.size(); ++i) {
      const auto at = static_cast<int64_t>(i) * R;
      const Value part = SliceDim(dy, 1, lora[i].first, lora[i].first + lora[i].width);
      out[2 + 2 * i] = Dot(SliceDim(xa, 1, at, at + R), part, {}, {}, {0}, {0});
      dxa.push_back(Dot(part, lora[i].b, {}, {}, {1}, {1}) * scale);
    }
    const Value da = Dot(x, Concatenate(dxa, 1), {}, {}, {0}, {0});  // [in, factors * R]
    for (size_t i = 0; i < lora.size(); ++i) {
      const auto at = static_cast<int64_t>(i) * R;
      out[1 + 2 * i] = SliceDim(da, 1, at, at + R);
    }
    return out;
  })[0];
}

Value CrossEntropy(Value logits, Value ids, Value weights) {
  Graph& g = *logits.graph;
  const Value largest = StopGradient(ReduceMax(logits, {1}));
  const Value lse = largest + Log(SumLast(Exp(logits - AlongLast(largest, logits))));
  const Value column = Iota(g, {DType::kS32, logits.shape()}, 1);
  const Value is_target = Compare(column, "EQ", Broadcast(ids, logits.shape(), {0}));
  const Value picked = SumLast(Select(is_target, logits, Zeros(g, logits.type())));
  return ReduceAdd(weights * (lse - picked), {0});
}

}  // namespace needle::pjrt
