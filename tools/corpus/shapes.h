// The tool shapes of the synthetic corpus, written by hand in a small language, one block a tool:
//
//   @name other_name|Description.|Other description.
//   -param,other,names:kind! Description of the parameter.
//   -group,names.child,names:kind? Description.       (a member of a nested object)
//   >words {param} [optional words {other}] (one|another) {flag=true:words said}
//
// '!' is required, '?' optional. Slots name a parameter by its first name; "{p'}" is quoted.
// "[...]" may be left out; "(a|b)" is a choice. Kinds: generator.cc, ParseKind.
// Thread-safety: built once on first use, then constant.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace needle::corpus {

enum class Type { kString, kInteger, kNumber, kBoolean, kStringList, kObject };

/// What a value looks like. Kinds with a pool draw from an enum that the schema lists.
struct ValueKind {
  std::string name;  // "int", "num", "bool", "enum", "time", "text", ...
  std::string item;  // list: the kind of an item; enum, elist: the pool
  int low = 0, high = 0;
  int decimals = 0;
};

struct Param {
  std::vector<std::string> names;  // the first is what templates call it
  ValueKind kind;
  Type type = Type::kString;
  bool required = true;
  std::string description;
  std::vector<Param> members;  // of an object
};

/// A piece of a template.
struct Node {
  enum class What { kWords, kSlot, kOptional, kChoice };
  What what = What::kWords;
  std::string words;     // kWords; for a slot with a constant, what is said
  std::string slot;      // the parameter (a child by its own name)
  std::string constant;  // kSlot: JSON constant meant by the words; empty: a value
  bool quoted = false;   // kSlot
  std::vector<std::vector<Node>> branches;  // kOptional: one; kChoice: several
};
using Template = std::vector<Node>;

struct Shape {
  std::vector<std::string> names;
  std::vector<std::string> descriptions;
  std::vector<Param> params;
  std::vector<Template> templates;
};

/// A kind from its text, such as "int(1,20)" or "list(word)", and the JSON type it has.
ValueKind ParseKind(const std::string& text);
Type TypeOf(const ValueKind& kind);
Template ParseTemplate(const std::string& text);

/// All hand-written shapes.
const std::vector<Shape>& Shapes();

}  // namespace needle::corpus
