// The vocabulary of the synthetic corpus: plain word lists.
// Thread-safety: built once on first use, then constant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace needle::corpus {

/// A named list: nouns, verbs, adjectives, adverbs, people, cities, topics, ... or a pool of enum
/// entries ("rooms", "colours"). Asserts that the name exists.
const std::vector<std::string>& Words(std::string_view list);

/// The names of all pools of enum entries.
const std::vector<std::string>& PoolNames();

}  // namespace needle::corpus
