#include "text/tokenizer.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "base/file.h"
#include "base/str_cat.h"
#include "base/utf8.h"
#include "text/bpe.h"
#include "text/sentencepiece_model.h"

namespace needle {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";         // U+2581
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";       // U+FFFD
constexpr std::string_view kUnknownSurface = " \xE2\x81\x87 ";  // " U+2047 "
constexpr size_t kMaxPieces = size_t{1} << 20;
constexpr size_t kMaxPieceBytes = 1024;  // real ones have a few dozen; learning merges is quadratic
constexpr size_t kMaxTextBytes = size_t{1} << 30;    // positions are 32 bits
constexpr size_t kBlobHeader = 24, kBlobRecord = 7;  // bytes before the first piece; before a text

/// The byte of "<0x4F>", or nothing when the text is not of this form.
std::optional<uint8_t> ByteOf(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
  const size_t high = kDigits.find(text[3]), low = kDigits.find(text[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
  return static_cast<uint8_t>(16 * high + low);
}

void AppendWithSpaces(std::string_view piece, std::string& out) {
  for (size_t at = 0; at < piece.size();) {
    if (piece.substr(at, kSpaceMark.size()) == kSpaceMark) {
      out += ' ';
      at += kSpaceMark.size();
    } else {
      out += piece[at++];
    }
  }
}

/// The dummy prefix, then the text with its spaces as U+2581.
std::string Normalise(std::string_view text) {
  std::string out(kSpaceMark);
  out.reserve(text.size() + text.size() / 2);
  for (const char c : text)
    if (c == ' ')
      out += kSpaceMark;
    else
      out += c;
  return out;
}

/// User-defined pieces by their first byte, the longest first.
class MarkerTable {
 public:
  struct Match {
    size_t bytes = 0;  // 0: no marker here
    int32_t id = -1;
  };

  void Add(std::string_view text, int32_t id) {
    by_first_[static_cast<uint8_t>(text[0])].push_back({std::string(text), id});
  }
  /// To be called once, after the last Add.
  void Sort() {
    for (std::vector<Marker>& list : by_first_)
      std::stable_sort(list.begin(), list.end(), [](const Marker& a, const Marker& b) {
        return a.text.size() > b.text.size();
      });
  }
  Match At(std::string_view text, size_t at) const {
    for (const Marker& m : by_first_[static_cast<uint8_t>(text[at])])
      if (text.compare(at, m.text.size(), m.text) == 0) return {m.text.size(), m.id};
    return {};
  }

 private:
  struct Marker {
    std::string text;
    int32_t id;
  };
  std::array<std::vector<Marker>, 256> by_first_;
};

Error PieceError(size_t id, const Piece& piece, const char* found, const char* wanted) {
  return Error(Code::kInvalidArgument, StrCat("tokenizer piece ", id, " (\"", piece.text, "\") ",
                                              found, "; wanted ", wanted));
}

Status CheckPiece(size_t id, const Piece& piece) {
  if (piece.text.empty()) return PieceError(id, piece, "is empty", "at least one byte of text");
  if (piece.text.size() > kMaxPieceBytes)
    return Error(Code::kInvalidArgument, StrCat("tokenizer piece ", id, " has ", piece.text.size(),
                                                " bytes; at most ", kMaxPieceBytes, " fit"));
  if (!IsValidUtf8(piece.text))
    return Error(Code::kInvalidArgument, StrCat("tokenizer piece ", id, " is not UTF-8 text"));
  if (!std::isfinite(piece.score))
    return PieceError(id, piece, "has a score that is not finite", "a number");
  if (piece.type == PieceType::kByte && !ByteOf(piece.text))
    return PieceError(id, piece, "is of type byte", "the form <0xNN> with upper-case digits");
  return {};
}

/// Ids 0..13 mean the same in every Needle tokenizer: upstream's training and the engine rely on
/// it.
Status CheckSpecials(std::span<const Piece> pieces) {
  const size_t specials = 4 + kChatMarkers.size();
  if (pieces.size() < specials)
    return Error(Code::kInvalidArgument, StrCat("the tokenizer has ", pieces.size(),
                                                " pieces; a Needle tokenizer has at "
                                                "least ",
                                                specials, " special ones and 256 byte pieces"));
  for (size_t id = 0; id < 3; ++id)
    if (pieces[id].type != PieceType::kControl)
      return PieceError(id, pieces[id], "is no control piece",
                        "pad, eos and bos as control pieces 0, 1 and 2");
  if (pieces[kUnkId].type != PieceType::kUnknown)
    return PieceError(kUnkId, pieces[kUnkId], "is not the unknown piece", "the unknown piece here");
  for (size_t i = 0; i < kChatMarkers.size(); ++i) {
    const Piece& piece = pieces[4 + i];
    if (piece.text != kChatMarkers[i] || piece.type != PieceType::kUserDefined)
      return Error(Code::kInvalidArgument, StrCat("tokenizer piece ", 4 + i, " is \"", piece.text,
                                                  "\"; a Needle tokenizer "
                                                  "has the user-defined piece \"",
                                                  kChatMarkers[i], "\" there"));
  }
  return {};
}

/// The last piece that an archive's section has as user-defined.
constexpr size_t kLastMarker = 3 + std::tuple_size_v<decltype(kChatMarkers)>;

class BlobReader {
 public:
  BlobReader(std::span<const uint8_t> bytes, const std::string& origin)
      : bytes_(bytes), origin_(origin) {}

  size_t at() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }
  bool Has(size_t n) const { return left() >= n; }
  /// `n` bytes as a little-endian number; Has(n) must hold.
  uint32_t Number(size_t n) {
    assert(n <= 4 && Has(n));
    uint32_t value = 0;
    for (size_t i = 0; i < n; ++i) value |= uint32_t{bytes_[at_ + i]} << (8 * i);
    at_ += n;
    return value;
  }
  std::string Text(size_t n) {
    assert(Has(n));
    const auto* begin = reinterpret_cast<const char*>(bytes_.data()) + at_;
    at_ += n;
    return {begin, n};
  }
  Error Broken(const std::string& what) const {
    return Error(Code::kCorruptFile,
                 StrCat(origin_, ": tokenizer section, byte ", at_, ": ", what));
  }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  const std::string& origin_;
};

/// The number of pieces that the header promises.
Result<size_t> ReadBlobHeader(BlobReader& in) {
  if (!in.Has(kBlobHeader))
    return in.Broken(StrCat("only ", in.left(), " bytes; wanted a header of ", kBlobHeader));
  const uint32_t count = in.Number(4);
  for (const int32_t want : {kPadId, kEosId, kBosId, kUnkId}) {
    const uint32_t got = in.Number(4);
    if (got != static_cast<uint32_t>(want))
      return in.Broken(
          StrCat("a special id is ", got, "; wanted ", want, " (pad 0, eos 1, bos 2, unk 3)"));
  }
  if (in.Number(1) != 1) return in.Broken("the dummy prefix is off; wanted 1");
  if (in.Number(1) != 1) return in.Broken("byte fallback is off; wanted 1");
  in.Number(2);
  return size_t{count};
}

Result<Piece> ReadBlobPiece(BlobReader& in) {
  if (!in.Has(kBlobRecord)) return in.Broken("the section ends inside a piece; is the file cut?");
  Piece piece;
  piece.score = std::bit_cast<float>(in.Number(4));
  const uint32_t type = in.Number(1);
  if (type > static_cast<uint32_t>(PieceType::kByte))
    return in.Broken(StrCat("a piece of type ", type, "; wanted 0 to 4"));
  piece.type = static_cast<PieceType>(type);
  const uint32_t length = in.Number(2);
  if (!in.Has(length)) return in.Broken("the section ends inside a piece; is the file cut?");
  piece.text = in.Text(length);
  return piece;
}

void AppendNumber(std::vector<uint8_t>& out, uint32_t value, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
}

bool LooksLikeBlob(std::span<const uint8_t> bytes) {
  if (bytes.size() < kBlobHeader) return false;
  for (size_t i = 0; i < 16; ++i)
    if (bytes[4 + i] != (i % 4 == 0 ? i / 4 : 0)) return false;
  return true;
}

}  // namespace

const std::array<std::string_view, 10> kChatMarkers = {
    "<|im_start|>", "<|im_end|>",  "<think>",      "</think>",      "<tools>",
    "</tools>",     "<tool_call>", "</tool_call>", "<tool_result>", "</tool_result>"};

struct Tokenizer::Impl {
  explicit Impl(std::vector<Piece> p) : pieces(std::move(p)), merger(pieces) {}

