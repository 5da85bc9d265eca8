#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/file.h"
#include "base/str_cat.h"
#include "format/cact.h"
#include "format/cact_bytes.h"

namespace needle {
namespace {

using cact::Header;
using cact::Record;

static_assert(std::endian::native == std::endian::little, "files are little endian");

void Put(const void* data, size_t n, std::vector<uint8_t>& out) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  out.insert(out.end(), bytes, bytes + n);
}
template <class N>
void Put(N value, std::vector<uint8_t>& out) {
  Put(&value, sizeof(N), out);
}

Header HeaderOf(const ModelConfig& c, size_t tensors, int kv_window) {
  const auto u = [](int v) { return static_cast<uint32_t>(v); };
  Header h = {};
  h.tag = kCactTag;
  h.tensors = static_cast<uint32_t>(tensors);
  h.codebook_entries = cact::kCodebookEntries;
  h.kv_window = u(kv_window);
  h.kv_bits = u(c.kv_bits);
  h.vocab = u(c.vocab_size);
  h.width = u(c.d_model);
  h.heads = u(c.num_heads);
  h.kv_heads = u(c.num_kv_heads);
  h.layers = u(c.num_layers);
  h.head_size = u(c.HeadDim());
  h.max_seq_len = u(c.max_seq_len);
  h.hadamard = u(c.HadamardSize());
  h.lanes = u(c.mhc_lanes);
  h.slots = u(c.engram_slots);
  h.sub = u(c.EngramSub());
  h.tables = u(c.EngramTables());
  h.taps = kConvTaps;
  h.dilation = u(c.ConvDilation());
  h.orders = static_cast<uint32_t>(c.engram_orders.size());
  std::transform(c.engram_orders.begin(), c.engram_orders.end(), h.order.begin(), u);
  h.sites = static_cast<uint32_t>(c.engram_layers.size());
  std::transform(c.engram_layers.begin(), c.engram_layers.end(), h.site.begin(), u);
  h.rope_theta = static_cast<float>(c.rope_theta);
  return h;
}

void PutRecord(const CactEntry& e, Bits bits, uint64_t offset, uint64_t size,
               std::vector<uint8_t>& out) {
  Put(static_cast<uint8_t>(e.type), out);
  Put(static_cast<uint8_t>(e.shape.size()), out);
  Put(uint16_t{0}, out);
  for (size_t i = 0; i < 4; ++i)
    Put(static_cast<uint32_t>(i < e.shape.size() ? e.shape[i] : 0), out);
  Put(offset, out);
  Put(size, out);
  const bool codes = e.type == CactType::kCodes;
  Put(static_cast<uint32_t>(codes ? kGroup : 0), out);
  Put(static_cast<uint32_t>(codes ? static_cast<int>(bits) : 0), out);
}

// The entry's values in the archive's layout, from the leaf or the slice of it.
std::vector<float> Values(const CactEntry& e, const Tensor& leaf) {
  const auto n = static_cast<size_t>(ElementCount(e.shape));
  const size_t first = e.layer < 0 ? 0 : static_cast<size_t>(e.layer) * n;
  std::vector<float> out(n);
  if (!e.transposed) {
    for (size_t i = 0; i < n; ++i) out[i] = leaf.At(first + i);
    return out;
  }
  const auto in = static_cast<size_t>(e.shape[1]), rows = static_cast<size_t>(e.shape[0]);
  const auto per_matrix = static_cast<size_t>(leaf.shape.back());  // rows of one of the matrices
  for (size_t r = 0; r < rows; ++r) {
    const size_t matrix = r / per_matrix, o = r % per_matrix;
    for (size_t i = 0; i < in; ++i)
      out[r * in + i] = leaf.At(first + (matrix * in + i) * per_matrix + o);
  }
  return out;
}

Error Overflows(const std::string& name, std::string_view what) {
  return Error(Code::kInvalidArgument,
               StrCat("cannot write ", name, ": ", what, " is not a finite float16 number; the ",
                      "weights are too large or the training went wrong"));
}

bool FiniteHalf(uint16_t h) { return (h & 0x7C00u) != 0x7C00u; }

Result<std::vector<uint8_t>> VectorBlob(const std::string& name, const std::vector<float>& values) {
  std::vector<uint8_t> out;
  out.reserve(values.size() * 2);
  for (const float v : values) {
    const uint16_t half = F32ToF16(v);
    if (!FiniteHalf(half)) return Overflows(name, "a value");
    Put(half, out);
  }
  return out;
}

Result<std::vector<uint8_t>> CodesBlob(const CactEntry& e, const std::vector<float>& values,
                                       Bits bits) {
  const auto rows = static_cast<size_t>(e.shape[0]), cols = static_cast<size_t>(e.shape[1]);
  const QuantizedMatrix q = Quantize({values.data(), rows, cols}, bits);
  if (!std::all_of(q.norms.begin(), q.norms.end(), FiniteHalf))
    return Overflows(e.name, "the norm of a group");
  std::vector<uint8_t> out = PackCodes(q);
  Put(q.norms.data(), q.norms.size() * 2, out);
  return out;
}

// Tensors without a leaf: the manifest of the heads, the contrastive head's bias of zeros.
std::vector<float> ValuesWithoutLeaf(const CactEntry& e, CactHeads heads) {
  if (e.name != "head_manifest")
    return std::vector<float>(static_cast<size_t>(ElementCount(e.shape)), 0.0f);
  std::vector<float> marks;
  if (heads.contrastive) marks.push_back(cact::kContrastiveMark);
  if (heads.confidence) marks.push_back(cact::kConfidenceMark);
  return marks;
}

Result<std::vector<uint8_t>> BlobOf(const CactEntry& e, const Checkpoint& merged, Bits bits,
                                    CactHeads heads, std::span<const uint8_t> tokenizer_blob) {
  if (e.type == CactType::kRaw)
    return std::vector<uint8_t>(tokenizer_blob.begin(), tokenizer_blob.end());
  const std::vector<float> values =
      e.path.empty() ? ValuesWithoutLeaf(e, heads) : Values(e, merged.params.at(e.path));
  return e.type == CactType::kCodes ? CodesBlob(e, values, bits) : VectorBlob(e.name, values);
}

Status CheckInput(const Checkpoint& merged, std::span<const uint8_t> tokenizer_blob,
                  int kv_window) {
  NEEDLE_TRY(CheckParams(merged.config, merged.params));
  uint32_t pieces = 0;
  if (tokenizer_blob.size() >= sizeof(pieces))
    std::memcpy(&pieces, tokenizer_blob.data(), sizeof(pieces));
  if (pieces != static_cast<uint32_t>(merged.config.vocab_size))
    return Error(Code::kInvalidArgument,
                 StrCat("the tokenizer has ", pieces, " pieces and the model a vocabulary of ",
                        merged.config.vocab_size, "; give the tokenizer that the model was ",
                        "trained with"));
  if (kv_window < 0)
    return Error(Code::kInvalidArgument, StrCat("a window of ", kv_window, " keys cannot be"));
  return {};
}

}  // namespace

