// Tool sets of the synthetic corpus: shapes dressed with names, descriptions, casing and optional
// parts, ready to be listed as a JSON schema. Thread-safety: values; functions of the generator.
#pragma once

#include <string>
#include <vector>

#include "corpus/shapes.h"
#include "corpus/values.h"

namespace needle::corpus {

struct Field {
  std::string slot;  // what templates call it
  std::string key;   // what the schema calls it
  Type type = Type::kString;
  ValueKind kind;
  bool required = false;
  std::string description;           // empty: none
  std::vector<std::string> entries;  // of an enum, or of the items of a list
  std::vector<Field> members;        // of an object
};

struct Tool {
  std::string name;
  std::string description;  // empty: none
  std::vector<Field> fields;
  std::vector<Template> templates;  // those that its fields can serve
  size_t shape = 0;                 // index into Shapes(), or its size for a made-up tool
};

struct Toolset {
  std::vector<Tool> tools;
  std::string json;  // compact, as Python would dump it
};

/// JSON text of a string, escaped as Python does without ASCII-only.
std::string JsonString(const std::string& text);

/// One to six tools, whose JSON has about `mean_chars` characters on average.
Toolset MakeToolset(Source s, int mean_chars);

/// One small tool whose arguments are long texts in which nothing can be guessed.
Toolset MakeDrillSet(Source s);

/// A single tool of a shape that is none of the set's: for requests that no tool serves.
Tool MakeForeignTool(Source s, const Toolset& besides);

/// Names of the tools that the project's examples use; the corpus must not contain them.
const std::vector<std::string>& ReservedNames();

}  // namespace needle::corpus
