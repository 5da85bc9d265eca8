#include "grammar/schema_graph.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/ascii.h"
#include "base/str_cat.h"

namespace needle::grammar {
namespace {

using json::Kind;
using json::Value;

// Bounds on what a hostile schema can make us build. Far above any tool list that fits a prompt.
constexpr size_t kMaxNodes = 50000;
constexpr size_t kMaxAlternatives = 500000;
constexpr int kMaxSchemaDepth = 96;

constexpr std::array<std::string_view, 7> kTypes = {"string", "integer", "number", "boolean",
                                                    "null",   "array",   "object"};

bool HasType(const Value& v, std::string_view type) {
  switch (v.kind()) {
    case Kind::kNull:
      return type == "null";
    case Kind::kBool:
      return type == "boolean";
    case Kind::kInt:
      return type == "integer" || type == "number";
    case Kind::kFloat:
      return type == "number" || (type == "integer" && v.as_int64().has_value());
    case Kind::kString:
      return type == "string";
    case Kind::kArray:
      return type == "array";
    case Kind::kObject:
      return type == "object";
  }
  return false;
}

/// True if the schema says something about the shape of a value by itself.
bool HasShape(const Value& schema) {
  if (!schema.is_object()) return true;
  for (const char* key :
       {"type", "properties", "items", "enum", "const", "$ref", "anyOf", "oneOf", "allOf"})
    if (schema.Find(key) != nullptr) return true;
  return false;
}

class Compiler {
 public:
  explicit Compiler(std::string where) : where_(std::move(where)) {}

  /// Starts a new schema: "$ref" points into it, errors begin with `where`.
  void Enter(const Value& root, std::string where) {
    schema_root_ = &root;
    where_ = std::move(where);
    references_.clear();
  }

  Result<uint32_t> Compile(const Value& schema, const std::string& path, int depth);
  Result<uint32_t> Arguments(const Value* parameters);
  Result<uint32_t> Add(Node node);
  Status Finish(SchemaGraph* graph, uint32_t root);
  Error Bad(const std::string& path, const std::string& what) const {
    return Error(Code::kInvalidArgument,
                 StrCat(where_, path.empty() ? "" : " at ", path, ": ", what));
  }

 private:
  Result<uint32_t> Shape(const Value& schema, const std::string& path, int depth);
  Result<uint32_t> OfType(const Value& schema, const std::string& type, const std::string& path,
                          int depth);
  Result<uint32_t> Enum(const Value& schema, const std::vector<Value>& values,
                        const std::string& path);
  Result<uint32_t> AnyOf(const Value& list, const std::string& path, int depth);
  Result<uint32_t> Array(const Value& schema, const std::string& path, int depth);
  Result<uint32_t> Object(const Value& schema, const std::string& path, int depth);
  Result<uint32_t> Map(uint32_t values);
  Result<uint32_t> Reference(const std::string& pointer, const std::string& path, int depth);
  Result<uint32_t> AnyValue();
  Result<uint32_t> Literals(std::vector<std::string> texts);
  Result<uint32_t> Simple(NodeKind kind);
  Result<std::vector<std::string>> Types(const Value& type, const std::string& path) const;
  Result<uint32_t> Count(const Value& schema, const char* key, uint32_t missing,
                         const std::string& path) const;
  Status FlattenUnions();
  void FindMinimalDepths();

