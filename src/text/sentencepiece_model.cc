#include "text/sentencepiece_model.h"

#include <bit>

#include "base/str_cat.h"
#include "text/protobuf.h"

namespace needle {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr uint32_t kModelPiece = 1, kModelTrainer = 2, kModelNormalizer = 3, kModelDenormalizer = 5;
constexpr uint32_t kPieceText = 1, kPieceScore = 2, kPieceType = 3;
constexpr uint32_t kTrainerModelType = 3, kTrainerVocabSize = 4, kTrainerWhitespaceSuffix = 24,
                   kTrainerUserSymbols = 31, kTrainerByteFallback = 35, kTrainerUnkId = 40,
                   kTrainerBosId = 41, kTrainerEosId = 42, kTrainerPadId = 43;
constexpr uint32_t kNormalizerName = 1, kNormalizerCharsmap = 2, kNormalizerDummyPrefix = 3,
                   kNormalizerExtraWhitespace = 4, kNormalizerEscapeWhitespace = 5;
constexpr uint64_t kUnigram = 1, kBpe = 2;

struct Settings {  // the proto's own defaults
  uint64_t model_type = kUnigram;
  bool byte_fallback = false;
  bool whitespace_suffix = false;
  bool dummy_prefix = true;
  bool remove_extra_whitespace = true;
  bool escape_whitespace = true;
  bool charsmap = false;
};

Error WrongWire(const std::string& origin, const ProtoField& f) {
  return Error(Code::kCorruptFile,
               StrCat(origin, ": the field at byte ", f.offset, " (number ", f.number,
                      ") has wire type ", f.wire, ", which a SentencePiece model does not use"));
}

/// The five .proto types that have a meaning here, by their number there.
Result<PieceType> TypeOf(uint64_t type, const std::string& origin, size_t offset) {
  switch (type) {
    case 1:
      return PieceType::kNormal;
    case 2:
      return PieceType::kUnknown;
    case 3:
      return PieceType::kControl;
    case 4:
      return PieceType::kUserDefined;
    case 6:
      return PieceType::kByte;
    default:
      return Error(Code::kInvalidArgument,
                   StrCat(origin, ": the piece at byte ", offset, " has type ", type,
                          type == 5 ? " (unused), which this tokenizer does not support"
                                    : ", which is unknown",
                          "; wanted normal, unknown, control, user defined or byte"));
  }
}

uint64_t ProtoType(PieceType type) {
  switch (type) {
    case PieceType::kUnknown:
      return 2;
    case PieceType::kControl:
      return 3;
    case PieceType::kUserDefined:
      return 4;
    case PieceType::kByte:
      return 6;
    case PieceType::kNormal:
      break;
  }
  return 1;
}

Result<Piece> ReadPiece(ProtoReader reader, const std::string& origin) {
  Piece piece;
  while (!reader.done()) {
    NEEDLE_ASSIGN(const ProtoField f, reader.Next());
    const uint32_t want = f.number == kPieceText    ? 2u
                          : f.number == kPieceScore ? 5u
                          : f.number == kPieceType  ? 0u
                                                    : f.wire;
    if (f.wire != want) return WrongWire(origin, f);
    if (f.number == kPieceText) piece.text = f.text();
    if (f.number == kPieceScore) piece.score = std::bit_cast<float>(static_cast<uint32_t>(f.value));
    if (f.number == kPieceType) {
      NEEDLE_ASSIGN(piece.type, TypeOf(f.value, origin, f.offset));
    }
  }
  return piece;
}

Status ReadTrainer(ProtoReader reader, const std::string& origin, Settings& s) {
  while (!reader.done()) {
    NEEDLE_ASSIGN(const ProtoField f, reader.Next());
    const bool ours = f.number == kTrainerModelType || f.number == kTrainerByteFallback ||
                      f.number == kTrainerWhitespaceSuffix;
    if (ours && f.wire != 0) return WrongWire(origin, f);
    if (f.number == kTrainerModelType) s.model_type = f.value;
    if (f.number == kTrainerByteFallback) s.byte_fallback = f.value != 0;
    if (f.number == kTrainerWhitespaceSuffix) s.whitespace_suffix = f.value != 0;
  }
  return {};
}

Status ReadNormalizer(ProtoReader reader, const std::string& origin, Settings& s) {
  while (!reader.done()) {
    NEEDLE_ASSIGN(const ProtoField f, reader.Next());
    const bool flag = f.number >= kNormalizerDummyPrefix && f.number <= kNormalizerEscapeWhitespace;
    if (flag && f.wire != 0) return WrongWire(origin, f);
    if (f.number == kNormalizerCharsmap && f.wire != 2) return WrongWire(origin, f);
    if (f.number == kNormalizerCharsmap) s.charsmap = !f.bytes.empty();
    if (f.number == kNormalizerDummyPrefix) s.dummy_prefix = f.value != 0;
    if (f.number == kNormalizerExtraWhitespace) s.remove_extra_whitespace = f.value != 0;
    if (f.number == kNormalizerEscapeWhitespace) s.escape_whitespace = f.value != 0;
  }
  return {};
}

/// Denormalisation changes what Decode prints; only an empty one is the same as none.
Status ReadDenormalizer(ProtoReader reader, const std::string& origin) {
  Settings s;
  s.charsmap = false;
  NEEDLE_TRY(ReadNormalizer(reader, origin, s));
  if (!s.charsmap) return {};
  return Error(Code::kInvalidArgument,
               StrCat(origin,
                      ": the model rewrites decoded text (denormalizer_spec); this "
                      "tokenizer does not, train it without --denormalization_rule_tsv"));
}

Status CheckSettings(const Settings& s, const std::string& origin) {
  const auto refuse = [&](const char* found, const char* flag) {
    return Error(Code::kInvalidArgument, StrCat(origin, ": the model ", found,
                                                ", which Needle's tokenizer does not do; train it "
                                                "with ",
                                                flag));
  };
  if (s.model_type != kBpe)
    return refuse(s.model_type == kUnigram ? "is of type unigram" : "is not of type BPE",
                  "--model_type=bpe");
  if (!s.byte_fallback) return refuse("has no byte fallback", "--byte_fallback=true");
  if (s.whitespace_suffix)
    return refuse("treats white space as a suffix", "--treat_whitespace_as_suffix=false");
  if (s.charsmap)
    return refuse("normalises text by a character map", "--normalization_rule_name=identity");
  if (!s.dummy_prefix) return refuse("adds no dummy prefix", "--add_dummy_prefix=true");
  if (s.remove_extra_whitespace)
    return refuse("removes extra white space", "--remove_extra_whitespaces=false");
  if (!s.escape_whitespace)
    return refuse("does not escape spaces", "escape_whitespaces=true in its normalizer_spec");
  return {};
}

}  // namespace

