#include "model/copy_head.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "base/str_cat.h"
#include "tensor/view.h"

namespace needle {
namespace {

constexpr float kTableScale = 1.2f;  // the memory must outweigh the embedding for the match
constexpr float kNoise = 0.2f;       // what is left of the random weights of the planted head
constexpr float kSharpness = 0.3f;   // added to the head norms' scales: sharper attention
constexpr float kOutput = 0.5f;      // strength of the way from values to the residual

/// A float32 leaf's slice `index` of `count` as a matrix.
MatView<float> Slice(Checkpoint& model, const std::string& path, size_t index, size_t count,
                     size_t rows) {
  Tensor& t = model.params.at(path);
  const size_t n = t.size() / count;
  return {reinterpret_cast<float*>(t.bytes.data()) + index * n, rows, n / rows};
}

/// `columns` orthonormal vectors of `rows` values (Gram-Schmidt over normal draws), column by
/// column.
std::vector<std::vector<float>> Orthonormal(size_t rows, size_t columns, JaxKey key) {
  const std::vector<float> draws = JaxNormal(key, rows * columns);
  std::vector<std::vector<float>> out;
  for (size_t c = 0; c < columns; ++c) {
    std::vector<float> v(draws.begin() + static_cast<std::ptrdiff_t>(c * rows),
                         draws.begin() + static_cast<std::ptrdiff_t>((c + 1) * rows));
    for (const std::vector<float>& u : out) {
      float along = 0;
      for (size_t i = 0; i < rows; ++i) along += u[i] * v[i];
      for (size_t i = 0; i < rows; ++i) v[i] -= along * u[i];
    }
    float norm = 0;
    for (const float x : v) norm += x * x;
    for (float& x : v) x /= std::sqrt(norm);
    out.push_back(std::move(v));
  }
  return out;
}

Status Fits(const ModelConfig& c, size_t half) {
  const auto bad = [](const std::string& what) {
    return Error(Code::kInvalidArgument, StrCat("a copy head cannot be planted: ", what));
  };
  if (c.engram_layers.empty()) return bad("the model has no engram site");
  if (c.ConvDilation() != 1)
    return bad("engram_orders must be [1], so that the second tap sees the token before");
  if (c.HeadDim() < 8)
    return bad(StrCat("the head size is ", c.HeadDim(), "; it must be at least 8"));
  if (c.EngramDim() < static_cast<int>(half)) return bad("the engram vectors are too narrow");
  return {};
}

}  // namespace

Status PlantCopyHead(Checkpoint& model, uint64_t seed) {
  const ModelConfig& c = model.config;
  const auto D = static_cast<size_t>(c.d_model), E = static_cast<size_t>(c.HeadDim());
  const auto L = static_cast<size_t>(c.num_layers), A = static_cast<size_t>(c.AttnDim());
  const size_t half = D / 2;
  NEEDLE_TRY(Fits(c, half));
  for (const auto& [path, tensor] : model.params)
    if (tensor.dtype != DType::kF32)
      return Error(Code::kInvalidArgument, StrCat("a copy head wants float32 weights, but ", path,
                                                  " is ", Name(tensor.dtype)));
  const auto [match_key, value_key] = JaxSplit(JaxPrngKey(seed));

  // The memory: channel i of both halves holds the same value of the gathered vector, spread over
  // the tables; the second half is one token late.
  const auto ED = static_cast<size_t>(c.EngramDim());
  const MatView<float> table = Slice(model, "engrams_0/embedding", 0, 1, 1);
  for (size_t i = 0; i < table.cols(); ++i) table.Row(0)[i] *= kTableScale / 0.02f;
  const MatView<float> value = Slice(model, "engrams_0/value_proj/kernel", 0, 1, ED);
  for (size_t i = 0; i < ED; ++i)
    for (size_t d = 0; d < D; ++d) value.Row(i)[d] *= kNoise / 2;
  const auto tables = static_cast<size_t>(c.EngramTables()),
             sub = static_cast<size_t>(c.EngramSub());
  for (size_t i = 0; i < half; ++i) {
    const size_t from = i % tables * sub + i / tables;
    value.Row(from)[i] += 1;
    value.Row(from)[half + i] += 1;
  }
  const MatView<float> taps = Slice(model, "engrams_0/taps", 0, 1, kConvTaps);
  for (size_t d = 0; d < D; ++d) {
    taps.Row(0)[d] = d < half ? 1.0f : 0.0f;
    taps.Row(1)[d] = d < half ? 0.0f : 1.0f;
  }

  // The head: queries read the row's own token, keys the token before, in the slow dimensions.
  const auto l = static_cast<size_t>(c.engram_layers[0]);
  const std::string attn = "stack/layers/block/self_attn/";
  const MatView<float> q = Slice(model, attn + "q_proj/kernel", l, L, D);
  const MatView<float> k = Slice(model, attn + "k_proj/kernel", l, L, D);
  const MatView<float> v = Slice(model, attn + "v_proj/kernel", l, L, D);
  const MatView<float> o = Slice(model, attn + "out_proj/kernel", l, L, A);
  std::vector<size_t> slow;
  for (size_t i = E / 2 * 3 / 8; i < E / 2; ++i) {
    slow.push_back(i);
    slow.push_back(i + E / 2);
  }
  slow.resize(std::min(slow.size(), half));
  const auto match = Orthonormal(half, slow.size(), match_key);
  for (size_t d = 0; d < D; ++d)
    for (size_t e = 0; e < E; ++e) {
      q.Row(d)[e] *= kNoise;
      k.Row(d)[e] *= kNoise;
    }
  for (size_t i = 0; i < half; ++i)
    for (size_t j = 0; j < slow.size(); ++j) {
      q.Row(i)[slow[j]] += match[j][i];
      k.Row(half + i)[slow[j]] += match[j][i];
    }
  for (const char* norm : {"q_norm/scale", "k_norm/scale"}) {
    const MatView<float> scale = Slice(model, attn + norm, l, L, 1);
    for (size_t e = 0; e < E; ++e) scale.Row(0)[e] += kSharpness;
  }
  const auto pass = Orthonormal(D, E, value_key);
  for (size_t d = 0; d < D; ++d)
    for (size_t e = 0; e < E; ++e) {
      v.Row(d)[e] = pass[e][d];
      o.Row(e)[d] += kOutput * pass[e][d];
    }
  return {};
}

}  // namespace needle