  std::vector<Piece> pieces;
  BpeMerger merger;
  MarkerTable markers;
  std::unordered_map<std::string_view, int32_t> by_text;  // views into `pieces`
  std::array<int32_t, 256> byte_ids{};
};

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Result<Tokenizer> Tokenizer::FromPieces(std::vector<Piece> pieces) {
  if (pieces.size() > kMaxPieces)
    return Error(Code::kInvalidArgument, StrCat("the tokenizer has ", pieces.size(),
                                                " pieces; at most ", kMaxPieces, " are allowed"));
  NEEDLE_TRY(CheckSpecials(pieces));
  for (size_t id = 0; id < pieces.size(); ++id) NEEDLE_TRY(CheckPiece(id, pieces[id]));

  const auto impl = std::make_shared<Impl>(std::move(pieces));
  impl->byte_ids.fill(-1);
  for (size_t i = 0; i < impl->pieces.size(); ++i) {
    const Piece& piece = impl->pieces[i];
    const auto id = static_cast<int32_t>(i);
    if (!impl->by_text.emplace(piece.text, id).second)
      return PieceError(i, piece, "is there twice", "each text once");
    if (piece.type == PieceType::kUnknown && id != kUnkId)
      return PieceError(i, piece, "is a second unknown piece", "one, with id 3");
    if (piece.type == PieceType::kUserDefined) impl->markers.Add(piece.text, id);
    if (piece.type == PieceType::kByte) impl->byte_ids[*ByteOf(piece.text)] = id;
  }
  impl->markers.Sort();
  for (size_t byte = 0; byte < 256; ++byte)
    if (impl->byte_ids[byte] < 0)
      return Error(Code::kInvalidArgument,
                   StrCat("the tokenizer has no piece for byte ", byte,
                          "; train it with --byte_fallback=true, so that any text can be encoded"));
  return Tokenizer(impl);
}

Result<Tokenizer> Tokenizer::FromModelProto(std::span<const uint8_t> bytes,
                                            const std::string& origin) {
  NEEDLE_ASSIGN(std::vector<Piece> pieces, ReadModelProto(bytes, origin));
  Result<Tokenizer> made = FromPieces(std::move(pieces));
  if (!made.ok()) return made.error().In(origin);
  return made;
}

Result<Tokenizer> Tokenizer::FromBlob(std::span<const uint8_t> bytes, const std::string& origin) {
  BlobReader in(bytes, origin);
  NEEDLE_ASSIGN(const size_t count, ReadBlobHeader(in));
  if (count > in.left() / kBlobRecord)
    return in.Broken(StrCat("the header promises ", count, " pieces, but only ", in.left(),
                            " bytes follow; is the file cut?"));
  std::vector<Piece> pieces;
  pieces.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    NEEDLE_ASSIGN(Piece piece, ReadBlobPiece(in));
    if (piece.type == PieceType::kUserDefined && i > kLastMarker)
      return in.Broken(StrCat("piece ", i, " is user-defined; in an archive only the ten chat ",
                              "markers, pieces 4 to ", kLastMarker, ", are"));
    pieces.push_back(std::move(piece));
  }
  if (in.left() != 0) return in.Broken(StrCat(in.left(), " bytes too many after the last piece"));
  Result<Tokenizer> made = FromPieces(std::move(pieces));
  if (!made.ok()) return Error(Code::kCorruptFile, StrCat(origin, ": ", made.error().message()));
  return made;
}

