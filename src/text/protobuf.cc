#include "text/protobuf.h"

#include <bit>

#include "base/str_cat.h"

namespace needle {

Error ProtoReader::Truncated(size_t at) const {
  return Error(Code::kCorruptFile,
               StrCat(origin_, ": the file ends inside a field that starts at byte ", base_ + at,
                      "; it was probably cut off, fetch it again"));
}

Result<uint64_t> ProtoReader::Varint() {
  const size_t start = at_;
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (at_ == bytes_.size()) return Truncated(start);
    const uint8_t byte = bytes_[at_++];
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return value;
  }
  return Error(Code::kCorruptFile, StrCat(origin_, ": the number at byte ", base_ + start,
                                          " is longer than ten bytes; this is no protobuf file"));
}

Result<uint64_t> ProtoReader::Fixed(size_t size) {
  if (bytes_.size() - at_ < size) return Truncated(at_);
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= uint64_t{bytes_[at_ + i]} << (8 * i);
  at_ += size;
  return value;
}

Result<ProtoField> ProtoReader::Next() {
  ProtoField field;
  field.offset = base_ + at_;
  const size_t start = at_;
  NEEDLE_ASSIGN(const uint64_t tag, Varint());
  field.wire = tag & 7;
  if (tag >> 3 == 0 || tag >> 3 >= (1u << 29))
    return Error(Code::kCorruptFile, StrCat(origin_, ": byte ", field.offset,
                                            " is no protobuf field; is this a .model file?"));
  field.number = static_cast<uint32_t>(tag >> 3);
  switch (field.wire) {
    case 0: {
      NEEDLE_ASSIGN(field.value, Varint());
      return field;
    }
    case 1: {
      NEEDLE_ASSIGN(field.value, Fixed(8));
      return field;
    }
    case 5: {
      NEEDLE_ASSIGN(field.value, Fixed(4));
      return field;
    }
    case 2: {
      NEEDLE_ASSIGN(const uint64_t length, Varint());
      if (length > bytes_.size() - at_) return Truncated(start);
      field.bytes = bytes_.subspan(at_, length);
      at_ += length;
      return field;
    }
    default:
      return Error(Code::kCorruptFile, StrCat(origin_, ": byte ", field.offset, " has wire type ",
                                              field.wire, "; wanted 0, 1, 2 or 5"));
  }
}

void ProtoWriter::Raw(uint64_t value) {
  for (; value >= 0x80; value >>= 7) out_.push_back(static_cast<uint8_t>(value | 0x80));
  out_.push_back(static_cast<uint8_t>(value));
}

void ProtoWriter::Varint(uint32_t number, uint64_t value) {
  Raw(uint64_t{number} << 3);
  Raw(value);
}

void ProtoWriter::Float(uint32_t number, float value) {
  Raw((uint64_t{number} << 3) | 5);
  const auto bits = std::bit_cast<uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) out_.push_back(static_cast<uint8_t>(bits >> shift));
}

void ProtoWriter::Bytes(uint32_t number, std::string_view content) {
  Raw((uint64_t{number} << 3) | 2);
  Raw(content.size());
  out_.insert(out_.end(), content.begin(), content.end());
}

void ProtoWriter::Message(uint32_t number, const ProtoWriter& message) {
  const std::vector<uint8_t>& content = message.bytes();
  Bytes(number, {reinterpret_cast<const char*>(content.data()), content.size()});
}

}  // namespace needle
