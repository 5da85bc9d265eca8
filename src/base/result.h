// Result<T>: a value, or an Error that is a whole sentence.
// Thread-safety: plain values. Errors: see Code; the app maps a code to an exit status
// (ExitStatus).
#pragma once

#include <cassert>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace needle {

enum class Code {
  kInvalidArgument,  // the caller or the user asked for something that cannot be (exit status 2)
  kCorruptFile,      // a file is not what it claims to be (exit status 2)
  kNotFound,         // a named file or thing is not there (exit status 2)
  kIo,               // the operating system refused (exit status 1)
  kUnavailable,      // network or device not reachable now (exit status 1)
  kCheckFailed,      // a check that was asked for did not hold (exit status 3)
  kInternal,         // a bug (exit status 1)
};

/// What went wrong, as a sentence: where, what was found, what was wanted, what to try.
class [[nodiscard]] Error {
 public:
  Error(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  /// The same error, with where it happened before it: "FILE: what was found ...".
  Error In(const std::string& where) const { return {code_, where + ": " + message_}; }

 private:
  Code code_;
  std::string message_;
};

/// Either a T or an Error. Reading the wrong one is a bug (assert).
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    assert(!ok());
    return *std::get_if<1>(&state_);
  }
  T& value() & {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  const T& value() const& {
    assert(ok());
    return *std::get_if<0>(&state_);
  }
  T&& value() && {
    assert(ok());
    return std::move(*std::get_if<0>(&state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Error> state_;
};

/// Success without a value, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT
  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const {
    assert(!ok());
    return *error_;
  }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace needle

#define NEEDLE_CONCAT_INNER(a, b) a##b
#define NEEDLE_CONCAT(a, b) NEEDLE_CONCAT_INNER(a, b)
/// NEEDLE_ASSIGN(auto x, F()): x = *F(), or return F's error from this function.
#define NEEDLE_ASSIGN(declaration, expression)                                   \
  auto NEEDLE_CONCAT(result_, __LINE__) = (expression);                          \
  if (!NEEDLE_CONCAT(result_, __LINE__).ok())                                    \
    return ::needle::Error(std::move(NEEDLE_CONCAT(result_, __LINE__)).error()); \
  declaration = std::move(NEEDLE_CONCAT(result_, __LINE__)).value()  // NOLINT: it declares
/// NEEDLE_TRY(F()): return F's error from this function, if it has one.
#define NEEDLE_TRY(expression)                                                                 \
  do {                                                                                         \
    auto needle_try_result = (expression);                                                     \
    if (!needle_try_result.ok()) return ::needle::Error(std::move(needle_try_result).error()); \
  } while (false)