  std::vector<Node> nodes_;
  std::string where_;
  const Value* schema_root_ = nullptr;
  std::map<std::string, uint32_t> references_;  // "$ref" text to its node
  std::map<NodeKind, uint32_t> simple_;
  std::optional<uint32_t> any_;
};

Result<uint32_t> Compiler::Add(Node node) {
  if (nodes_.size() >= kMaxNodes)
    return Bad("", StrCat("the tools need more than ", kMaxNodes,
                          " grammar nodes; give fewer or smaller tools"));
  nodes_.push_back(std::move(node));
  return static_cast<uint32_t>(nodes_.size() - 1);
}

Result<uint32_t> Compiler::Simple(NodeKind kind) {
  if (const auto it = simple_.find(kind); it != simple_.end()) return it->second;
  Node node;
  node.kind = kind;
  NEEDLE_ASSIGN(const uint32_t id, Add(std::move(node)));
  simple_[kind] = id;
  return id;
}

Result<uint32_t> Compiler::Literals(std::vector<std::string> texts) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  Node node;
  node.kind = NodeKind::kLiterals;
  node.texts = std::move(texts);
  return Add(std::move(node));
}

Result<uint32_t> Compiler::Map(uint32_t values) {
  NEEDLE_ASSIGN(const uint32_t key, Simple(NodeKind::kString));
  Node node;
  node.kind = NodeKind::kMap;
  node.children = {values, key};
  return Add(std::move(node));
}

Result<uint32_t> Compiler::AnyValue() {
  if (any_) return *any_;
  NEEDLE_ASSIGN(const uint32_t any, Add({}));  // a union, filled below: it contains itself
  NEEDLE_ASSIGN(const uint32_t string, Simple(NodeKind::kString));
  NEEDLE_ASSIGN(const uint32_t number, Simple(NodeKind::kNumber));
  NEEDLE_ASSIGN(const uint32_t words, Literals({"true", "false", "null"}));
  Node list;
  list.kind = NodeKind::kArray;
  list.children = {any};
  NEEDLE_ASSIGN(const uint32_t array, Add(std::move(list)));
  NEEDLE_ASSIGN(const uint32_t map, Map(any));
  nodes_[any].children = {string, number, words, array, map};
  any_ = any;
  return any;
}

Result<std::vector<std::string>> Compiler::Types(const Value& type, const std::string& path) const {
  std::vector<std::string> types;
  const auto add = [&](const Value& v) {
    if (!v.is_string()) return false;
    types.push_back(AsciiLower(v.as_string()));
    return std::find(kTypes.begin(), kTypes.end(), types.back()) != kTypes.end();
  };
  bool known = !type.is_array() || !type.items().empty();
  if (type.is_array()) {
    for (const Value& v : type.items()) known = known && add(v);
  } else {
    known = add(type);
  }
  if (!known)
    return Bad(path, StrCat("\"type\" is ", json::Dump(type),
                            "; the JSON schema types are string, integer, number, boolean, null, "
                            "array and object, or a list of them"));
  return types;
}

Result<uint32_t> Compiler::Compile(const Value& schema, const std::string& path, int depth) {
  if (depth > kMaxSchemaDepth)
    return Bad("", StrCat("the schema nests deeper than ", kMaxSchemaDepth, " levels"));
  if (schema.is_bool()) return schema.as_bool() ? AnyValue() : Add({});  // false: an empty union
  if (!schema.is_object())
    return Bad(
        path, StrCat("a JSON schema is an object, but this is ", json::Dump(schema).substr(0, 60)));
  NEEDLE_ASSIGN(const uint32_t shape, Shape(schema, path, depth));
  const Value* nullable = schema.Find("nullable");
  if (nullable == nullptr || !nullable->is_bool() || !nullable->as_bool()) return shape;
  NEEDLE_ASSIGN(const uint32_t null, Literals({"null"}));
  Node node;
  node.children = {shape, null};
  return Add(std::move(node));
}

Result<uint32_t> Compiler::Shape(const Value& schema, const std::string& path, int depth) {
  if (const Value* reference = schema.Find("$ref")) {
    if (!reference->is_string()) return Bad(path, "\"$ref\" is not a string");
    return Reference(reference->as_string(), path, depth);
  }
  if (const Value* constant = schema.Find("const")) return Enum(schema, {*constant}, path);
  if (const Value* values = schema.Find("enum")) {
    if (!values->is_array() || values->items().empty())
      return Bad(path, "\"enum\" must be a list with at least one value");
    return Enum(schema, values->items(), path);
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const Value* list = schema.Find(key);
    if (list == nullptr) continue;
    if (!list->is_array() || list->items().empty())
      return Bad(path, StrCat("\"", key, "\" must be a list with at least one schema"));
    // Alternatives that only add conditions ({"required": [...]}) leave the shape to this schema.
    const bool shaped = std::all_of(list->items().begin(), list->items().end(), HasShape);
    if (shaped || schema.Find("type") == nullptr) return AnyOf(*list, path + "/" + key, depth);
  }
  if (const Value* all = schema.Find("allOf");
      all != nullptr && all->is_array() && all->items().size() == 1 &&
      schema.Find("type") == nullptr && schema.Find("properties") == nullptr)
    return Compile(all->items()[0], path + "/allOf/0", depth + 1);
  const Value* type = schema.Find("type");
  if (type == nullptr) {
    if (schema.Find("properties") != nullptr) return Object(schema, path, depth);
    return AnyValue();
  }
  NEEDLE_ASSIGN(const std::vector<std::string> types, Types(*type, path));
  if (types.size() == 1) return OfType(schema, types[0], path, depth);
  Node node;
  for (const std::string& t : types) {
    NEEDLE_ASSIGN(const uint32_t child, OfType(schema, t, path, depth));
    node.children.push_back(child);
  }
  return Add(std::move(node));
}

Result<uint32_t> Compiler::OfType(const Value& schema, const std::string& type,
                                  const std::string& path, int depth) {
  if (type == "string") return Simple(NodeKind::kString);
  if (type == "integer") return Simple(NodeKind::kInteger);
  if (type == "number") return Simple(NodeKind::kNumber);
  if (type == "boolean") return Literals({"true", "false"});
  if (type == "null") return Literals({"null"});
  if (type == "array") return Array(schema, path, depth);
  return Object(schema, path, depth);
}

Result<uint32_t> Compiler::Enum(const Value& schema, const std::vector<Value>& values,
                                const std::string& path) {
  std::vector<std::string> types;
  const Value* type = schema.Find("type");
  if (type != nullptr) {
    NEEDLE_ASSIGN(types, Types(*type, path));
  }
  std::vector<std::string> texts;
  for (const Value& v : values) {
    const bool fits = types.empty() || std::any_of(types.begin(), types.end(),
                                                   [&](const auto& t) { return HasType(v, t); });
    if (fits) texts.push_back(json::Dump(v));
  }
  if (type != nullptr && texts.empty())  // without a type every value fits
    return Bad(path, StrCat("none of the listed values has the type ", json::Dump(*type)));
  return Literals(std::move(texts));
}

Result<uint32_t> Compiler::AnyOf(const Value& list, const std::string& path, int depth) {
  Node node;
  for (size_t i = 0; i < list.items().size(); ++i) {
    NEEDLE_ASSIGN(const uint32_t child, Compile(list.items()[i], StrCat(path, "/", i), depth + 1));
    node.children.push_back(child);
  }
  return Add(std::move(node));
}

Result<uint32_t> Compiler::Count(const Value& schema, const char* key, uint32_t missing,
                                 const std::string& path) const {
  const Value* value = schema.Find(key);
  if (value == nullptr) return missing;
  const std::optional<int64_t> n = value->as_int64();
  if (!n || *n < 0)
    return Bad(path, StrCat("\"", key, "\" is ", json::Dump(*value).substr(0, 60),
                            "; it must be a whole number from 0"));
  return static_cast<uint32_t>(std::min<int64_t>(*n, kNoLimit));
}

Result<uint32_t> Compiler::Array(const Value& schema, const std::string& path, int depth) {
  Node node;
  node.kind = NodeKind::kArray;
  NEEDLE_ASSIGN(node.min_items, Count(schema, "minItems", 0, path));
  NEEDLE_ASSIGN(node.max_items, Count(schema, "maxItems", kNoLimit, path));
  if (node.min_items > node.max_items)
    return Bad(path,
               StrCat("\"minItems\" ", node.min_items, " is above \"maxItems\" ", node.max_items));
  const Value* items = schema.Find("items");
  if (items != nullptr && !items->is_array()) {
    NEEDLE_ASSIGN(const uint32_t child, Compile(*items, path + "/items", depth + 1));
    node.children = {child};
  } else {
    NEEDLE_ASSIGN(const uint32_t any, AnyValue());
    node.children = {any};
  }
  return Add(std::move(node));
}

Result<uint32_t> Compiler::Object(const Value& schema, const std::string& path, int depth) {
  const Value* properties = schema.Find("properties");
  if (properties == nullptr) {
    const Value* rest = schema.Find("additionalProperties");
    const bool typed = rest != nullptr && rest->is_object();
    NEEDLE_ASSIGN(const uint32_t values,
                  typed ? Compile(*rest, path + "/additionalProperties", depth + 1) : AnyValue());
    return Map(values);
  }
  if (!properties->is_object()) return Bad(path, "\"properties\" is not an object");
  std::vector<std::pair<std::string, const Value*>> keys;  // `"key":` and its schema
  for (const auto& member : properties->members())
    keys.emplace_back(json::Dump(Value::String(member.first)) + ":", &member.second);
  std::sort(keys.begin(), keys.end());
  Node node;
  node.kind = NodeKind::kObject;
  for (const auto& key : keys) {
    const std::string at = path + "/properties/" + key.first.substr(0, key.first.size() - 1);
    NEEDLE_ASSIGN(const uint32_t child, Compile(*key.second, at, depth + 1));
    node.texts.push_back(key.first);
    node.children.push_back(child);
  }
  node.required.assign(node.texts.size(), 0);
  const Value* required = schema.Find("required");
  if (required != nullptr && required->is_array()) {
    for (const Value& name : required->items()) {
      const std::string text = name.is_string() ? json::Dump(name) + ":" : std::string();
      const auto it = std::lower_bound(node.texts.begin(), node.texts.end(), text);
      if (it == node.texts.end() || *it != text)
        return Bad(path, StrCat("\"required\" names ", json::Dump(name).substr(0, 60),
                                ", which is not among the properties"));
      node.required[static_cast<size_t>(it - node.texts.begin())] = 1;
    }
  }
  return Add(std::move(node));
}

Result<uint32_t> Compiler::Reference(const std::string& pointer, const std::string& path,
                                     int depth) {
  if (const auto it = references_.find(pointer); it != references_.end()) return it->second;
  if (pointer.empty() || pointer[0] != '#' || (pointer.size() > 1 && pointer[1] != '/'))
    return Bad(path, StrCat("\"$ref\" \"", pointer,
                            "\" points outside the schema; only \"#/...\" is supported"));
  const Value* at = schema_root_;
  for (size_t begin = 2; begin <= pointer.size() && at != nullptr && pointer.size() > 1;) {
    const size_t end = std::min(pointer.find('/', begin), pointer.size());
    std::string step = pointer.substr(begin, end - begin);
    for (const auto& [code, plain] : {std::pair{"~1", "/"}, std::pair{"~0", "~"}})
      for (size_t i = step.find(code); i != std::string::npos; i = step.find(code, i + 1))
        step.replace(i, 2, plain);
    if (at->is_array()) {
      const bool index = !step.empty() && step.size() < 6 &&
                         step.find_first_not_of("0123456789") == std::string::npos;
      const size_t i = index ? std::stoul(step) : at->items().size();
      at = i < at->items().size() ? &at->items()[i] : nullptr;
    } else {
      at = at->Find(step);
    }
    begin = end + 1;
  }
  if (at == nullptr) return Bad(path, StrCat("\"$ref\" \"", pointer, "\" leads nowhere"));
  NEEDLE_ASSIGN(const uint32_t node, Add({}));  // a union of one: the target may contain itself
  references_[pointer] = node;
  NEEDLE_ASSIGN(const uint32_t target, Compile(*at, pointer, depth + 1));
  nodes_[node].children = {target};
  return node;
}

Result<uint32_t> Compiler::Arguments(const Value* parameters) {
  Node none;
  none.kind = NodeKind::kObject;
  if (parameters == nullptr || parameters->is_null()) return Add(std::move(none));
  if (!parameters->is_object())
    return Bad("", StrCat("\"parameters\" is ", json::Dump(*parameters).substr(0, 60),
                          "; it must be a JSON schema of type object (an empty object is fine)"));
  if (const Value* type = parameters->Find("type")) {
    NEEDLE_ASSIGN(const std::vector<std::string> types, Types(*type, "parameters"));
    if (types != std::vector<std::string>{"object"})
      return Bad("", StrCat("\"parameters\" has type ", json::Dump(*type),
                            "; arguments are an object, so it must be \"object\""));
  }
  for (const char* key : {"$ref", "anyOf", "oneOf", "allOf"})
    if (parameters->Find(key) != nullptr && parameters->Find("properties") == nullptr)
      return Compile(*parameters, "parameters", 0);
  if (parameters->Find("properties") == nullptr) return Add(std::move(none));
  return Object(*parameters, "parameters", 0);
}

/// Replaces each union's children by the non-unions that they lead to.
Status Compiler::FlattenUnions() {
  size_t total = 0;
  std::vector<std::vector<uint32_t>> flat(nodes_.size());
  std::vector<uint32_t> seen(nodes_.size(), 0xFFFFFFFF);
  for (uint32_t id = 0; id < nodes_.size(); ++id) {
    if (nodes_[id].kind != NodeKind::kUnion) continue;
    std::vector<uint32_t> todo = {id};
    seen[id] = id;
    while (!todo.empty()) {
      const uint32_t at = todo.back();
      todo.pop_back();
      if (nodes_[at].kind != NodeKind::kUnion) {
        flat[id].push_back(at);
        continue;
      }
      total += nodes_[at].children.size();
      if (total > kMaxAlternatives)
        return Bad("", "the schema has too many alternatives inside alternatives");
      for (const uint32_t child : nodes_[at].children)
        if (seen[child] != id) seen[child] = id, todo.push_back(child);
    }
    std::sort(flat[id].begin(), flat[id].end());
  }
  for (uint32_t id = 0; id < nodes_.size(); ++id)
    if (nodes_[id].kind == NodeKind::kUnion) nodes_[id].children = std::move(flat[id]);
  return {};
}

uint32_t MinimalDepth(const Node& node, const std::vector<Node>& nodes) {
  const auto deeper = [](uint32_t depth) { return std::min(depth + 1, kUnsatisfiable); };
  uint32_t depth = 0;
  switch (node.kind) {
    case NodeKind::kLiterals:
      return node.texts.empty() ? kUnsatisfiable : 0;
    case NodeKind::kString:
    case NodeKind::kText:
    case NodeKind::kInteger:
    case NodeKind::kNumber:
      return 0;
    case NodeKind::kMap:
      return 1;
    case NodeKind::kArray:
      return node.min_items == 0 ? 1 : deeper(nodes[node.children[0]].min_depth);
    case NodeKind::kObject:
      for (size_t i = 0; i < node.children.size(); ++i)
        if (node.required[i]) depth = std::max(depth, nodes[node.children[i]].min_depth);
      return deeper(depth);
    case NodeKind::kSequence:
      for (const uint32_t child : node.children) depth = std::max(depth, nodes[child].min_depth);
      return depth;
    case NodeKind::kUnion:
      depth = kUnsatisfiable;
      for (const uint32_t child : node.children) depth = std::min(depth, nodes[child].min_depth);
      return depth;
  }
  return kUnsatisfiable;
}

/// Least fixed point: depths start unsatisfiable and fall until none changes. A depth above
/// kMaxDepth is as good as unsatisfiable, so the rounds are few.
void Compiler::FindMinimalDepths() {
  for (Node& node : nodes_) node.min_depth = kUnsatisfiable;
  bool changed = true;
  for (uint32_t round = 0; changed && round < 4 * kMaxDepth; ++round) {
    changed = false;
    for (Node& node : nodes_) {
      const uint32_t depth = MinimalDepth(node, nodes_);
      changed = changed || depth != node.min_depth;
      node.min_depth = depth;
    }
  }
}

Status Compiler::Finish(SchemaGraph* graph, uint32_t root) {
  NEEDLE_TRY(FlattenUnions());
  FindMinimalDepths();
  graph->root = root;
  graph->nodes = std::move(nodes_);
  for (const Node& node : graph->nodes)
    if (node.kind == NodeKind::kUnion)
      graph->largest_union = std::max(graph->largest_union, node.children.size());
  return {};
}

constexpr const char* kNeverTrue =
    "nothing can satisfy this schema (it asks for a value that contains itself, or is empty); "
    "remove a \"required\" or add an alternative";

/// {"type":"function","function":{...}} -> the inner object.
const Value& Unwrap(const Value& tool) {
  const Value* inner = tool.Find("name") == nullptr ? tool.Find("function") : nullptr;
  return inner != nullptr && inner->is_object() ? *inner : tool;
}

}  // namespace

