// Running a model token by token on a device: weights and caches of keys and values stay there, a
// call sends tokens and gets back the logits of the last one. The shape of exec/decoder.h.
// Errors: the plugin's, as sentences. Thread-safety: one decoder, one thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/pjrt/client.h"
#include "backend/pjrt/programs.h"
#include "model/params.h"

namespace needle {

class PjrtDecoder {
 public:
  virtual ~PjrtDecoder() = default;

  virtual size_t vocab_size() const = 0;
  virtual size_t max_length() const = 0;  // the model's max_seq_len
  virtual size_t length() const = 0;
  /// Appends rows (at least one, at most max_length() - length(), asserted); the logits [V] of the
  /// last one, valid until the next call.
  virtual Result<std::span<const float>> Append(std::span<const int32_t> ids) = 0;
  /// Forgets the rows from `length` (<= length()) on.
  virtual void Truncate(size_t length) = 0;
};

/// `checkpoint`: with its adapter merged; it runs in full precision. `unroll`: all layers in a row,
/// as ProgramOptions has it.
Result<std::unique_ptr<PjrtDecoder>> MakePjrtDecoder(std::shared_ptr<pjrt::Client> client,
                                                     const Checkpoint& checkpoint, bool unroll);

/// The likeliest token after each other, from the model's answer to `prompt`, until `end` (not
/// included) or `most` tokens; the lowest id on ties. Wants an empty decoder.
Result<std::vector<int32_t>> DecodeGreedily(PjrtDecoder& decoder, std::span<const int32_t> prompt,
                                            int32_t end, size_t most);

}  // namespace needle
