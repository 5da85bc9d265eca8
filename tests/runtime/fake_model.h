// Test support: a language model that writes scripted answers, and checks how it is used.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/language_model.h"
#include "text/tokenizer.h"

namespace needle::test {

/// After a prompt whose text contains a key, it wants to write the value's tokens and then EOS. A
/// token that it did not want (a grammar forbade its own) ends its wishes: then it likes each token
/// less the larger its id.
class FakeModel : public LanguageModel {
 public:
  FakeModel(const Tokenizer& tokenizer, std::map<std::string, std::string> answers,
            size_t max_length = 4096)
      : tokenizer_(tokenizer), answers_(std::move(answers)), max_length_(max_length) {}

  size_t vocab_size() const override { return tokenizer_.size(); }
  size_t max_length() const override { return max_length_; }
  size_t length() const override { return rows_.size(); }
  void Truncate(size_t length) override {
    ASSERT_LE(length, rows_.size());
    rows_.resize(length);
  }
  void SetSinks(size_t rows) override { sinks_ = rows; }
  Result<std::span<const float>> Append(std::span<const int32_t> ids) override {
    EXPECT_GE(ids.size(), 1u);
    EXPECT_LE(rows_.size() + ids.size(), max_length_);
    if (error_) return *std::exchange(error_, std::nullopt);
    rows_.insert(rows_.end(), ids.begin(), ids.end());
    appended_.push_back(ids.size());
    logits_.assign(vocab_size(), 0);
    for (size_t i = 0; i < logits_.size(); ++i) logits_[i] = -0.001f * static_cast<float>(i);
    logits_[static_cast<size_t>(Wish())] = 5;
    if (last_logit_) logits_.back() = *last_logit_;
    return std::span<const float>(logits_);
  }

  std::vector<int32_t> rows_;
  std::vector<size_t> appended_;
  size_t sinks_ = 0;
  std::optional<Error> error_;       // what the next Append gives instead of logits
  std::optional<float> last_logit_;  // in the place of the last id's

 private:
  int32_t Wish() const {
    const int32_t assistant = tokenizer_.IdOf("<|im_start|>");
    size_t turn = rows_.size();
    while (turn > 0 && rows_[turn - 1] != assistant) --turn;
    const std::string prompt = tokenizer_.Decode(std::span(rows_).first(turn));
    for (const auto& [key, answer] : answers_) {
      if (prompt.find(key) == std::string::npos) continue;
      const std::vector<int32_t> rest(rows_.begin() + static_cast<long>(turn), rows_.end());
      const std::vector<int32_t> head = Tail();
      const auto begin = std::search(rest.begin(), rest.end(), head.begin(), head.end());
      const auto written = static_cast<size_t>(rest.end() - begin) - head.size();
      std::vector<int32_t> wanted = *tokenizer_.Encode(answer);
      wanted.push_back(kEosId);
      const bool follows = written < wanted.size() &&
                           std::equal(wanted.begin(), wanted.begin() + static_cast<long>(written),
                                      begin + static_cast<long>(head.size()));
      return follows ? wanted[written] : 0;
    }
    return 0;
  }
  /// The tokens between <|im_start|> and the answer: "assistant\n".
  std::vector<int32_t> Tail() const {
    const std::vector<int32_t> all = *tokenizer_.Encode("<|im_start|>assistant\n");
    const auto at = std::find(all.begin(), all.end(), tokenizer_.IdOf("<|im_start|>"));
    return {at + 1, all.end()};
  }

  const Tokenizer& tokenizer_;
  std::map<std::string, std::string> answers_;
  size_t max_length_;
  std::vector<float> logits_;
};

}  // namespace needle::test
