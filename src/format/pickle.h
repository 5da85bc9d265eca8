// Restricted Python pickles: a reader that knows plain values and arrays and nothing else, and a
// writer of the same. Nothing in a file is ever executed: the few names that NumPy and upstream's
// config class need are recognised by their text, and any other name is an error that says it.
// Format: docs/formats.md "Pickle subset". Errors: kCorruptFile, with `origin` and a byte offset.
// Thread-safety: a Document is read-only after Parse; the writer is one object per thread.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace needle::pickle {

enum class Kind {
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kBytes,
  kTuple,
  kList,
  kDict,
  kArray,   // NumPy array or scalar
  kObject,  // upstream's config class with its attributes
  // The kinds below live only while a file is read; a finished document holds none of them.
  kGlobal,
  kDType,
  kBlankArray,
};

/// "a dict", "text", ...: for error sentences.
std::string_view Describe(Kind kind);

/// How one element of an array lies in the file.
struct ElementType {
  std::string_view code;       // NumPy's: "f2", "f4", "i8", ..., or "bfloat16"
  size_t size = 0;             // bytes
  DType tensor = DType::kF32;  // what ToTensor makes of it (small integers are widened)
};

/// An array as the file holds it: row-major `stored_shape`, then its axes reordered.
struct Array {
  const ElementType* type = nullptr;
  Shape stored_shape;
  std::vector<size_t> axes;        // shape[i] = stored_shape[axes[i]]; empty: no reordering
  std::span<const uint8_t> bytes;  // into the document's input, or its own storage
  Shape shape() const;
};

class Value {
 public:
  Kind kind() const { return kind_; }
  /// Where in the file the value begins.
  size_t offset() const { return offset_; }
  bool is(Kind kind) const { return kind_ == kind; }

  bool as_bool() const { return boolean_; }
  /// A whole number that fits (also a NumPy integer scalar).
  std::optional<int64_t> AsInt() const;
  /// A number (also a NumPy scalar, and an integer).
  std::optional<double> AsDouble() const;
  /// Text, bytes, or the decimal digits of an integer that AsInt cannot hold.
  std::string_view text() const { return text_; }
  /// Elements of a tuple or list.
  const std::vector<const Value*>& items() const { return items_; }
  /// Entries of a dict, attributes of an object, in file order.
  const std::vector<std::pair<const Value*, const Value*>>& entries() const { return entries_; }
  /// The entry with this text key, or nullptr.
  const Value* Find(std::string_view key) const;
  const Array& array() const { return array_; }

 private:
  friend class Reader;
  Kind kind_ = Kind::kNone;
  bool boolean_ = false;
  uint8_t global_ = 0;  // kGlobal: which of the known names
  size_t offset_ = 0;
  size_t index_ = 0;  // among the document's values
  std::optional<int64_t> integer_;
  double number_ = 0;
  std::string_view text_;
  std::vector<const Value*> items_;
  std::vector<std::pair<const Value*, const Value*>> entries_;
  Array array_;  // kDType uses only its type
};

/// A parsed file. Values point into `bytes`, which must outlive the document.
class Document {
 public:
  /// Protocols 2 to 5. The tree is finite (cycles are refused), at most 64 deep, and no larger than
  /// the file justifies, however often it shares a value.
  static Result<Document> Parse(std::span<const uint8_t> bytes, const std::string& origin);
  Document(Document&&) = default;
  Document& operator=(Document&&) = default;

  const Value& root() const { return *root_; }

 private:
  friend class Reader;
  Document() = default;
  std::deque<Value> values_;         // addresses stay
  std::deque<std::string> storage_;  // text and bytes that are not in the input as they are
  const Value* root_ = nullptr;
};

/// The array as a row-major tensor. int8, int16 and uint16 become int32, uint64 becomes int64.
/// Errors: not an array; a uint64 that does not fit.
Result<Tensor> ToTensor(const Value& value, const std::string& origin, std::string_view name);

/// Writes one protocol-4 pickle. Calls nest as the Python value does:
///   w.BeginDict(); w.String("step"); w.Int(3); w.EndDict(); bytes = w.Finish();
/// Arrays are spelled as NumPy 2 does, which NumPy 1.26 reads too. Tensors of bfloat16 need the
/// Python package ml_dtypes where they are loaded.
class Writer {
 public:
  Writer();
  void None();
  void Bool(bool value);
  void Int(int64_t value);
  void UnsignedInt(uint64_t value);
  void Float(double value);
  void String(std::string_view utf8);
  void Ints(const std::vector<int>& values);  // a tuple
  void Array(const Tensor& tensor);
  void BeginDict();
  void EndDict();
  std::vector<uint8_t> Finish();

 private:
  void Put(uint8_t byte) { out_.push_back(byte); }
  void PutBytes(const void* data, size_t size);
  void PutLittle(uint64_t value, int bytes);
  void Dims(const Shape& shape);
  void Global(std::string_view module, std::string_view name);
  void NumberType(DType type);
  bool Recall(const std::string& key);
  void Memoize(const std::string& key);

  std::vector<uint8_t> out_;
  std::vector<std::pair<std::string, uint32_t>> memo_;  // what was written, and its memo index
};

}  // namespace needle::pickle
