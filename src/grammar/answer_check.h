// Whether the engine, under the grammar of a line's own tools, could write the calls that the line
// teaches: a call that it can never write is never scored right.
// Thread-safety: none (it keeps the automatons of the tool lists seen); one object a thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "grammar/byte_automaton.h"
#include "json/json.h"

namespace needle::grammar {

class AnswerCheck {
 public:
  AnswerCheck();
  ~AnswerCheck();
  /// Nothing when `target` (a rendered target, text/render.h) can be written for `tools`;
  /// otherwise what is in the way, as the end of a sentence: the place in the calls, or what no
  /// grammar can be made of. `tools_text` stands for `tools`: lines with the same one share work.
  std::optional<std::string> Misfit(const std::string& tools_text, const json::Value& tools,
                                    const std::string& target);

 private:
  struct Known;  // an automaton, or the sentence that says why there is none
  std::map<std::string, std::unique_ptr<Known>> known_;
};

}  // namespace needle::grammar
