#include "corpus/tokenizer_trainer.h"

#include <cmath>
#include <set>
#include <utility>

#include "json/json.h"
#include "text/render.h"

namespace needle::corpus {
namespace {

constexpr std::string_view kSpace = "\u2581";
constexpr std::string_view kStructure = "{}[]:,\"";
constexpr size_t kLongestStructure = 6;  // signs in one piece
constexpr size_t kStructurePieces = 48;

enum class Class { kLetter, kSign, kOther };

/// The code points of UTF-8 text, each as its bytes.
std::vector<std::string> CodePoints(const std::string& text) {
  std::vector<std::string> out;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0u) == 0x80u && !out.empty())
      out.back() += c;
    else
      out.emplace_back(1, c);
  }
  return out;
}

bool IsLatinLetter(const std::string& c) {
  if (c.size() == 1) return (c[0] | 32) >= 'a' && (c[0] | 32) <= 'z';
  if (c.size() != 2) return false;
  const unsigned point = ((c[0] & 0x1Fu) << 6) | (c[1] & 0x3Fu);
  return point >= 0xC0 && point <= 0x24F && point != 0xD7 && point != 0xF7;
}

Class ClassOf(const std::string& c) {
  if (IsLatinLetter(c)) return Class::kLetter;
  return c.size() == 1 && kStructure.find(c[0]) != std::string_view::npos ? Class::kSign
                                                                          : Class::kOther;
}

/// RunCounts runs of letters, runs of structure, and every other character by itself.
void CountRuns(const std::string& text, RunCounts& counts) {
  std::string run;
  Class last = Class::kOther;
  for (const std::string& c : CodePoints(text)) {
    const Class now = ClassOf(c);
    if (!run.empty() && (now != last || now == Class::kOther)) {
      ++counts[run];
      run.clear();
    }
    run += c;
    last = now;
  }
  if (!run.empty()) ++counts[run];
}

struct Run {
  std::vector<std::string> symbols;
  int64_t weight = 0;
};

bool EndsLowerCase(const std::string& piece) { return piece.back() >= 'a' && piece.back() <= 'z'; }
bool BeginsUpperCase(const std::string& piece) { return piece[0] >= 'A' && piece[0] <= 'Z'; }

class Merger {
 public:
  explicit Merger(std::vector<Run> runs) : runs_(std::move(runs)) {
    for (size_t i = 0; i < runs_.size(); ++i) Add(i, +1);
  }

  /// The most frequent pair, merged everywhere; empty if nothing can be merged.
  std::string Merge() {
    const Pair* best = nullptr;
    int64_t most = 0;
    for (const auto& [pair, count] : counts_)
      if (count > most && MayMerge(pair)) best = &pair, most = count;
    if (best == nullptr) return "";
    const Pair pair = *best;
    const std::set<size_t> touched = where_[pair];
    for (const size_t i : touched) {
      Add(i, -1);
      Apply(pair, runs_[i].symbols);
      Add(i, +1);
    }
    std::string piece = pair.first + pair.second;
    structures_ += IsStructure(piece) ? 1 : 0;
    return piece;
  }

 private:
  using Pair = std::pair<std::string, std::string>;

  static bool IsStructure(const std::string& piece) {
    return kStructure.find(piece[0]) != std::string_view::npos;
  }

  bool MayMerge(const Pair& pair) const {
    if (IsStructure(pair.first))
      return structures_ < kStructurePieces &&
             pair.first.size() + pair.second.size() <= kLongestStructure;
    return !(EndsLowerCase(pair.first) && BeginsUpperCase(pair.second));
  }

  void Add(size_t i, int64_t sign) {
    const Run& run = runs_[i];
    for (size_t k = 0; k + 1 < run.symbols.size(); ++k) {
      const Pair pair{run.symbols[k], run.symbols[k + 1]};
      const int64_t left = counts_[pair] += sign * run.weight;
      if (sign > 0)
        where_[pair].insert(i);
      else
        where_[pair].erase(i);
      if (left == 0) counts_.erase(pair), where_.erase(pair);
    }
  }

