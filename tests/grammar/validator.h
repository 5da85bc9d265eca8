// Test support: a small JSON schema validator of its own, written from the schema's meaning and not
// from the grammar, to judge what the grammar lets through.
#pragma once

#include <algorithm>
#include <string>

#include "json/json.h"

namespace needle::test {

inline bool OfType(const json::Value& v, const std::string& type) {
  if (type == "string") return v.is_string();
  if (type == "integer") return v.is_int();
  if (type == "number") return v.is_number();
  if (type == "boolean") return v.is_bool();
  if (type == "null") return v.is_null();
  if (type == "array") return v.is_array();
  return v.is_object();
}

bool Valid(const json::Value& v, const json::Value& schema, const json::Value& root);

inline bool ValidObject(const json::Value& v, const json::Value& schema, const json::Value& root) {
  const json::Value* properties = schema.Find("properties");
  if (properties == nullptr) return true;
  for (const auto& member : v.members()) {
    const json::Value* p = properties->Find(member.first);
    if (p == nullptr || !Valid(member.second, *p, root)) return false;
  }
  if (const json::Value* required = schema.Find("required"))
    for (const json::Value& name : required->items())
      if (v.Find(name.as_string()) == nullptr) return false;
  return true;
}

inline bool ValidArray(const json::Value& v, const json::Value& schema, const json::Value& root) {
  const auto count = static_cast<int64_t>(v.items().size());
  if (const json::Value* n = schema.Find("minItems"); n != nullptr && count < *n->as_int64())
    return false;
  if (const json::Value* n = schema.Find("maxItems"); n != nullptr && count > *n->as_int64())
    return false;
  const json::Value* items = schema.Find("items");
  return items == nullptr || std::all_of(v.items().begin(), v.items().end(), [&](const auto& item) {
           return Valid(item, *items, root);
         });
}

inline bool Valid(const json::Value& v, const json::Value& schema, const json::Value& root) {
  if (schema.is_bool()) return schema.as_bool();
  if (const json::Value* ref = schema.Find("$ref")) {
    const std::string name = ref->as_string();
    if (name == "#") return Valid(v, root, root);
    return Valid(v, *root.Find("$defs")->Find(name.substr(name.rfind('/') + 1)), root);
  }
  if (const json::Value* c = schema.Find("const"))
    if (!json::Equal(v, *c)) return false;
  if (const json::Value* e = schema.Find("enum"))
    if (std::none_of(e->items().begin(), e->items().end(),
                     [&](const auto& c) { return json::Equal(v, c); }))
      return false;
  for (const char* key : {"anyOf", "oneOf"})
    if (const json::Value* any = schema.Find(key))
      if (std::none_of(any->items().begin(), any->items().end(),
                       [&](const auto& s) { return Valid(v, s, root); }))
        return false;
  if (const json::Value* type = schema.Find("type")) {
    const bool fits = type->is_string()
                          ? OfType(v, type->as_string())
                          : std::any_of(type->items().begin(), type->items().end(),
                                        [&](const auto& t) { return OfType(v, t.as_string()); });
    if (!fits) return false;
  }
  if (v.is_object() && !ValidObject(v, schema, root)) return false;
  return !v.is_array() || ValidArray(v, schema, root);
}

/// A call list against its tools.
inline bool ValidCalls(const json::Value& calls, const json::Value& tools) {
  if (!calls.is_array()) return false;
  for (const json::Value& call : calls.items()) {
    if (call.members().size() != 2) return false;
    bool valid = false;
    for (const json::Value& tool : tools.items()) {
      if (!json::Equal(*tool.Find("name"), *call.Find("name"))) continue;
      const json::Value* parameters = tool.Find("parameters");
      const json::Value& arguments = *call.Find("arguments");
      const bool none = parameters == nullptr || parameters->members().empty();
      valid = valid || (none ? arguments.is_object() && arguments.members().empty()
                             : Valid(arguments, *parameters, *parameters));
    }
    if (!valid) return false;
  }
  return true;
}

}  // namespace needle::test