Result<std::vector<Piece>> ReadModelProto(std::span<const uint8_t> bytes,
                                          const std::string& origin) {
  std::vector<Piece> pieces;
  Settings settings;
  ProtoReader reader(bytes, 0, origin);
  while (!reader.done()) {
    NEEDLE_ASSIGN(const ProtoField f, reader.Next());
    const bool known =
        (f.number >= kModelPiece && f.number <= kModelNormalizer) || f.number == kModelDenormalizer;
    if (!known) continue;
    if (f.wire != 2) return WrongWire(origin, f);
    ProtoReader inner(f.bytes, reader.ContentOffset(f), origin);
    if (f.number == kModelPiece) {
      NEEDLE_ASSIGN(Piece piece, ReadPiece(inner, origin));
      pieces.push_back(std::move(piece));
    } else if (f.number == kModelTrainer) {
      NEEDLE_TRY(ReadTrainer(inner, origin, settings));
    } else if (f.number == kModelNormalizer) {
      NEEDLE_TRY(ReadNormalizer(inner, origin, settings));
    } else {
      NEEDLE_TRY(ReadDenormalizer(inner, origin));
    }
  }
  if (pieces.empty())
    return Error(Code::kCorruptFile,
                 StrCat(origin, ": no tokenizer pieces in ", bytes.size(),
                        " bytes; wanted a SentencePiece .model or an archive's tokenizer section"));
  NEEDLE_TRY(CheckSettings(settings, origin));
  return pieces;
}

std::vector<uint8_t> WriteModelProto(std::span<const Piece> pieces) {
  ProtoWriter model, trainer, normalizer;
  trainer.Varint(kTrainerModelType, kBpe);
  trainer.Varint(kTrainerVocabSize, pieces.size());
  for (const Piece& piece : pieces) {
    ProtoWriter p;
    p.Bytes(kPieceText, piece.text);
    p.Float(kPieceScore, piece.score);
    if (piece.type != PieceType::kNormal) p.Varint(kPieceType, ProtoType(piece.type));
    model.Message(kModelPiece, p);
    if (piece.type == PieceType::kUserDefined) trainer.Bytes(kTrainerUserSymbols, piece.text);
  }
  trainer.Varint(kTrainerByteFallback, 1);
  trainer.Varint(kTrainerUnkId, kUnkId);
  trainer.Varint(kTrainerBosId, kBosId);
  trainer.Varint(kTrainerEosId, kEosId);
  trainer.Varint(kTrainerPadId, kPadId);
  normalizer.Bytes(kNormalizerName, "identity");
  normalizer.Bytes(kNormalizerCharsmap, "");
  normalizer.Varint(kNormalizerDummyPrefix, 1);
  normalizer.Varint(kNormalizerExtraWhitespace, 0);
  normalizer.Varint(kNormalizerEscapeWhitespace, 1);
  model.Message(kModelTrainer, trainer);
  model.Message(kModelNormalizer, normalizer);
  return model.bytes();
}

}  // namespace needle
