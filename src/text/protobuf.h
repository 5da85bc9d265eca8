// The wire format of protocol buffers, as far as a SentencePiece model needs it: fields one by one,
// and a writer. Source: protobuf.dev/programming-guides/encoding. Errors carry the byte offset.
// Thread-safety: one object, one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace needle {

/// One field of a message.
struct ProtoField {
  uint32_t number = 0;
  uint32_t wire = 0;               // 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes
  uint64_t value = 0;              // the varint, or the little-endian bits of a fixed field
  std::span<const uint8_t> bytes;  // the content of a length-delimited field
  size_t offset = 0;               // of the field's tag, counted from the start of the file

  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
};

/// Walks through the fields of one message.
class ProtoReader {
 public:
  /// `offset` is where `bytes` starts in the file; `origin` names the file in errors.
  ProtoReader(std::span<const uint8_t> bytes, size_t offset, const std::string& origin)
      : bytes_(bytes), base_(offset), origin_(origin) {}

  bool done() const { return at_ == bytes_.size(); }
  Result<ProtoField> Next();
  /// The file offset of a length-delimited field's content.
  size_t ContentOffset(const ProtoField& field) const {
    return base_ + static_cast<size_t>(field.bytes.data() - bytes_.data());
  }

 private:
  Result<uint64_t> Varint();
  Result<uint64_t> Fixed(size_t size);
  Error Truncated(size_t at) const;

  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  size_t base_;
  const std::string& origin_;
};

/// Appends fields to one message.
class ProtoWriter {
 public:
  void Varint(uint32_t number, uint64_t value);
  void Float(uint32_t number, float value);
  void Bytes(uint32_t number, std::string_view content);
  void Message(uint32_t number, const ProtoWriter& message);
  const std::vector<uint8_t>& bytes() const { return out_; }

 private:
  void Raw(uint64_t value);
  std::vector<uint8_t> out_;
};

}  // namespace needle
