#include "data/examples.h"

#include <algorithm>

#include "base/str_cat.h"

namespace needle {
namespace {

constexpr size_t kListed = 20;  // long lines that an error names one by one

struct Encoded {
  EncodedExample example;
  size_t target_start = 0;  // index of the first target id
};

Result<Encoded> Encode(const DataExample& data, const Tokenizer& tokenizer, float prompt_weight) {
  // Separately, so that both begin with the dummy prefix, and no merge crosses the border.
  NEEDLE_ASSIGN(const std::vector<int32_t> prompt, tokenizer.Encode(data.text.prompt));
  NEEDLE_ASSIGN(const std::vector<int32_t> target, tokenizer.Encode(data.text.target));
  Encoded out;
  EncodedExample& e = out.example;
  e.line = data.line;
  e.row = data.row;
  e.ids.reserve(prompt.size() + target.size() + 2);
  e.ids.push_back(kBosId);
  e.ids.insert(e.ids.end(), prompt.begin(), prompt.end());
  e.ids.insert(e.ids.end(), target.begin(), target.end());
  e.ids.push_back(kEosId);
  out.target_start = 1 + prompt.size();
  e.weights.assign(e.ids.size(), 1.0f);
  e.weights[0] = 0.0f;
  std::fill_n(e.weights.begin() + 1, prompt.size(), prompt_weight);
  return out;
}

Error TooLong(const EncodedData& data, const EncodeOptions& options, size_t examples,
              const std::string& name) {
  std::string message = StrCat(name, ": ", data.long_lines.size(), " of ", examples,
                               " examples are longer than --max-len ", options.max_len, ":");
  for (size_t i = 0; i < data.long_lines.size() && i < kListed; ++i) {
    const LongLine& l = data.long_lines[i];
    message += StrCat("\n  ", name, ":", l.line, ": ", l.tokens, " tokens",
                      l.lost_target ? " (its whole target would be cut off)" : "");
  }
  if (data.long_lines.size() > kListed)
    message += StrCat("\n  ... and ", data.long_lines.size() - kListed, " more");
  message += StrCat("\nRaise --max-len (the longest needs ", data.longest,
                    "), or choose --long cut or --long drop.");
  return Error(Code::kInvalidArgument, message);
}

}  // namespace

Result<EncodedData> EncodeExamples(std::span<const DataExample> examples,
                                   const Tokenizer& tokenizer, const EncodeOptions& options,
                                   const std::string& name) {
  if (options.max_len == 0)
    return Error(Code::kInvalidArgument, "--max-len is 0; it must be at least 1");
  EncodedData out;
  for (const DataExample& data : examples) {
    Result<Encoded> encoded = Encode(data, tokenizer, options.prompt_weight);
    if (!encoded.ok()) return encoded.error().In(StrCat(name, ":", data.line));
    EncodedExample& e = encoded->example;
    const size_t tokens = e.ids.size();
    const bool too_long = tokens > options.max_len;
    const bool lost_target = options.max_len <= encoded->target_start;
    if (too_long) out.long_lines.push_back({data.line, tokens, lost_target});
    if (too_long && options.long_lines == LongLines::kDrop) continue;
    out.longest = std::max(out.longest, tokens);
    if (too_long && options.long_lines == LongLines::kCut) {
      e.ids.resize(options.max_len);
      e.weights.resize(options.max_len);
      out.lost_target += lost_target ? 1 : 0;
    }
    out.examples.push_back(std::move(e));
  }
  if (options.long_lines == LongLines::kError && !out.long_lines.empty())
    return TooLong(out, options, examples.size(), name);
  if (out.examples.empty() && !examples.empty())
    return Error(Code::kInvalidArgument,
                 StrCat(name, ": all ", examples.size(), " examples are longer than --max-len ",
                        options.max_len, "; raise it"));
  return out;
}

size_t LengthBucket(size_t longest, size_t cap) {
  const size_t wanted = std::min(longest, cap);
  size_t bucket = 128;
  while (bucket < wanted) bucket *= 2;
  return std::min(bucket, cap);
}

double CountedWeight(std::span<const Sequence> batch) {
  double sum = 0;
  for (const Sequence& s : batch)
    for (size_t t = 1; t < s.weights.size(); ++t) sum += s.weights[t];
  return sum;
}

}  // namespace needle
