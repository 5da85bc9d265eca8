#include "eval/verify.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "base/str_cat.h"
#include "runtime/decoder_model.h"
#include "runtime/sampling.h"
#include "text/render.h"

namespace needle {
namespace {

constexpr std::array<const char*, 4> kToolLists = {
    "[]",
    R"([{"name":"set_lamp","description":"Dim or light a lamp.","parameters":{"type":"object",)"
    R"("properties":{"room":{"type":"string"},"level":{"type":"integer"}},"required":["room"]}}])",
    R"([{"name":"find_train","description":"Next train between two stations.","parameters":{"type":)"
    R"("object","properties":{"from":{"type":"string"},"to":{"type":"string"},"day":{"type":)"
    R"("string","enum":["today","tomorrow"]}},"required":["from","to"]}},{"name":"pay","parameters":)"
    R"({"type":"object","properties":{"amount":{"type":"number"}},"required":["amount"]}}])",
    R"([{"name":"note","description":"Write down.","parameters":{"type":"object","properties":)"
    R"({"text":{"type":"string"},"tags":{"type":"array","items":{"type":"string"}}},"required":)"
    R"(["text"]}},{"name":"alarm","parameters":{"type":"object","properties":{"time":{"type":)"
    R"("string"},"loud":{"type":"boolean"}},"required":["time"]}},{"name":"stop","parameters":{}}])"};
constexpr std::array<const char*, 4> kQueries = {
    "dim the lamp in the den to 20", "Zürich to Genève tomorrow, and pay 12.50",
    "日本語でメモ: 牛乳を買う", "wake me at 06:45 with a loud alarm, then tell me a joke"};

/// Where two matrices of codes first differ, and in how many places.
std::string DescribeCodes(const CactTensor& want, const CactTensor& got) {
  const QuantizedMatrix a = ToQuantized(want), b = ToQuantized(got);
  size_t codes = 0, norms = 0, first = 0;
  for (size_t i = 0; i < a.codes.size(); ++i) {
    if (a.codes[i] == b.codes[i]) continue;
    if (codes++ == 0) first = i;
  }
  for (size_t i = 0; i < a.norms.size(); ++i) norms += a.norms[i] != b.norms[i];
  std::string at;
  if (codes > 0)
    at = StrCat(", the first at row ", first / a.padded_cols(), ", column ",
                first % a.padded_cols());
  return StrCat(codes, " of ", a.codes.size(), " codes and ", norms, " of ", a.norms.size(),
                " norms differ", at);
}

/// What differs between two tensors of the same place; empty when nothing does.
std::string Describe(const CactTensor& want, const CactTensor& got) {
  if (want.name != got.name) return StrCat("the archive has ", got.name, " in its place");
  if (want.type != got.type)
    return StrCat("stored as ", Name(got.type), ", but wanted ", Name(want.type));
  if (want.shape != got.shape)
    return StrCat("has shape ", ToText(got.shape), ", but wanted ", ToText(want.shape));
  if (want.bits != got.bits)
    return StrCat("has ", Name(got.bits), " bits, but wanted ", Name(want.bits));
  if (std::equal(want.bytes.begin(), want.bytes.end(), got.bytes.begin(), got.bytes.end()))
    return "";
  if (want.type == CactType::kCodes) return DescribeCodes(want, got);
  const auto at =
      std::mismatch(want.bytes.begin(), want.bytes.end(), got.bytes.begin(), got.bytes.end());
  return StrCat("differs from byte ", at.first - want.bytes.begin(), " on (", got.bytes.size(),
                " bytes, wanted ", want.bytes.size(), ")");
}

float LargestMagnitude(std::span<const float> logits) {
  float largest = 0;
  for (const float logit : logits) largest = std::max(largest, std::abs(logit));
  return largest;
}

double RelativeDifference(std::span<const float> want, std::span<const float> got) {
  double largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = std::abs(double{want[i]} - double{got[i]});
    if (!(difference <= largest)) largest = difference;  // a NaN counts as a difference and stays
    if (std::isnan(difference)) return difference;
  }
  const double scale = LargestMagnitude(want);
  return scale > 0 ? largest / scale : largest;
}

/// How far the best logit is above `id`, as a share of the largest magnitude.
double Margin(std::span<const float> logits, int32_t best, int32_t id) {
  const double scale = LargestMagnitude(logits);
  const double gap = double{logits[static_cast<size_t>(best)]} - logits[static_cast<size_t>(id)];
  return scale > 0 ? gap / scale : gap;
}

}  // namespace

json::Value ToJson(const VerifyReport& r) {
  using json::Value;
  const auto count = [](size_t n) { return Value::Int(static_cast<int64_t>(n)); };
  std::vector<Value> problems;
  for (const std::string& problem : r.problems) problems.push_back(Value::String(problem));
  return Value::Object({{"ok", Value::Bool(r.ok())},
                        {"tensors", count(r.tensors)},
                        {"different_tensors", count(r.different_tensors)},
                        {"prompts", count(r.prompts)},
                        {"positions", count(r.positions)},
                        {"worst_logits", Value::Float(r.worst_logits)},
                        {"close_calls", count(r.close_calls)},
                        {"different_tokens", count(r.different_tokens)},
                        {"problems", Value::Array(std::move(problems))}});
}

BitMap BitsOf(const CactModel& archive) {
  std::map<std::string, Bits> widths;
  for (const CactTensor& tensor : archive.tensors)
    if (tensor.type == CactType::kCodes) widths[CanonicalName(tensor.name)] = tensor.bits;
  std::string text;
  for (const auto& [name, bits] : widths) text += StrCat(name, "=", Name(bits), ",");
  const Result<BitMap> map = BitMap::Parse(text + "default=4");
  return map.ok() ? *map : BitMap::Uniform(Bits::k4);
}