Result<Tokenizer> Tokenizer::Load(const std::string& path) {
  NEEDLE_ASSIGN(const std::vector<uint8_t> bytes, ReadFile(path));
  return LooksLikeBlob(bytes) ? FromBlob(bytes, path) : FromModelProto(bytes, path);
}

size_t Tokenizer::size() const { return impl_->pieces.size(); }

const Piece& Tokenizer::piece(int32_t id) const {
  assert(id >= 0 && static_cast<size_t>(id) < size());
  return impl_->pieces[static_cast<size_t>(id)];
}

int32_t Tokenizer::IdOf(std::string_view text) const {
  const auto found = impl_->by_text.find(text);
  return found == impl_->by_text.end() ? -1 : found->second;
}

Result<std::vector<int32_t>> Tokenizer::Encode(std::string_view text) const {
  if (text.size() > kMaxTextBytes)
    return Error(
        Code::kInvalidArgument,
        StrCat("a text of ", text.size(), " bytes is too long to encode; at most ", kMaxTextBytes));
  const size_t valid = ValidUtf8Length(text);
  if (valid != text.size())
    return Error(Code::kInvalidArgument,
                 StrCat("the text is not UTF-8 at byte ", valid,
                        " (lone surrogates count as well); save it as UTF-8"));
  std::vector<int32_t> ids;
  if (text.empty()) return ids;
  const std::string normal = Normalise(text);
  std::vector<char32_t> stretch;
  const auto flush = [&] {
    impl_->merger.Encode(stretch, impl_->byte_ids, ids);
    stretch.clear();
  };
  for (size_t at = 0; at < normal.size();) {
    if (const MarkerTable::Match marker = impl_->markers.At(normal, at); marker.bytes > 0) {
      flush();
      ids.push_back(marker.id);
      at += marker.bytes;
      continue;
    }
    const CodePoint c = DecodeUtf8(normal, at);
    stretch.push_back(c.value);
    at += c.length;
  }
  flush();
  return ids;
}

