// Attempts and answers as JSON: how they travel to the child and back, and how they are kept.
#include <utility>

#include "backend/pjrt/probe.h"
#include "base/str_cat.h"

namespace needle::pjrt {
namespace {

using json::Value;

Error BadText(const char* what) {
  return Error(Code::kCorruptFile, StrCat("this is no ", what, " of a plugin's check"));
}

struct ToValue {
  Value operator()(const std::string& v) const { return Value::String(v); }
  Value operator()(bool v) const { return Value::Bool(v); }
  Value operator()(int64_t v) const { return Value::Int(v); }
  Value operator()(float v) const { return Value::Float(double{v}); }
  Value operator()(double v) const { return Value::Float(v); }
  Value operator()(const std::vector<int64_t>& v) const {
    std::vector<Value> items;
    items.reserve(v.size());
    for (const int64_t item : v) items.push_back(Value::Int(item));
    return Value::Array(std::move(items));
  }
};

Value ToJson(const std::vector<NamedValue>& values) {
  std::vector<std::pair<std::string, Value>> members;
  members.reserve(values.size());
  for (const NamedValue& v : values) members.emplace_back(v.name, std::visit(ToValue{}, v.value));
  return Value::Object(std::move(members));
}

NamedValue NamedFromJson(const std::string& name, const Value& value) {
  if (value.is_bool()) return {name, value.as_bool()};
  if (value.is_int()) return {name, value.as_int64().value_or(0)};
  if (value.is_float()) return {name, static_cast<float>(value.as_double())};
  if (!value.is_array()) return {name, value.is_string() ? value.as_string() : std::string()};
  std::vector<int64_t> list;
  for (const Value& item : value.items()) list.push_back(item.as_int64().value_or(0));
  return {name, std::move(list)};
}

FlagValue FlagFromJson(const Value& value) {
  if (value.is_bool()) return value.as_bool();
  if (value.is_int()) return value.as_int64().value_or(0);
  if (value.is_float()) return value.as_double();
  return value.is_string() ? value.as_string() : std::string();
}

/// Members that may be missing read as empty.
std::string Text(const Value& object, std::string_view key) {
  const Value* v = object.Find(key);
  return v != nullptr && v->is_string() ? v->as_string() : "";
}
int64_t Number(const Value& object, std::string_view key) {
  const Value* v = object.Find(key);
  return v != nullptr && v->is_number() ? v->as_int64().value_or(0) : 0;
}
bool Truth(const Value& object, std::string_view key) {
  const Value* v = object.Find(key);
  return v != nullptr && v->is_bool() && v->as_bool();
}
const Value& Part(const Value& object, std::string_view key) {
  static const Value empty;
  const Value* v = object.Find(key);
  return v != nullptr ? *v : empty;
}

Value ToJson(const ProbeAnswer::Device& device) {
  return Value::Object(
      {{"id", Value::Int(device.id)},
       {"kind", Value::String(device.kind)},
       {"memory_bytes", device.memory_bytes ? Value::Int(*device.memory_bytes) : Value::Null()}});
}

}  // namespace

Value ToJson(const Attempt& attempt) {
  std::vector<std::pair<std::string, Value>> overrides;
  for (const auto& [name, value] : attempt.overrides)
    overrides.emplace_back(name, std::visit(ToValue{}, value));
  std::vector<Value> preload;
  for (const std::string& path : attempt.preload) preload.push_back(Value::String(path));
  return Value::Object({{"name", Value::String(attempt.candidate.name)},
                        {"library", Value::String(attempt.candidate.library)},
                        {"options", ToJson(attempt.options)},
                        {"overrides", Value::Object(std::move(overrides))},
                        {"preload", Value::Array(std::move(preload))}});
}

Result<Attempt> AttemptFromJson(const Value& value) {
  if (!value.is_object() || Text(value, "library").empty()) return BadText("request");
  Attempt attempt;
  attempt.candidate.name = Text(value, "name");
  attempt.candidate.kind = KindNamed(attempt.candidate.name);
  attempt.candidate.library = Text(value, "library");
  for (const auto& [name, option] : Part(value, "options").members())
    attempt.options.push_back(NamedFromJson(name, option));
  for (const auto& [name, flag] : Part(value, "overrides").members())
    attempt.overrides[name] = FlagFromJson(flag);
  for (const Value& path : Part(value, "preload").items())
    attempt.preload.push_back(path.as_string());
  return attempt;
}

Value ToJson(const ProbeAnswer& answer) {
  std::vector<Value> devices;
  for (const ProbeAnswer::Device& device : answer.devices) devices.push_back(ToJson(device));
  Value out = Value::Object({{"ok", Value::Bool(answer.ok())},
                             {"ended", Value::Bool(answer.ended)},
                             {"api_major", Value::Int(answer.api_major)},
                             {"api_minor", Value::Int(answer.api_minor)},
                             {"platform", Value::String(answer.platform)},
                             {"platform_version", Value::String(answer.platform_version)},
                             {"attributes", ToJson(answer.attributes)},
                             {"devices", Value::Array(std::move(devices))}});
  if (answer.error) {
    out.Set("error", Value::String(answer.error->message()));
    out.Set("code", Value::Int(static_cast<int64_t>(answer.error->code())));
  }
  return out;
}

Result<ProbeAnswer> AnswerFromJson(const Value& value) {
  if (!value.is_object() || value.Find("ok") == nullptr) return BadText("answer");
  ProbeAnswer answer;
  answer.ended = Truth(value, "ended");
  answer.api_major = static_cast<int>(Number(value, "api_major"));
  answer.api_minor = static_cast<int>(Number(value, "api_minor"));
  answer.platform = Text(value, "platform");
  answer.platform_version = Text(value, "platform_version");
  for (const auto& [name, attribute] : Part(value, "attributes").members())
    answer.attributes.push_back(NamedFromJson(name, attribute));
  for (const Value& item : Part(value, "devices").items()) {
    ProbeAnswer::Device device;
    device.id = Number(item, "id");
    device.kind = Text(item, "kind");
    if (Part(item, "memory_bytes").is_int()) device.memory_bytes = Number(item, "memory_bytes");
    answer.devices.push_back(std::move(device));
  }
  if (!Truth(value, "ok")) {
    const int64_t code = Number(value, "code");
    const bool known = code >= 0 && code <= static_cast<int64_t>(Code::kInternal);
    answer.error = Error(known ? static_cast<Code>(code) : Code::kInternal, Text(value, "error"));
  }
  return answer;
}

}  // namespace needle::pjrt