Status CompareTensors(const Checkpoint& merged, const BitMap& bits, const Tokenizer& tokenizer,
                      const CactModel& archive, VerifyReport* report) {
  NEEDLE_ASSIGN(const std::vector<uint8_t> bytes,
                EncodeCact(merged, bits, tokenizer.ToBlob(), archive.kv_window));
  NEEDLE_ASSIGN(const CactModel wanted, CactModel::FromBytes(bytes, "the checkpoint's archive"));
  report->tensors = archive.tensors.size();
  if (wanted.config != archive.config)
    report->problems.push_back(
        "the archive's header (sizes, windows, engram sites) is not the checkpoint's; it was built "
        "from another model");
  const size_t n = std::max(wanted.tensors.size(), archive.tensors.size());
  for (size_t i = 0; i < n; ++i) {
    std::string difference;
    std::string name;
    if (i >= archive.tensors.size() || i >= wanted.tensors.size()) {
      const bool missing = i >= archive.tensors.size();
      name = (missing ? wanted : archive).tensors[i].name;
      difference = missing ? "missing from the archive" : "not in the checkpoint";
    } else {
      name = wanted.tensors[i].name;
      difference = Describe(wanted.tensors[i], archive.tensors[i]);
    }
    if (difference.empty()) continue;
    if (report->different_tensors++ == 0)
      report->problems.push_back(StrCat("tensor ", name, ": ", difference,
                                        "; build the archive again from this checkpoint and "
                                        "adapter, with the same bits"));
  }
  if (report->different_tensors > 1)
    report->problems.push_back(
        StrCat(report->different_tensors, " of ", n, " tensors differ in all"));
  return {};
}

Status CompareModels(LanguageModel& want, LanguageModel& got,
                     const std::vector<std::vector<int32_t>>& prompts, const VerifyOptions& options,
                     VerifyReport* report) {
  std::string first_logits, first_token;
  for (size_t p = 0; p < prompts.size(); ++p) {
    want.Truncate(0);
    got.Truncate(0);
    NEEDLE_ASSIGN(std::span<const float> a, want.Append(prompts[p]));
    NEEDLE_ASSIGN(std::span<const float> b, got.Append(prompts[p]));
    ++report->prompts;
    for (int step = 0;; ++step) {
      ++report->positions;
      const double difference = RelativeDifference(a, b);
      if (!(difference <= report->worst_logits)) report->worst_logits = difference;
      if (!(difference <= options.logits_tolerance) && first_logits.empty())
        first_logits = StrCat(
            "prompt ", p + 1, ", answer token ", step + 1, ": the logits differ by ", difference,
            " of the largest, but at most ", options.logits_tolerance, " was wanted");
      const int32_t best = Greedy(a, nullptr), other = Greedy(b, nullptr);
      if (best != other && best >= 0) {
        const bool close = other >= 0 && Margin(a, best, other) < options.margin;
        ++(close ? report->close_calls : report->different_tokens);
        if (!close && first_token.empty())
          first_token = StrCat("prompt ", p + 1, ", answer token ", step + 1,
                               ": the archive writes ", other, ", the checkpoint ", best);
      }
      const bool full = std::min(want.max_length(), got.max_length()) <= want.length();
      if (best < 0 || best == kEosId || step >= options.greedy_tokens || full) break;
      NEEDLE_ASSIGN(a, want.Append(std::span(&best, 1)));
      NEEDLE_ASSIGN(b, got.Append(std::span(&best, 1)));
    }
  }
  for (std::string* problem : {&first_logits, &first_token})
    if (!problem->empty()) report->problems.push_back(std::move(*problem));
  return {};
}

Result<std::vector<std::vector<int32_t>>> VerifyPrompts(const Tokenizer& tokenizer,
                                                        size_t max_length) {
  std::vector<std::vector<int32_t>> prompts;
  for (const char* tools : kToolLists) {
    for (const char* query : kQueries) {
      const char* system = prompts.size() % 3 == 2 ? "date: 2026-01-05 Mon 09:00" : "";
      NEEDLE_ASSIGN(std::vector<int32_t> ids, tokenizer.Encode(RenderPrompt(system, tools, query)));
      const size_t room = std::max<size_t>(max_length, 2) - 1;
      if (ids.size() > room) ids.erase(ids.begin(), ids.end() - static_cast<long>(room));
      ids.insert(ids.begin(), kBosId);
      prompts.push_back(std::move(ids));
    }
  }
  return prompts;
}

Result<VerifyReport> VerifyArchive(const Checkpoint& merged, const BitMap& bits,
                                   const Tokenizer& tokenizer, const CactModel& archive,
                                   const VerifyOptions& options) {
  VerifyReport report;
  NEEDLE_TRY(CompareTensors(merged, bits, tokenizer, archive, &report));
  if (merged.config.vocab_size != archive.config.vocab_size) return report;  // said above
  const auto length =
      static_cast<size_t>(std::min(merged.config.max_seq_len, archive.config.max_seq_len));
  NEEDLE_ASSIGN(const auto prompts, VerifyPrompts(tokenizer, length));
  DecoderModel want(RunQuantised(merged, bits, archive.kv_window, options.threads),
                    options.threads);
  DecoderModel got(RunArchive(archive, options.threads), options.threads);
  NEEDLE_TRY(CompareModels(want, got, prompts, options, &report));
  return report;
}

}  // namespace needle
