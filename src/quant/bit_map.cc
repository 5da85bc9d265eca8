#include <algorithm>

#include "base/ascii.h"
#include "base/str_cat.h"
#include "quant/cq.h"

namespace needle {
namespace {

std::vector<std::string_view> Split(std::string_view s, char separator) {
  std::vector<std::string_view> out;
  for (;;) {
    const size_t at = s.find(separator);
    out.push_back(s.substr(0, at));
    if (at == std::string_view::npos) return out;
    s.remove_prefix(at + 1);
  }
}

bool StartsWith(std::string_view s, std::string_view prefix) {
  return s.substr(0, prefix.size()) == prefix;
}

// Takes `prefix`, digits and `end` from the front of s; the digits, or "" when s begins otherwise.
std::string_view TakeNumbered(std::string_view prefix, char end, std::string_view& s) {
  if (!StartsWith(s, prefix)) return {};
  const size_t after = s.find_first_not_of("0123456789", prefix.size());
  if (after == std::string_view::npos || after == prefix.size() || s[after] != end) return {};
  const std::string_view digits = s.substr(prefix.size(), after - prefix.size());
  s.remove_prefix(after + 1);
  return digits;
}

bool Take(std::string_view prefix, std::string_view& s) {
  if (!StartsWith(s, prefix)) return false;
  s.remove_prefix(prefix.size());
  return true;
}

// The family that the front of the name stands for, taken off: "attn.", "mtp.", "engram0." or "".
std::string TakeFamily(std::string_view& s) {
  if (!TakeNumbered("layer", '.', s).empty()) return "attn.";
  std::string_view site = TakeNumbered("engrams_", '/', s);
  if (site.empty()) site = TakeNumbered("engram", '.', s);
  if (!site.empty()) return StrCat("engram", site, ".");
  Take("stack/", s);
  if (Take("layers/block/self_attn/", s)) return "attn.";
  if (Take("mtp_block/self_attn/", s)) return "mtp.";
  return "";
}

}  // namespace

std::string CanonicalName(std::string_view path) {
  if (path == "embedding/embedding") return "embedding";
  std::string_view rest = path;
  const std::string family = TakeFamily(rest);
  constexpr std::string_view kKernel = "/kernel";
  if (rest.size() >= kKernel.size() && rest.substr(rest.size() - kKernel.size()) == kKernel)
    rest.remove_suffix(kKernel.size());
  if (StartsWith(family, "engram") && rest == "embedding") rest = "tables";
  std::string out = family + std::string(rest);
  std::replace(out.begin(), out.end(), '/', '.');
  return out;
}

Result<BitMap> BitMap::Parse(std::string_view text) {
  const std::string_view all = Trimmed(text);
  if (all.find('=') == std::string_view::npos && all.find(',') == std::string_view::npos) {
    NEEDLE_ASSIGN(const Bits bits, ParseBits(all));
    return Uniform(bits);
  }
  BitMap map;
  map.text_ = std::string(all);
  bool has_default = false;
  const auto wrong = [&](std::string_view entry, std::string_view what) {
    return Error(Code::kInvalidArgument,
                 StrCat("bit map \"", text, "\": entry \"", entry, "\" ", what,
                        "; write name=bits,...,default=bits with widths 2, 3, 4 or 1.58"));
  };
  for (const std::string_view piece : Split(all, ',')) {
    const std::string_view entry = Trimmed(piece);
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos) return wrong(entry, "has no \"=\"");
    const std::string key = CanonicalName(Trimmed(entry.substr(0, equals)));
    if (key.empty()) return wrong(entry, "has no name");
    const Result<Bits> bits = ParseBits(Trimmed(entry.substr(equals + 1)));
    if (!bits.ok()) return wrong(entry, "has a width that does not exist");
    const auto same = [&](const auto& known) { return known.first == key; };
    if ((key == "default" && has_default) ||
        std::any_of(map.entries_.begin(), map.entries_.end(), same))
      return wrong(entry, "names a tensor that another entry names too");
    if (key == "default") {
      has_default = true;
      map.default_ = *bits;
    } else {
      map.entries_.emplace_back(key, *bits);
    }
  }
  if (!has_default)
    return Error(Code::kInvalidArgument,
                 StrCat("bit map \"", text, "\" has no default; add default=bits for the ",
                        "tensors that no entry names"));
  return map;
}

BitMap BitMap::Uniform(Bits bits) {
  BitMap map;
  map.default_ = bits;
  map.text_ = std::string(Name(bits));
  return map;
}

std::vector<std::string> BitMap::Unused(const std::vector<std::string>& names) const {
  std::vector<std::string> unused;
  for (const auto& entry : entries_)
    if (std::none_of(names.begin(), names.end(),
                     [&](const std::string& name) { return StartsWith(name, entry.first); }))
      unused.push_back(entry.first);
  return unused;
}

Bits BitMap::For(std::string_view path) const {
  const std::string name = CanonicalName(path);
  size_t longest = 0;
  Bits bits = default_;
  for (const auto& entry : entries_)
    if (entry.first.size() > longest && StartsWith(name, entry.first)) {
      longest = entry.first.size();
      bits = entry.second;
    }
  return bits;
}

}  // namespace needle
