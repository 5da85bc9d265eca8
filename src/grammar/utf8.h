// UTF-8, one byte at a time: which bytes may follow. Well-formed only (no overlong forms, no
// surrogates, nothing above U+10FFFF), as the Unicode standard's table 3-7 lists it. Thread-safe.
#pragma once

#include <cstdint>

namespace needle::grammar {

enum class Utf8 : uint8_t {
  kBoundary,  // between code points
  kOne,       // one more continuation byte
  kTwo,
  kThree,
  kAfterE0,  // A0..BF, then one more
  kAfterEd,  // 80..9F, then one more
  kAfterF0,  // 90..BF, then two more
  kAfterF4,  // 80..8F, then two more
  kInvalid,
};

constexpr Utf8 Utf8Start(uint8_t b) {
  if (b < 0x80) return Utf8::kBoundary;
  if (b < 0xC2) return Utf8::kInvalid;
  if (b < 0xE0) return Utf8::kOne;
  if (b == 0xE0) return Utf8::kAfterE0;
  if (b == 0xED) return Utf8::kAfterEd;
  if (b < 0xF0) return Utf8::kTwo;
  if (b == 0xF0) return Utf8::kAfterF0;
  if (b < 0xF4) return Utf8::kThree;
  if (b == 0xF4) return Utf8::kAfterF4;
  return Utf8::kInvalid;
}

constexpr Utf8 Utf8Next(Utf8 state, uint8_t b) {
  const auto in = [b](uint8_t low, uint8_t high, Utf8 next) {
    return b >= low && b <= high ? next : Utf8::kInvalid;
  };
  switch (state) {
    case Utf8::kBoundary:
      return Utf8Start(b);
    case Utf8::kOne:
      return in(0x80, 0xBF, Utf8::kBoundary);
    case Utf8::kTwo:
      return in(0x80, 0xBF, Utf8::kOne);
    case Utf8::kThree:
      return in(0x80, 0xBF, Utf8::kTwo);
    case Utf8::kAfterE0:
      return in(0xA0, 0xBF, Utf8::kOne);
    case Utf8::kAfterEd:
      return in(0x80, 0x9F, Utf8::kOne);
    case Utf8::kAfterF0:
      return in(0x90, 0xBF, Utf8::kTwo);
    case Utf8::kAfterF4:
      return in(0x80, 0x8F, Utf8::kTwo);
    case Utf8::kInvalid:
      break;
  }
  return Utf8::kInvalid;
}

}  // namespace needle::grammar
