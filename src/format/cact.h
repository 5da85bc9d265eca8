// The .cact archive: a merged model as the engine runs it (codebook codes, float16 vectors, the
// tokenizer). Bytes and order: docs/formats-cact.md (MODEL.md section 10).
//
// One table (CactLayout) lists the archive's tensors in file order with their names, shapes and
// where each comes from in upstream's parameter tree; reader, writer and the way back walk it.
// Errors: kCorruptFile naming the file, the tensor and the byte offset; kInvalidArgument of the
// writer. Thread-safety: a CactModel never changes once made; copies share its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "model/params.h"
#include "quant/cq.h"
#include "tensor/tensor.h"

namespace needle {

inline constexpr uint32_t kCactTag = 0x05E12A83, kCactNeedle3Tag = 0x05E12A84;

enum class CactType : uint8_t { kFp16 = 1, kFp32 = 2, kCodes = 3, kRaw = 4 };
std::string_view Name(CactType t);  // "float16", "float32", "codes", "raw"

/// Which probe heads an archive holds.
struct CactHeads {
  bool contrastive = false, confidence = false;
  int count() const { return int{contrastive} + int{confidence}; }
};

/// One line of the table.
struct CactEntry {
  std::string name;  // "layer00.q_proj", "embedding", "engram0.tables"
  CactType type = CactType::kFp16;
  Shape shape;              // [out, in] of a matrix
  std::string path;         // leaf of upstream's tree; empty: no leaf stands behind it
  int layer = -1;           // slice of a leaf stacked over layers; -1: the whole leaf
  bool transposed = false;  // the leaf's last two axes are swapped: [.., in, out]
};
/// All tensors of a model in file order. The config must be valid.
std::vector<CactEntry> CactLayout(const ModelConfig& config, CactHeads heads);

/// A tensor of an opened archive. `bytes` points into the CactModel's memory; the memory and so the
/// start of packed codes and of norms is aligned to at least 16 bytes.
struct CactTensor {
  std::string name;
  CactType type = CactType::kFp16;
  Shape shape;
  Bits bits = Bits::kNone;  // of kCodes
  uint64_t offset = 0;      // in the file
  std::span<const uint8_t> bytes;

  // Of kCodes, [rows, cols]:
  size_t rows() const { return static_cast<size_t>(shape[0]); }
  size_t cols() const { return static_cast<size_t>(shape[1]); }
  size_t padded_cols() const { return (cols() + kGroup - 1) / kGroup * kGroup; }
  size_t row_bytes() const { return PackedRowBytes(padded_cols(), bits); }
  std::span<const uint8_t> packed() const { return bytes.first(rows() * row_bytes()); }
  /// float16, [rows, padded_cols / 128].
  std::span<const uint8_t> norm_bytes() const { return bytes.subspan(rows() * row_bytes()); }
};

/// Codes unpacked to one byte each, and norms.
QuantizedMatrix ToQuantized(const CactTensor& tensor);
/// The tensor's values in its own layout (dequantised when it holds codes). Not for kRaw.
std::vector<float> ToFloats(const CactTensor& tensor);

/// An opened archive, checked whole: header, directory, sizes, norms and vectors finite, ternary
/// codes valid, codebooks those that this version knows.
struct CactModel {
  /// What the header and the heads give: sizes, kv_window, kv_bits, rope_theta, contrastive_dim,
  /// pad_token_id; dtype is "float32"; act_bits and the rest have their defaults.
  ModelConfig config;
  int kv_window = 0;  // keys that the engine keeps
  CactHeads heads;
  std::vector<CactTensor> tensors;  // in file order, the tokenizer last

  /// Maps the file.
  static Result<CactModel> Open(const std::string& path);
  /// Copies the bytes; `origin` names them in errors.
  static Result<CactModel> FromBytes(std::span<const uint8_t> bytes, const std::string& origin);

  /// By name; nullptr when the archive has no such tensor.
  const CactTensor* Find(std::string_view name) const;
  std::span<const uint8_t> tokenizer_blob() const { return tensors.back().bytes; }
  size_t file_size() const { return file_size_; }

  /// Float32 parameters in upstream's tree (dequantised, kernels [in, out] again). What an archive
  /// does not hold is absent: the MTP branch and contrastive_head/log_temp.
  TensorMap ToParams() const;

 private:
  std::shared_ptr<const void> memory_;  // what `tensors` point into
  size_t file_size_ = 0;
};

/// The archive of a merged checkpoint. `kv_window` 0 means config.EffectiveWindow(). Errors:
/// parameters that do not fit the config, a tokenizer with another number of pieces than
/// vocab_size, weights so large that a norm or vector overflows float16.
Result<std::vector<uint8_t>> EncodeCact(const Checkpoint& merged, const BitMap& bits,
                                        std::span<const uint8_t> tokenizer_blob, int kv_window = 0);
/// The same, written to `path` whole or not at all.
Status WriteCact(const std::string& path, const Checkpoint& merged, const BitMap& bits,
                 std::span<const uint8_t> tokenizer_blob, int kv_window = 0);

}  // namespace needle
