#include "base/utf8.h"

#include <cassert>
#include <cstdint>

namespace needle {
namespace {

// What a lead byte announces: the sequence's length, and the range of its second byte, which is
// where overlong forms, surrogates and values above U+10FFFF are refused.
struct Lead {
  size_t length;
  uint8_t second_min, second_max;
};

Lead LeadOf(uint8_t b) {
  if (b >= 0xC2 && b <= 0xDF) return {2, 0x80, 0xBF};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b >= 0xE1 && b <= 0xEF) return {3, 0x80, 0xBF};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b >= 0xF1 && b <= 0xF3) return {4, 0x80, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

CodePoint DecodeUtf8(std::string_view text, size_t at) {
  if (at >= text.size()) return {};
  const uint8_t first = static_cast<uint8_t>(text[at]);
  if (first < 0x80) return {first, 1};
  const Lead lead = LeadOf(first);
  if (lead.length == 0 || text.size() - at < lead.length) return {};
  const uint8_t second = static_cast<uint8_t>(text[at + 1]);
  if (second < lead.second_min || second > lead.second_max) return {};
  char32_t value = first & (0x7Fu >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) {
    const uint8_t next = static_cast<uint8_t>(text[at + i]);
    if ((next & 0xC0) != 0x80) return {};
    value = (value << 6) | (next & 0x3Fu);
  }
  return {value, lead.length};
}

size_t ValidUtf8Length(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const CodePoint next = DecodeUtf8(text, at);
    if (next.length == 0) break;
    at += next.length;
  }
  return at;
}

void AppendUtf8(std::string& out, char32_t code_point) {
  assert(code_point <= 0x10FFFF && (code_point < 0xD800 || code_point > 0xDFFF));
  const auto tail = [&](int shift) {
    return static_cast<char>(0x80 | ((code_point >> shift) & 0x3F));
  };
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += {static_cast<char>(0xC0 | (code_point >> 6)), tail(0)};
  } else if (code_point < 0x10000) {
    out += {static_cast<char>(0xE0 | (code_point >> 12)), tail(6), tail(0)};
  } else {
    out += {static_cast<char>(0xF0 | (code_point >> 18)), tail(12), tail(6), tail(0)};
  }
}

}  // namespace needle
