#include "format/sniff.h"

#include "base/str_cat.h"
#include "format/safetensors.h"

namespace needle {
namespace {

constexpr uint32_t kTagNeedle2 = 0x05E12A83, kTagNeedle3 = 0x05E12A84, kTagZip = 0x04034B50;

uint32_t FirstWord(std::span<const uint8_t> bytes) {
  uint32_t word = 0;
  for (size_t i = 4; i-- > 0 && bytes.size() >= 4;) word = word << 8 | bytes[i];
  return word;
}

std::string_view Describe(std::span<const uint8_t> bytes) {
  switch (KindOfBytes(bytes)) {
    case FileKind::kCact:
      return "is a .cact archive";
    case FileKind::kCact3:
      return "is a Needle 3 archive";
    case FileKind::kZip:
      return "is a zip file (torch.save writes those)";
    default:
      return bytes.empty() ? "is empty" : "is neither a pickle nor a safetensors file";
  }
}

}  // namespace

FileKind KindOfBytes(std::span<const uint8_t> bytes) {
  const uint32_t word = FirstWord(bytes);
  if (word == kTagNeedle2) return FileKind::kCact;
  if (word == kTagNeedle3) return FileKind::kCact3;
  if (word == kTagZip) return FileKind::kZip;
  if (LooksLikeSafeTensors(bytes)) return FileKind::kSafeTensors;
  // Protocols 2 and up begin with 0x80. Older ones may begin with a name ('c') or a group: the
  // pickle reader refuses those by what they ask for, which says more than "unknown file" would.
  if (!bytes.empty() && (bytes[0] == 0x80 || bytes[0] == 'c' || bytes[0] == '('))
    return FileKind::kPickle;
  return FileKind::kOther;
}

Error NotTheKindWanted(std::span<const uint8_t> bytes, const std::string& origin,
                       std::string_view wanted) {
  return Error(Code::kCorruptFile, StrCat(origin, ": ", Describe(bytes), "; ", wanted,
                                          " (.pkl or .safetensors) is wanted here"));
}

Result<WriteAs> WriteFormatOf(const std::string& path) {
  if (path.ends_with(".safetensors")) return WriteAs::kSafeTensors;
  if (path.ends_with(".pkl") || path.ends_with(".pickle")) return WriteAs::kPickle;
  return Error(Code::kInvalidArgument,
               StrCat(path,
                      ": cannot tell the format from the name; end it with .pkl (upstream's "
                      "format) or .safetensors"));
}

}  // namespace needle
