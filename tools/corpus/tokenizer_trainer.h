// The vocabulary of the bundled base model, from a corpus of JSON lines.
//
// Byte-pair merges with one property: the pieces of a word do not depend on what stands around it,
// so that a model copies a word token by token from a request into JSON. No piece joins letters
// with anything else; a space, a digit and a sign stand alone; only the signs of JSON's structure
// ({ } [ ] : , ") merge among themselves. Common words weigh less than their count (square root),
// so that rare words get pieces too. Same corpus, same bytes. Thread-safety: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace needle::corpus {

/// How often runs of letters, runs of structure and single other characters occur.
using RunCounts = std::map<std::string, uint64_t>;

/// Adds the runs of one line's prompt and target. Errors: as json::Parse and RenderExample.
Status CountLine(std::string_view line, RunCounts& counts);

/// At most `vocabulary` pieces (at least 600): the specials, the chat markers, the bytes, the
/// merges, the characters.
std::vector<Piece> TrainPieces(const RunCounts& counts, size_t vocabulary);

}  // namespace needle::corpus