Result<std::vector<uint8_t>> EncodeCact(const Checkpoint& merged, const BitMap& bits,
                                        std::span<const uint8_t> tokenizer_blob, int kv_window) {
  NEEDLE_TRY(CheckInput(merged, tokenizer_blob, kv_window));
  const CactHeads heads = {merged.params.count("contrastive_head/probes") != 0,
                           merged.params.count("confidence_head/probes") != 0};
  const std::vector<CactEntry> layout = CactLayout(merged.config, heads);

  std::vector<uint8_t> out;
  Put(HeaderOf(merged.config, layout.size(),
               kv_window > 0 ? kv_window : merged.config.EffectiveWindow()),
      out);
  for (const float v : cact::Codebooks()) Put(v, out);
  std::vector<uint8_t> directory, blobs;
  const size_t blobs_at = cact::Aligned(out.size() + layout.size() * cact::kRecordBytes);
  for (const CactEntry& e : layout) {
    const Bits width = e.type == CactType::kCodes ? bits.For(e.name) : Bits::kNone;
    NEEDLE_ASSIGN(const std::vector<uint8_t> blob, BlobOf(e, merged, width, heads, tokenizer_blob));
    blobs.resize(cact::Aligned(blobs.size()));
    PutRecord(e, width, blobs_at + blobs.size(), blob.size(), directory);
    blobs.insert(blobs.end(), blob.begin(), blob.end());
  }
  out.insert(out.end(), directory.begin(), directory.end());
  out.resize(blobs_at);
  out.insert(out.end(), blobs.begin(), blobs.end());
  return out;
}

Status WriteCact(const std::string& path, const Checkpoint& merged, const BitMap& bits,
                 std::span<const uint8_t> tokenizer_blob, int kv_window) {
  NEEDLE_ASSIGN(const std::vector<uint8_t> bytes,
                EncodeCact(merged, bits, tokenizer_blob, kv_window));
  return WriteFileAtomically(path, bytes);
}

}  // namespace needle
