// JSON schemas as a graph of small nodes, one node kind for each thing a schema can ask for. The
// graph says which texts are allowed (Python's compact dump: no spaces); grammar/byte_automaton.h
// reads it byte by byte.
//
// Understood: type (also a list of types, any case), properties, required, items, minItems,
// maxItems, enum, const, anyOf, oneOf, allOf with one part, nullable, $ref to "#/...", boolean
// schemas, and additionalProperties as the value of an object that declares no properties. A schema
// without any of them allows every JSON value; other keywords are ignored, so that the graph never
// refuses what the schema allows for that reason.
// Errors: sentences that name the tool and the path inside its schema. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "json/json.h"

namespace needle::grammar {

enum class NodeKind : uint8_t {
  kLiterals,  // one of `texts`, byte by byte
  kString,    // a JSON string as Python dumps it, valid UTF-8
  kText,      // any UTF-8 text outside JSON; may end at any code point
  kInteger,   // -?(0|[1-9][0-9]*) without -0
  kNumber,    // an integer, or with a fraction and Python's exponent form
  kArray,     // children[0] repeated min_items..max_items times
  kObject,    // keys `texts`, each at most once, in any order; values children[i]
  kMap,       // any keys; values children[0] (children[1] is the key's string node)
  kSequence,  // texts[0] children[0] texts[1] ... texts[n]
  kUnion,     // any of `children` (none of them a union)
};

inline constexpr uint32_t kNoLimit = 0xFFFFFFFF;
/// Values nest at most this deep (lists and objects that are open at once).
inline constexpr uint32_t kMaxDepth = 64;
/// The minimal depth of a node that nothing can satisfy.
inline constexpr uint32_t kUnsatisfiable = 0x7FFFFFFF;

struct Node {
  NodeKind kind = NodeKind::kUnion;
  std::vector<std::string> texts;  // kLiterals: sorted; kObject: sorted `"key":`; kSequence
  std::vector<uint32_t> children;  // indices into SchemaGraph::nodes, see NodeKind
  std::vector<uint8_t> required;   // kObject: 1 where texts[i] must appear
  uint32_t min_items = 0;          // kArray
  uint32_t max_items = kNoLimit;   // kArray
  uint32_t min_depth = 0;          // lists and objects that its smallest value must open
};

struct SchemaGraph {
  std::vector<Node> nodes;
  uint32_t root = 0;
  size_t largest_union = 0;
};

/// The texts of one schema.
Result<SchemaGraph> CompileSchema(const json::Value& schema);

/// The texts of a call list for these tools: `[]` or `[{"name":"...","arguments":{...}},...]`.
/// `tools` is a list of {name, parameters} (null means none); OpenAI's {"function": {...}} wrapper
/// is taken off. Missing parameters mean no arguments. Two tools of one name allow both schemas.
Result<SchemaGraph> CompileCalls(const json::Value& tools);

/// One node of any UTF-8 text.
SchemaGraph TextGraph();

}  // namespace needle::grammar
