#include "corpus/values.h"

#include <algorithm>
#include <cassert>
#include <initializer_list>
#include <map>

#include "corpus/words.h"

namespace needle::corpus {
namespace {

// Joins texts; unlike operator+ it fixes the order in which they are drawn.
std::string Cat(std::initializer_list<std::string> parts) {
  std::string out;
  for (const std::string& part : parts) out += part;
  return out;
}

std::string Pad(int value, size_t width) {
  std::string digits = std::to_string(value);
  return std::string(width - std::min(width, digits.size()), '0') + digits;
}

bool MayTrailARequest(const std::string& word) {
  static const std::vector<std::string> words = {"now",  "please", "thanks", "asap", "today",
                                                 "also", "then",   "and",    "for",  "with"};
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string Syllable(Source s) {
  static const auto& onsets = Words("onsets");
  static const auto& nuclei = Words("nuclei");
  static const auto& codas = Words("codas");
  return Cat({s.rng.Pick(onsets), s.rng.Pick(nuclei), s.rng.Pick(codas)});
}

// A made-up word with a letter such as "ø" in it.
std::string AccentedWord(Source s) {
  return Cat({Syllable(s), s.rng.Pick(Words("accents")), s.rng.Pick(Words("codas")),
              s.rng.Chance(0.5) ? Syllable(s) : ""});
}

std::string PersonName(Source s) {
  const size_t way = s.rng.Weighted({60, 8, 22, 10});
  if (way == 0) return s.rng.Pick(Vocabulary("people", s.part));
  if (way == 1) return s.rng.Pick(Words("foreign"));
  if (way == 2) return Capitalised(MadeUpWord(s));
  return Cat({s.rng.Pick(Vocabulary("people", s.part)), " ", Capitalised(MadeUpWord(s))});
}

std::string CityName(Source s) {
  if (s.rng.Chance(0.6)) return s.rng.Pick(Vocabulary("cities", s.part));
  std::string name = Capitalised(MadeUpWord(s));
  if (s.rng.Chance(0.2)) name = (s.rng.Chance(0.5) ? "New " : "Port ") + name;
  return name;
}

std::string PlaceName(Source s) {
  std::string first = Capitalised(s.rng.Chance(0.3)   ? MadeUpWord(s)
                                  : s.rng.Chance(0.3) ? s.rng.Pick(Vocabulary("adjectives", s.part))
                                                      : s.rng.Pick(Vocabulary("nouns", s.part)));
  std::string name = Cat({first, " ", s.rng.Pick(Words("placeparts"))});
  if (s.rng.Chance(0.15)) name += " " + std::to_string(s.rng.Between(1, 199));
  return name;
}

std::string Title(Source s) {
  std::string title;
  const int words = s.rng.Between(1, 3);
  for (int i = 0; i < words; ++i) {
    if (i > 0) title += ' ';
    title += Capitalised(AnyWord(s));
  }
  if (s.rng.Chance(0.12)) title = "The " + title;
  if (words > 1 && s.rng.Chance(0.06)) title.insert(title.find(' '), " of the");
  return title;
}

std::string Label(Source s) {
  const size_t way = s.rng.Weighted({45, 35, 10, 10});
  if (way == 0) return AnyWord(s);
  if (way == 1) return Cat({s.rng.Pick(Vocabulary("adjectives", s.part)), " ", Noun(s)});
  if (way == 2) return Cat({Noun(s), " ", Noun(s)});
  return Cat({MadeUpWord(s), " ", Noun(s)});
}

std::string Letters(Source s, std::string_view alphabet, int n) {
  std::string out;
  for (int i = 0; i < n; ++i) out += alphabet[s.rng.Below(alphabet.size())];
  return out;
}

constexpr std::string_view kUpper = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
constexpr std::string_view kHex = "0123456789abcdef";
constexpr std::string_view kDigits = "0123456789";

std::string LettersBetween(Source s, std::string_view alphabet, int low, int high) {
  const int n = s.rng.Between(low, high);
  return Letters(s, alphabet, n);
}

std::string Identifier(Source s) {
  switch (s.rng.Below(6)) {
    case 0:
      return Cat({LettersBetween(s, kUpper, 1, 3), LettersBetween(s, kDigits, 2, 5)});
    case 1:
      return Cat({LettersBetween(s, kUpper, 2, 4), "-", LettersBetween(s, kDigits, 1, 4)});
    case 2:
      return LettersBetween(s, kHex, 5, 8);
    case 3:
      return Cat({MadeUpWord(s), "_", Letters(s, kDigits, 2)});
    case 4:
      return "#" + LettersBetween(s, kDigits, 2, 5);
    default:
      return LettersBetween(s, kDigits, 3, 8);
  }
}

std::string LowerAscii(Source s) {  // for addresses: a plain word without a space or an accent
  return s.rng.Chance(0.5) ? s.rng.Pick(Vocabulary("nouns", s.part))
                           : Cat({Syllable(s), s.rng.Pick(Words("nuclei")), Syllable(s)});
}

std::string Domain(Source s) {
  static const std::vector<std::string> ends = {"com", "org", "net", "de", "fr", "io", "example"};
  return Cat({LowerAscii(s), ".", s.rng.Pick(ends)});
}

std::string FileName(Source s) {
  static const std::vector<std::string> ends = {"pdf", "txt", "csv", "png", "docx", "md", "json"};
  std::string name = LowerAscii(s);
  if (s.rng.Chance(0.4)) name += Cat({s.rng.Chance(0.5) ? "_" : "-", LowerAscii(s)});
  if (s.rng.Chance(0.3)) name += std::to_string(s.rng.Between(1, 99));
  return name + "." + s.rng.Pick(ends);
}

std::string Unit(Source s) {
  static const std::vector<std::string> units = {"mmHg", "°C", "ppm", "ml", "g",   "%",    "mg",
                                                 "lx",   "dB", "V",   "kW", "psi", "cups", "lb",
                                                 "m/s",  "°F", "kJ",  "cm", "oz",  "l"};
  return s.rng.Chance(0.85) ? s.rng.Pick(units) : MadeUpWord(s);
}

std::string Date(Source s) {
  return Cat({std::to_string(s.rng.Between(2021, 2034)), "-", Pad(s.rng.Between(1, 12), 2), "-",
              Pad(s.rng.Between(1, 28), 2)});
}

std::string Time(Source s) {
  static const std::vector<int> minutes = {0, 10, 15, 20, 30, 40, 45, 50, 5};
  const int minute = s.rng.Chance(0.6) ? s.rng.Pick(minutes) : s.rng.Between(0, 59);
  const int hour = s.rng.Between(0, 23);
  return Pad(hour, 2) + ":" + Pad(minute, 2);
}

std::string Phone(Source s) {
  std::string number = s.rng.Chance(0.5) ? "+" + Letters(s, "123456789", 2) : "0";
  number += Letters(s, kDigits, 3);
  if (s.rng.Chance(0.6)) number += " ";
  return number + LettersBetween(s, kDigits, 3, 5);
}

std::string Slug(Source s) {
  std::string slug = LowerAscii(s);
  const char* separator = s.rng.Chance(0.6) ? "-" : "_";
  const int more = s.rng.Between(0, 2);
  for (int i = 0; i < more; ++i) slug += separator + LowerAscii(s);
  return slug;
}

std::string Company(Source s) {
  static const std::vector<std::string> ends = {" Ltd", " & Co", " AG", " Works", "", "", " Group"};
  return Cat({Capitalised(AnyWord(s)), s.rng.Pick(ends)});
}

std::string Path(Source s) {
  static const std::vector<std::string> roots = {"/srv", "/home", "/var", "/data", "/mnt", "~"};
  std::string path = s.rng.Pick(roots);
  const int depth = s.rng.Between(1, 2);
  for (int i = 0; i < depth; ++i) path += "/" + LowerAscii(s);
  return path;
}

std::string Number(Rng& rng, int low, int high) { return std::to_string(rng.Between(low, high)); }

std::string Technical(Source s, const std::string& kind) {
  Rng& rng = s.rng;
  if (kind == "email") return Cat({LowerAscii(s), "@", Domain(s)});
  if (kind == "url") return Cat({"https://", Domain(s), "/", LowerAscii(s)});
  if (kind == "file") return FileName(s);
  if (kind == "path") return Path(s);
  if (kind == "host") return Cat({LowerAscii(s), "-", Number(rng, 1, 40)});
  if (kind == "ip")
    return Cat({"10.", Number(rng, 0, 255), ".", Number(rng, 0, 255), ".", Number(rng, 1, 254)});
  if (kind == "version")
    return Cat({rng.Chance(0.4) ? "v" : "", Number(rng, 0, 12), ".", Number(rng, 0, 30), ".",
                Number(rng, 0, 9)});
  if (kind == "slug") return Slug(s);
  if (kind == "login") return Cat({LowerAscii(s), rng.Chance(0.4) ? Number(rng, 10, 99) : ""});
  if (kind == "code") return LettersBetween(s, kUpper, 2, 5);
  if (kind == "plate") return Cat({Letters(s, kUpper, 2), " ", Letters(s, kDigits, 4)});
  if (kind == "seat") return Cat({Number(rng, 1, 60), Letters(s, "ABCDEF", 1)});
  return "";
}

std::string Clause(Source s) {
  Rng& rng = s.rng;
  const std::string noun = Noun(s);
  const std::string verb = rng.Pick(Vocabulary("verbs", s.part));
  const std::string adjective = rng.Pick(Vocabulary("adjectives", s.part));
  switch (rng.Below(8)) {
    case 0:
      return verb + " the " + noun;
    case 1:
      return verb + " " + Noun(s) + " and " + noun;
    case 2:
      return "the " + noun + " is " + adjective;
    case 3:
      return rng.Pick(Words("pronounced")) + " will " + verb + " the " + adjective + " " + noun;
    case 4:
      return "please " + verb + " my " + noun;
    case 5:
      return verb + " " + Number(rng, 2, 40) + " " + noun + "s";
    case 6:
      return verb + " the " + noun + " " + rng.Pick(Vocabulary("adverbs", s.part));
    default:
      return adjective + " " + noun;
  }
}

std::string WordSalad(Source s) {
  std::string text;
  const int words = s.rng.Between(1, 8);
  for (int i = 0; i < words; ++i) {
    if (i > 0) text += s.rng.Chance(0.02) ? ", " : " ";
    text += s.rng.Chance(0.25) ? s.rng.Pick(Words("glue")) : AnyWord(s);
  }
  return text;
}

// A long text in which nothing can be guessed.
std::string DrillText(Source s) {
  std::string text;
  const int words = s.rng.Between(3, 12);
  for (int i = 0; i < words; ++i) {
    if (i > 0) text += ' ';
    const size_t way = s.rng.Weighted({60, 25, 6, 6, 3});
    text += way == 0   ? AnyWord(s)
            : way == 1 ? MadeUpWord(s)
            : way == 2 ? LettersBetween(s, kDigits, 1, 4)
            : way == 3 ? Capitalised(AnyWord(s))
                       : Identifier(s);
  }
  return text;
}

}  // namespace

bool InPart(std::string_view word, Part part) {
  return (Hash(word) % 8 == 0) == (part == Part::kValid);
}

const std::vector<std::string>& Vocabulary(std::string_view list, Part part) {
  using Lists = std::map<std::string, std::vector<std::string>, std::less<>>;
  static const std::vector<Lists> parts = [] {
    std::vector<Lists> out(2);
    for (const Part p : {Part::kTrain, Part::kValid})
      for (const char* name :
           {"nouns", "verbs", "adjectives", "adverbs", "people", "cities", "common"})
        for (const std::string& word : Words(name))
          if (InPart(word, p)) out[static_cast<size_t>(p)][name].push_back(word);
    return out;
  }();
  const Lists& lists = parts[static_cast<size_t>(part)];
  const auto found = lists.find(list);
  assert(found != lists.end());
  return found->second;
}

std::string MadeUpWord(Source s) {
  while (true) {
    std::string word;
    if (s.rng.Chance(0.1)) {
      word = AccentedWord(s);
    } else {
      const size_t syllables = s.rng.Weighted({40, 48, 12}) + 1;
      for (size_t i = 0; i < syllables; ++i) word += Syllable(s);
    }
    if (word.size() >= 3 && word.size() <= 12 && InPart(word, s.part)) return word;
  }
}

std::string AnyWord(Source s) {
  switch (s.rng.Weighted({32, 15, 15, 20, 18})) {
    case 0:
      return s.rng.Pick(Vocabulary("nouns", s.part));
    case 1:
      return s.rng.Pick(Vocabulary("verbs", s.part));
    case 2:
      return s.rng.Pick(Vocabulary("adjectives", s.part));
    case 3:
      return s.rng.Pick(Vocabulary("common", s.part));
    default:
      return MadeUpWord(s);
  }
}

std::string Noun(Source s) {
  if (s.rng.Chance(0.14)) return MadeUpWord(s);
  return s.rng.Pick(Vocabulary(s.rng.Chance(0.2) ? "common" : "nouns", s.part));
}

std::string FreeText(Source s) {
  while (true) {
    std::string text = s.rng.Chance(0.4) ? WordSalad(s) : Clause(s);
    if (s.rng.Chance(0.25)) text += " " + s.rng.Pick(Words("texts_after"));
    if (s.rng.Chance(0.04)) text = Capitalised(text);
    if (s.rng.Chance(0.03)) text += " " + Capitalised(MadeUpWord(s));
    if (!MayTrailARequest(text.substr(text.rfind(' ') + 1))) return text;
  }
}

std::string StringValue(Source s, const std::string& kind,
                        const std::vector<std::string>& entries) {
  if (!entries.empty()) return s.rng.Pick(entries);
  if (kind == "text" || kind == "qtext") return FreeText(s);
  if (kind == "drill") return DrillText(s);
  if (kind == "person") return PersonName(s);
  if (kind == "city") return CityName(s);
  if (kind == "place") return PlaceName(s);
  if (kind == "title") return Title(s);
  if (kind == "label") return Label(s);
  if (kind == "word") return AnyWord(s);
  if (kind == "noun") return Noun(s);
  if (kind == "made") return MadeUpWord(s);
  if (kind == "id") return Identifier(s);
  if (kind == "unit") return Unit(s);
  if (kind == "date") return Date(s);
  if (kind == "time") return Time(s);
  if (kind == "phone") return Phone(s);
  if (kind == "company") return Company(s);
  std::string value = Technical(s, kind);
  assert(!value.empty());
  return value;
}

std::string NumberValue(Source s, const ValueKind& kind) {
  if (kind.decimals == 0 || s.rng.Chance(0.3))
    return std::to_string(s.rng.Between(kind.low, kind.high));
  const int whole = s.rng.Between(kind.low, std::max(kind.low, kind.high - 1));
  const int decimals = s.rng.Between(1, kind.decimals);
  std::string fraction = Letters(s, kDigits, decimals);
  if (s.rng.Chance(0.3)) fraction = s.rng.Chance(0.6) ? "5" : "0";
  while (fraction.size() > 1 && fraction.back() == '0') fraction.pop_back();
  if (whole == 0 && fraction == "0") fraction = "5";  // "0.0" says little, "-0.0" too much
  return std::to_string(whole) + "." + fraction;
}

std::string Capitalised(const std::string& word) {
  std::string out = word;
  if (!out.empty() && out[0] >= 'a' && out[0] <= 'z') out[0] = static_cast<char>(out[0] - 32);
  return out;
}

}  // namespace needle::corpus