Result<SchemaGraph> CompileSchema(const json::Value& schema) {
  Compiler compiler("the schema");
  compiler.Enter(schema, "the schema");
  NEEDLE_ASSIGN(const uint32_t root, compiler.Compile(schema, "", 0));
  SchemaGraph graph;
  NEEDLE_TRY(compiler.Finish(&graph, root));
  if (graph.nodes[root].min_depth > kMaxDepth) return compiler.Bad("", kNeverTrue);
  return graph;
}

Result<SchemaGraph> CompileCalls(const json::Value& tools) {
  Compiler compiler("the tools");
  if (!tools.is_array() && !tools.is_null())
    return compiler.Bad("", "expected a list of tools, each with a \"name\" and \"parameters\"");
  Node calls;  // a union
  std::vector<std::string> names;
  for (size_t i = 0; i < tools.items().size(); ++i) {
    const Value& tool = Unwrap(tools.items()[i]);
    const Value* name = tool.Find("name");
    if (name == nullptr || !name->is_string())
      return compiler.Bad("", StrCat("tool ", i + 1,
                                     " has no \"name\"; each tool needs a \"name\" "
                                     "and a JSON schema in \"parameters\""));
    const Value* parameters = tool.Find("parameters");
    compiler.Enter(parameters != nullptr ? *parameters : tool,
                   StrCat("tool \"", name->as_string(), "\""));
    NEEDLE_ASSIGN(const uint32_t arguments, compiler.Arguments(parameters));
    Node call;
    call.kind = NodeKind::kSequence;
    call.texts = {StrCat("{\"name\":", json::Dump(*name), ",\"arguments\":"), "}"};
    call.children = {arguments};
    NEEDLE_ASSIGN(const uint32_t id, compiler.Add(std::move(call)));
    calls.children.push_back(id);
    names.push_back(name->as_string());
  }
  const std::vector<uint32_t> of_tool = calls.children;
  NEEDLE_ASSIGN(const uint32_t items, compiler.Add(std::move(calls)));
  Node list;
  list.kind = NodeKind::kArray;
  list.children = {items};
  NEEDLE_ASSIGN(const uint32_t root, compiler.Add(std::move(list)));
  SchemaGraph graph;
  NEEDLE_TRY(compiler.Finish(&graph, root));
  for (size_t i = 0; i < of_tool.size(); ++i)
    if (graph.nodes[of_tool[i]].min_depth >= kMaxDepth)
      return Error(Code::kInvalidArgument, StrCat("tool \"", names[i], "\": ", kNeverTrue));
  return graph;
}

SchemaGraph TextGraph() {
  SchemaGraph graph;
  graph.nodes.emplace_back();
  graph.nodes.back().kind = NodeKind::kText;
  return graph;
}

}  // namespace needle::grammar
