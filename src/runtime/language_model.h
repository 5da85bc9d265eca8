// What a session needs of a network: append tokens, read the logits, go back. exec/decoder.h is the
// native one (runtime/decoder_model.h adapts it), plugins have another, tests script their own.
// Shapes: V vocabulary. Thread-safety: none; one object a session.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"

namespace needle {

class LanguageModel {
 public:
  virtual ~LanguageModel() = default;

  virtual size_t vocab_size() const = 0;  // V
  /// Rows that it can hold (the model's max_seq_len).
  virtual size_t max_length() const = 0;
  /// Rows that it holds.
  virtual size_t length() const = 0;
  /// Appends rows (at least one, at most max_length() - length()); the logits [V] of the last one,
  /// valid until the next call. Errors: a device's; the rows that it holds are then undefined, and
  /// the next call must be Truncate(0).
  virtual Result<std::span<const float>> Append(std::span<const int32_t> ids) = 0;
  /// Forgets the rows from `length` (<= length()) on.
  virtual void Truncate(size_t length) = 0;
  /// The first rows that a window never drops: system and tools. Holds for rows appended from now.
  virtual void SetSinks(size_t rows) = 0;
};

}  // namespace needle
