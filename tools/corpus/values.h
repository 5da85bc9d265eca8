// Values of the synthetic corpus: words (real and made up), names, numbers, texts.
// Thread-safety: functions of the generator passed in; the word lists are constant.
#pragma once

#include <string>
#include <vector>

#include "corpus/rng.h"
#include "corpus/shapes.h"

namespace needle::corpus {

/// Words of the open lists (nouns, names, ...), made-up words and tool shapes are split by their
/// hash: validation has none of training's. Enum pools and connecting words serve both.
enum class Part { kTrain, kValid };
bool InPart(std::string_view word, Part part);

/// The words of a list that belong to a part.
const std::vector<std::string>& Vocabulary(std::string_view list, Part part);

struct Source {
  Rng& rng;
  Part part;
};

std::string MadeUpWord(Source s);
/// A noun, verb, adjective, another common word or, one time in six, a made-up word.
std::string AnyWord(Source s);
std::string Noun(Source s);
/// Free text of one to nine words, never ending in a word that may trail a request.
std::string FreeText(Source s);
/// A string value of a kind; `entries` are the enum's if it has one.
std::string StringValue(Source s, const std::string& kind, const std::vector<std::string>& entries);
/// The JSON text of a number, as Python writes it.
std::string NumberValue(Source s, const ValueKind& kind);

std::string Capitalised(const std::string& word);

}  // namespace needle::corpus