namespace {

/// Bytes that stand for UTF-8 text; each byte of an invalid sequence becomes its own U+FFFD.
void AppendBytesAsText(std::string_view bytes, std::string& out) {
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = DecodeUtf8(bytes, at).length;
    out += length > 0 ? bytes.substr(at, length) : kReplacement;
    at += length > 0 ? length : 1;
  }
}

}  // namespace

std::string Tokenizer::Decode(std::span<const int32_t> ids) const {
  std::string out, bytes;
  bool at_start = true;  // the dummy prefix may still come; only the first visible piece has it
  for (const int32_t id : ids) {
    const bool known = id >= 0 && static_cast<size_t>(id) < size();
    const Piece& p = piece(known ? id : kUnkId);
    if (p.type == PieceType::kByte) {
      bytes += static_cast<char>(*ByteOf(p.text));
      continue;
    }
    AppendBytesAsText(bytes, out);
    bytes.clear();
    if (!out.empty()) at_start = false;
    if (p.type == PieceType::kControl) continue;
    if (p.type == PieceType::kUnknown) {
      out += kUnknownSurface;
      continue;
    }
    std::string_view text = p.text;
    if (at_start && text.substr(0, kSpaceMark.size()) == kSpaceMark) {
      text.remove_prefix(kSpaceMark.size());
      at_start = false;
    }
    AppendWithSpaces(text, out);
  }
  AppendBytesAsText(bytes, out);
  return out;
}

std::string Tokenizer::Bytes(int32_t id) const {
  const Piece& p = piece(id);
  switch (p.type) {
    case PieceType::kControl:
      return "";
    case PieceType::kUnknown:
      return std::string(kUnknownSurface);
    case PieceType::kByte:
      return std::string(1, static_cast<char>(*ByteOf(p.text)));
    case PieceType::kNormal:
    case PieceType::kUserDefined:
      break;
  }
  std::string out;
  AppendWithSpaces(p.text, out);
  return out;
}

std::vector<uint8_t> Tokenizer::ToBlob() const {
  std::vector<uint8_t> out;
  AppendNumber(out, static_cast<uint32_t>(size()), 4);
  for (const int32_t id : {kPadId, kEosId, kBosId, kUnkId})
    AppendNumber(out, static_cast<uint32_t>(id), 4);
  AppendNumber(out, 1, 1);  // dummy prefix
  AppendNumber(out, 1, 1);  // byte fallback
  AppendNumber(out, 0, 2);
  for (size_t i = 0; i < size(); ++i) {
    const Piece& p = impl_->pieces[i];
    // The format knows the ten chat markers as user-defined pieces and no others.
    const bool other = p.type == PieceType::kUserDefined && i > kLastMarker;
    AppendNumber(out, std::bit_cast<uint32_t>(p.score), 4);
    AppendNumber(out, static_cast<uint32_t>(other ? PieceType::kNormal : p.type), 1);
    AppendNumber(out, static_cast<uint32_t>(p.text.size()), 2);
    out.insert(out.end(), p.text.begin(), p.text.end());
  }
  return out;
}

std::vector<uint8_t> Tokenizer::ToModelProto() const { return WriteModelProto(impl_->pieces); }

}  // namespace needle
