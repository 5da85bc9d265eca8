#include "backend/pjrt/compile_options.h"

#include <bit>
#include <string_view>

namespace needle::pjrt {
namespace {

/// Protocol buffer fields, written one after the other.
class Fields {
 public:
  Fields& Varint(int field, uint64_t value) {
    Raw(static_cast<uint64_t>(field) << 3);
    return Raw(value);
  }
  Fields& Bytes(int field, std::string_view bytes) {
    Raw(static_cast<uint64_t>(field) << 3 | 2);
    Raw(bytes.size());
    text_.append(bytes);
    return *this;
  }
  Fields& Double(int field, double value) {
    Raw(static_cast<uint64_t>(field) << 3 | 1);
    auto bits = std::bit_cast<uint64_t>(value);
    for (int i = 0; i < 8; ++i, bits >>= 8) text_.push_back(static_cast<char>(bits & 0xff));
    return *this;
  }
  Fields& Raw(uint64_t value) {
    for (; value > 0x7f; value >>= 7) text_.push_back(static_cast<char>((value & 0x7f) | 0x80));
    text_.push_back(static_cast<char>(value));
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// OptionOverrideProto: 1 string, 2 bool, 3 int, 4 double.
struct OverrideFields {
  std::string operator()(const std::string& v) const { return Fields().Bytes(1, v).text(); }
  std::string operator()(bool v) const { return Fields().Varint(2, v ? 1 : 0).text(); }
  std::string operator()(int64_t v) const {
    return Fields().Varint(3, static_cast<uint64_t>(v)).text();
  }
  std::string operator()(double v) const { return Fields().Double(4, v).text(); }
};

/// DeviceAssignmentProto: 1 replicas, 2 computations, 3 their devices {1 one id a replica}.
std::string Assignment(const std::vector<int64_t>& devices) {
  Fields ids;
  for (const int64_t id : devices) ids.Raw(static_cast<uint64_t>(id));
  return Fields()
      .Varint(1, devices.size())
      .Varint(2, 1)
      .Bytes(3, Fields().Bytes(1, ids.text()).text())
      .text();
}

}  // namespace

std::string Serialize(const CompileOptions& options, std::map<std::string, FlagValue> shared) {
  // ExecutableBuildOptionsProto: 4 replicas, 5 partitions (both must be there), 9 devices. Its
  // debug options stay away: then the plugin takes XLA_FLAGS from the environment itself.
  Fields build;
  build.Varint(4, static_cast<uint64_t>(options.replicas)).Varint(5, 1);
  if (!options.devices.empty()) build.Bytes(9, Assignment(options.devices));
  // CompileOptionsProto: 3 build options, 7 a map of flags {1 name, 2 value}.
  Fields out;
  out.Bytes(3, build.text());
  for (const auto& [name, value] : options.overrides) shared[name] = value;
  for (const auto& [name, value] : shared)
    out.Bytes(7, Fields().Bytes(1, name).Bytes(2, std::visit(OverrideFields{}, value)).text());
  return out.text();
}

}  // namespace needle::pjrt
