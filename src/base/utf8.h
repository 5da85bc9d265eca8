// UTF-8: validation, and code points in and out. Overlong forms, surrogates (U+D800..U+DFFF) and
// values above U+10FFFF are invalid, as in Unicode's table 3-7. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace needle {

/// One code point and the number of bytes that it takes; length 0 means "no valid sequence here".
struct CodePoint {
  char32_t value = 0;
  size_t length = 0;
};

/// The code point that starts at byte `at`; length 0 at the end of the text or when invalid.
CodePoint DecodeUtf8(std::string_view text, size_t at);

/// The number of leading bytes that are valid UTF-8: text.size() when all is well.
size_t ValidUtf8Length(std::string_view text);

inline bool IsValidUtf8(std::string_view text) { return ValidUtf8Length(text) == text.size(); }

/// Appends a code point, which must be one that UTF-8 can hold (assert).
void AppendUtf8(std::string& out, char32_t code_point);

}  // namespace needle