  static void Apply(const Pair& pair, std::vector<std::string>& symbols) {
    std::vector<std::string> out;
    for (size_t k = 0; k < symbols.size(); ++k) {
      if (k + 1 < symbols.size() && symbols[k] == pair.first && symbols[k + 1] == pair.second) {
        out.push_back(pair.first + pair.second);
        ++k;
      } else {
        out.push_back(symbols[k]);
      }
    }
    symbols = std::move(out);
  }

  std::vector<Run> runs_;
  std::map<Pair, int64_t> counts_;
  std::map<Pair, std::set<size_t>> where_;
  size_t structures_ = 0;
};

/// Runs of two or more characters. The rare ones are made-up words, far more of them than are
/// needed to learn common beginnings and endings: one in 64 stays.
std::vector<Run> WeighRuns(const RunCounts& counts) {
  constexpr uint64_t kRare = 50;
  std::vector<Run> runs;
  size_t rare = 0;
  for (const auto& [text, count] : counts) {
    Run run;
    run.symbols = CodePoints(text);
    if (run.symbols.size() < 2 || (count < kRare && ++rare % 64 != 0)) continue;
    run.weight =
        count < kRare ? 10 : static_cast<int64_t>(std::sqrt(25.0 * static_cast<double>(count)));
    runs.push_back(std::move(run));
  }
  return runs;
}

/// Printable ASCII and, beyond it, the Latin letters and signs that the corpus uses often.
std::vector<std::string> Characters(const RunCounts& runs) {
  RunCounts counts;
  for (const auto& [text, count] : runs)
    for (const std::string& c : CodePoints(text)) counts[c] += count;
  std::vector<std::string> out;
  for (char c = '!'; c <= '~'; ++c) out.emplace_back(1, c);
  for (const auto& [c, count] : counts) {
    const bool sign = c.size() == 3 && c[0] == '\xE2';  // typographic quotes, arrows
    if (c.size() > 1 && count >= 40 && (IsLatinLetter(c) || sign)) out.push_back(c);
  }
  return out;
}

std::string ByteName(int byte) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  return std::string("<0x") + kHex[static_cast<size_t>(byte / 16)] +
         kHex[static_cast<size_t>(byte % 16)] + ">";
}

std::vector<Piece> FirstPieces() {
  std::vector<Piece> pieces = {{"<pad>", 0, PieceType::kControl},
                               {"</s>", 0, PieceType::kControl},
                               {"<s>", 0, PieceType::kControl},
                               {"<unk>", 0, PieceType::kUnknown}};
  for (const std::string_view marker : kChatMarkers)
    pieces.push_back({std::string(marker), 0, PieceType::kUserDefined});
  for (int byte = 0; byte < 256; ++byte) pieces.push_back({ByteName(byte), 0, PieceType::kByte});
  return pieces;
}

}  // namespace

Status CountLine(std::string_view line, RunCounts& counts) {
  NEEDLE_ASSIGN(const json::Value row, json::Parse(line));
  NEEDLE_ASSIGN(const RenderedExample rendered, RenderExample(row));
  CountRuns(rendered.prompt, counts);
  CountRuns(rendered.target, counts);
  return {};
}

std::vector<Piece> TrainPieces(const RunCounts& counts, size_t vocabulary) {
  std::vector<Piece> pieces = FirstPieces();
  std::vector<std::string> characters = Characters(counts);
  characters.insert(characters.begin(), std::string(kSpace));
  const size_t merges = vocabulary - pieces.size() - characters.size();
  Merger merger(WeighRuns(counts));
  float score = 0;
  for (size_t i = 0; i < merges; ++i) {
    const std::string piece = merger.Merge();
    if (piece.empty()) break;
    pieces.push_back({piece, score, PieceType::kNormal});
    score -= 1;
  }
  for (const std::string& character : characters) {
    pieces.push_back({character, score, PieceType::kNormal});
    score -= 1;
  }
  return pieces;
}

}  // namespace needle::corpus
