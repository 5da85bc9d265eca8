// The SentencePiece-compatible BPE tokenizer, one implementation for training and running.
// Rules: docs/numerics.md "Tokenizer" (MODEL.md section 3). Thread-safety: const calls are
// thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace needle {

enum class PieceType : uint8_t {
  kNormal = 0,
  kUnknown = 1,
  kControl = 2,
  kUserDefined = 3,
  kByte = 4
};

struct Piece {
  std::string text;  // UTF-8, spaces as U+2581
  float score = 0;
  PieceType type = PieceType::kNormal;
};

inline constexpr int32_t kPadId = 0, kEosId = 1, kBosId = 2, kUnkId = 3;

/// The ten chat markers, ids 4..13 in this order.
extern const std::array<std::string_view, 10> kChatMarkers;

class Tokenizer {
 public:
  /// From pieces in id order: ids 0..3 pad, eos, bos (control) and unknown, 4..13 the chat markers,
  /// and all 256 byte pieces somewhere. Errors: anything else there, over 2^20 pieces, a piece that
  /// is empty, no UTF-8, longer than 1024 bytes or there twice, a score that is not finite.
  static Result<Tokenizer> FromPieces(std::vector<Piece> pieces);
  /// From a SentencePiece .model (protobuf). Errors name `origin` and the byte offset.
  static Result<Tokenizer> FromModelProto(std::span<const uint8_t> bytes,
                                          const std::string& origin);
  /// From the archive's tokenizer section (docs/formats.md).
  static Result<Tokenizer> FromBlob(std::span<const uint8_t> bytes, const std::string& origin);
  /// A file of either kind, recognised by its content.
  static Result<Tokenizer> Load(const std::string& path);

  size_t size() const;
  const Piece& piece(int32_t id) const;
  /// Id of a piece by its exact text, -1 if there is none.
  int32_t IdOf(std::string_view text) const;

  /// Ids of a text (no BOS or EOS). Error: text that is not UTF-8 (lone surrogates included).
  Result<std::vector<int32_t>> Encode(std::string_view text) const;
  /// SentencePiece's decoding, as upstream prints it: an id outside the vocabulary is an unknown.
  std::string Decode(std::span<const int32_t> ids) const;
  /// The bytes that one id adds to the text (U+2581 as a space, byte pieces as their byte, control
  /// ids nothing, the unknown id its sign " \u2047 "); for streaming and for token masks.
  std::string Bytes(int32_t id) const;

  /// The archive's tokenizer section, and a SentencePiece .model protobuf.
  std::vector<uint8_t> ToBlob() const;
  std::vector<uint8_t> ToModelProto() const;

 private:
  struct Impl;
  explicit Tokenizer(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;  // never changes, so copies share it
};

}  // namespace needle
