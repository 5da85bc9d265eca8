#include "format/config_fields.h"

#include <limits>
#include <optional>
#include <type_traits>

#include "base/str_cat.h"

namespace needle {
namespace {

json::Value ToJson(int v) { return json::Value::Int(v); }
json::Value ToJson(bool v) { return json::Value::Bool(v); }
json::Value ToJson(double v) { return json::Value::Float(v); }
json::Value ToJson(const std::string& v) { return json::Value::String(v); }
json::Value ToJson(const std::vector<int>& v) {
  std::vector<json::Value> items;
  items.reserve(v.size());
  for (const int i : v) items.push_back(json::Value::Int(i));
  return json::Value::Array(std::move(items));
}

// Each returns false when the value has another type.
bool FromJson(const json::Value& v, int& out) {
  const std::optional<int64_t> n = v.is_int() ? v.as_int64() : std::nullopt;
  if (!n || *n < std::numeric_limits<int>::min() || *n > std::numeric_limits<int>::max())
    return false;
  out = static_cast<int>(*n);
  return true;
}
bool FromJson(const json::Value& v, bool& out) {
  if (v.is_bool()) out = v.as_bool();
  return v.is_bool();
}
bool FromJson(const json::Value& v, double& out) {
  if (v.is_number()) out = v.as_double();
  return v.is_number();
}
bool FromJson(const json::Value& v, std::string& out) {
  if (v.is_string()) out = v.as_string();
  return v.is_string();
}
bool FromJson(const json::Value& v, std::vector<int>& out) {
  if (!v.is_array()) return false;
  out.clear();
  for (const json::Value& item : v.items())
    if (!FromJson(item, out.emplace_back())) return false;
  return true;
}

/// Why a value is none for a field of this type.
template <class Field>
std::string WhyNot(const json::Value& v, const Field&) {
  const std::string text = json::Dump(v);
  if (std::is_same_v<Field, int> && v.is_int()) return BeyondInt(text.starts_with('-'));
  return StrCat("is ", text, ", which is of another type");
}

}  // namespace

std::string BeyondInt(bool negative) {
  using Limits = std::numeric_limits<int>;
  return negative ? StrCat("is too small; at least ", Limits::min(), " is read")
                  : StrCat("is too large; at most ", Limits::max(), " is read");
}

json::Value ConfigToJson(const ModelConfig& config) {
  json::Value out = json::Value::Object();
  VisitConfigFields(config,
                    [&](const char* name, const auto& field) { out.Set(name, ToJson(field)); });
  return out;
}

Result<ModelConfig> ConfigFromJson(const json::Value& value, const std::string& origin) {
  if (!value.is_object())
    return Error(Code::kCorruptFile, StrCat(origin, ": the config is not a JSON object"));
  ModelConfig config;
  std::optional<Error> error;
  VisitConfigFields(config, [&](const char* name, auto& field) {
    const json::Value* found = value.Find(name);
    if (error || !found || FromJson(*found, field)) return;
    error = Error(Code::kCorruptFile,
                  StrCat(origin, ": config field \"", name, "\" ", WhyNot(*found, field)));
  });
  if (error) return *error;
  return config;
}

}  // namespace needle
