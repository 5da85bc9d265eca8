// The reading half of format/pickle.h.
#include <algorithm>
#include <array>
#include <bit>
#include <unordered_map>
#include <unordered_set>

#include "base/str_cat.h"
#include "base/utf8.h"
#include "format/pickle.h"
#include "format/pickle_types.h"

namespace needle::pickle {
namespace {

constexpr size_t kMaxValues = size_t{1} << 18;  // a checkpoint has some thousands
constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxDims = 32;
constexpr int64_t kMaxElements = int64_t{1} << 46;
constexpr size_t kMaxIntBytes = 1024;  // 2466 digits

// The names that a file may ask for. None of them is ever called: each is a shape of bytes.
enum Global : uint8_t {
  kReconstruct,
  kScalar,
  kFromBuffer,
  kNdArray,
  kNumpyDType,
  kBfloat16,
  kEncode,
  kBytesType,
  kByteArrayType,
  kObjectType,
  kConfigClass,
  kReconstructor,
  kNewObj,
};
struct KnownGlobal {
  std::string_view module, name;
  Global global;
};
constexpr std::array<KnownGlobal, 21> kKnownGlobals = {{
    {"numpy._core.multiarray", "_reconstruct", kReconstruct},
    {"numpy.core.multiarray", "_reconstruct", kReconstruct},
    {"numpy._core.multiarray", "scalar", kScalar},
    {"numpy.core.multiarray", "scalar", kScalar},
    {"numpy._core.numeric", "_frombuffer", kFromBuffer},
    {"numpy.core.numeric", "_frombuffer", kFromBuffer},
    {"numpy", "ndarray", kNdArray},
    {"numpy", "dtype", kNumpyDType},
    {"ml_dtypes", "bfloat16", kBfloat16},
    {"_codecs", "encode", kEncode},
    {"builtins", "bytes", kBytesType},
    {"__builtin__", "bytes", kBytesType},
    {"builtins", "bytearray", kByteArrayType},
    {"__builtin__", "bytearray", kByteArrayType},
    {"builtins", "object", kObjectType},
    {"__builtin__", "object", kObjectType},
    {"needle.model.architecture", "TransformerConfig", kConfigClass},
    {"copyreg", "_reconstructor", kReconstructor},
    {"copy_reg", "_reconstructor", kReconstructor},
    {"copyreg", "__newobj__", kNewObj},
    {"copy_reg", "__newobj__", kNewObj},
}};

/// Decimal digits of a little-endian two's complement integer.
std::string DecimalOf(std::span<const uint8_t> little) {
  std::vector<uint8_t> magnitude(little.begin(), little.end());
  const bool negative = !magnitude.empty() && (magnitude.back() & 0x80);
  if (negative) {
    unsigned carry = 1;
    for (uint8_t& b : magnitude) {
      carry += static_cast<uint8_t>(~b);
      b = static_cast<uint8_t>(carry);
      carry >>= 8;
    }
  }
  std::string digits;
  while (!magnitude.empty()) {  // divide by ten until nothing is left
    unsigned rest = 0;
    for (size_t i = magnitude.size(); i-- > 0;) {
      rest = rest << 8 | magnitude[i];
      magnitude[i] = static_cast<uint8_t>(rest / 10);
      rest %= 10;
    }
    digits.push_back(static_cast<char>('0' + rest));
    while (!magnitude.empty() && magnitude.back() == 0) magnitude.pop_back();
  }
  if (digits.empty()) digits.push_back('0');
  if (negative) digits.push_back('-');
  std::reverse(digits.begin(), digits.end());
  return digits;
}

}  // namespace

// A stack machine, as Python's unpickler is, whose callable names are the list above.
class Reader {
 public:
  Reader(std::span<const uint8_t> bytes, const std::string& origin)
      : bytes_(bytes), origin_(origin), storage_left_(2 * bytes.size() + 65536) {}

  Result<Document> Run() {
    while (!done_) {
      at_ = pos_;
      NEEDLE_ASSIGN(const uint8_t opcode, Byte());
      NEEDLE_TRY(Step(opcode));
    }
    if (pos_ != bytes_.size())
      return Fail(pos_, StrCat(bytes_.size() - pos_, " bytes follow the end of the pickle"));
    NEEDLE_TRY(CheckTree());
    return std::move(doc_);
  }

 private:
  using Bytes = std::span<const uint8_t>;

  Error Fail(size_t offset, std::string_view what) const {
    return Error(Code::kCorruptFile, StrCat(origin_, ": at byte ", offset, ": ", what));
  }
  Error Fail(std::string_view what) const { return Fail(at_, what); }
  Error Truncated(uint64_t wanted) const {
    return Error(Code::kCorruptFile, StrCat(origin_, ": the file ends at byte ", bytes_.size(),
                                            ", but the item that begins at byte ", at_, " needs ",
                                            wanted, " bytes from byte ", pos_,
                                            " on; the file is cut short, fetch or write it again"));
  }

  // ---- bytes -----------------------------------------------------------------------------------
  Result<Bytes> Take(uint64_t size) {
    if (size > bytes_.size() - pos_) return Truncated(size);
    const Bytes out = bytes_.subspan(pos_, static_cast<size_t>(size));
    pos_ += static_cast<size_t>(size);
    return out;
  }
  Result<uint64_t> Little(int size) {
    NEEDLE_ASSIGN(const Bytes b, Take(static_cast<uint64_t>(size)));
    uint64_t value = 0;
    for (int i = size; i-- > 0;) value = value << 8 | b[static_cast<size_t>(i)];
    return value;
  }
  Result<uint8_t> Byte() {
    NEEDLE_ASSIGN(const Bytes b, Take(1));
    return b[0];
  }
  /// Text up to a newline, which is eaten.
  Result<std::string_view> Line() {
    const Bytes rest = bytes_.subspan(pos_);
    const auto end = std::find(rest.begin(), rest.end(), uint8_t{'\n'});
    if (end == rest.end()) return Truncated(rest.size() + 1);
    const std::string_view line = TextOf(rest.first(static_cast<size_t>(end - rest.begin())));
    pos_ += line.size() + 1;
    return line;
  }
  static std::string_view TextOf(Bytes b) {
    return {reinterpret_cast<const char*>(b.data()), b.size()};
  }
  static Bytes BytesOf(std::string_view s) {
    return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
  }

  // ---- values and the stack --------------------------------------------------------------------
  Result<Value*> New(Kind kind) {
    if (doc_.values_.size() >= kMaxValues)
      return Fail(StrCat("more than ", kMaxValues, " values; a checkpoint has some thousands"));
    Value& value = doc_.values_.emplace_back();
    value.kind_ = kind;
    value.offset_ = at_;
    value.index_ = doc_.values_.size() - 1;
    return &value;
  }
  Status Push(Value* value) {
    if (stack_.size() >= kMaxValues) return Fail("the stack is too deep");
    stack_.push_back(value);
    return {};
  }
  Status PushNew(Kind kind) {
    NEEDLE_ASSIGN(Value* const value, New(kind));
    return Push(value);
  }
  size_t Floor() const { return marks_.empty() ? 0 : marks_.back(); }
  Result<Value*> Pop() {
    if (stack_.size() <= Floor()) return Fail("takes a value from an empty stack");
    Value* const value = stack_.back();
    stack_.pop_back();
    return value;
  }
  Result<Value*> Top() {
    if (stack_.size() <= Floor()) return Fail("needs a value on an empty stack");
    return stack_.back();
  }
  /// The values above the last mark; the mark goes.
  Result<std::vector<const Value*>> PopMark() {
    if (marks_.empty()) return Fail("closes a group that was never opened");
    std::vector<const Value*> out(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                                  stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return out;
  }
  Result<std::string_view> Keep(std::string text) {
    if (text.size() > storage_left_) return Fail("the file's shared text grows beyond its size");
    storage_left_ -= text.size();
    return std::string_view(doc_.storage_.emplace_back(std::move(text)));
  }

  // ---- opcodes ---------------------------------------------------------------------------------
  Status Step(uint8_t opcode) {
    switch (opcode) {
      case 0x80:
        return Protocol();
      case 0x95:
        return Frame();
      case '.':
        return Stop();
      case '(':
        marks_.push_back(stack_.size());
        return marks_.size() > kMaxValues ? Status(Fail("too many open groups")) : Status();
      case '0':
        return PopOne();
      case '1': {
        NEEDLE_TRY(PopMark());
        return {};
      }
      case '2': {
        NEEDLE_ASSIGN(Value* const top, Top());
        return Push(top);
      }
      case 'R':
        return Reduce();
      case 'b':
        return Build();
      case 'c':
        return GlobalLines();
      case 0x93:
        return GlobalFromStack();
      case 0x81:
        return NewObject(/*keywords=*/false);
      case 0x92:
        return NewObject(/*keywords=*/true);
      default:
        return Literal(opcode);
    }
  }

  Status Literal(uint8_t opcode) {
    switch (opcode) {
      case 'N':
        return PushNew(Kind::kNone);
      case 0x88:
      case 0x89:
        return PushBool(opcode == 0x88);
      case 'K':
        return PushUnsigned(1);
      case 'M':
        return PushUnsigned(2);
      case 'J': {
        NEEDLE_ASSIGN(const uint64_t bits, Little(4));
        return PushInt(static_cast<int32_t>(static_cast<uint32_t>(bits)));
      }
      case 0x8A:
        return PushLong(1);
      case 0x8B:
        return PushLong(4);
      case 'G':
        return PushFloat();
      case 0x8C:
        return PushText(1);
      case 'X':
        return PushText(4);
      case 0x8D:
        return PushText(8);
      case 'C':
        return PushBytes(1);
      case 'B':
        return PushBytes(4);
      case 0x8E:
      case 0x96:
        return PushBytes(8);
      default:
        return Container(opcode);
    }
  }

  Status Container(uint8_t opcode) {
    switch (opcode) {
      case ')':
        return PushNew(Kind::kTuple);
      case ']':
        return PushNew(Kind::kList);
      case '}':
        return PushNew(Kind::kDict);
      case 't':
        return FromMark(Kind::kTuple);
      case 'l':
        return FromMark(Kind::kList);
      case 'd':
        return FromMark(Kind::kDict);
      case 0x85:
      case 0x86:
      case 0x87:
        return SmallTuple(opcode - 0x84);
      case 'a': {
        NEEDLE_ASSIGN(Value* const item, Pop());
        return Append({item});
      }
      case 'e': {
        NEEDLE_ASSIGN(const auto items, PopMark());
        return Append(items);
      }
      case 's': {
        NEEDLE_ASSIGN(Value* const value, Pop());
        NEEDLE_ASSIGN(Value* const key, Pop());
        return SetItems({key, value});
      }
      case 'u': {
        NEEDLE_ASSIGN(const auto items, PopMark());
        return SetItems(items);
      }
      default:
        return Memo(opcode);
    }
  }

  Status Memo(uint8_t opcode) {
    switch (opcode) {
      case 0x94:
        return Remember(memo_.size());
      case 'q':
      case 'r': {
        NEEDLE_ASSIGN(const uint64_t index, Little(opcode == 'q' ? 1 : 4));
        return Remember(index);
      }
      case 'h':
      case 'j': {
        NEEDLE_ASSIGN(const uint64_t index, Little(opcode == 'h' ? 1 : 4));
        const auto found = memo_.find(index);
        if (found == memo_.end())
          return Fail(StrCat("recalls item ", index, ", which was never stored"));
        return Push(found->second);
      }
      default:
        return Unknown(opcode);
    }
  }

  Status Unknown(uint8_t opcode) const {
    constexpr char kHex[] = "0123456789abcdef";
    const std::string code = {'0', 'x', kHex[opcode >> 4], kHex[opcode & 15]};
    if (opcode == 0x97 || opcode == 0x98)
      return Fail("its arrays lie outside the file (out-of-band buffers); save it in one piece");
    if (opcode == 'P' || opcode == 'Q')
      return Fail(
          "refers to an object outside the file (a persistent id); save it as plain arrays");
    return Fail(
        StrCat("opcode ", code, " is not one that a file of arrays and plain values needs"));
  }

  Status Protocol() {
    NEEDLE_ASSIGN(const uint8_t version, Byte());
    if (at_ != 0) return Fail("a second pickle begins inside the first");
    if (version < 2 || version > 5)
      return Fail(StrCat("pickle protocol ", int{version}, "; protocols 2 to 5 are read"));
    return {};
  }
  Status Frame() {
    NEEDLE_ASSIGN(const uint64_t size, Little(8));
    if (size > bytes_.size() - pos_) return Truncated(size);
    return {};
  }
  Status Stop() {
    NEEDLE_ASSIGN(Value* const root, Pop());
    if (!stack_.empty() || !marks_.empty()) return Fail("ends with values left over");
    doc_.root_ = root;
    done_ = true;
    return {};
  }
  Status PopOne() {
    if (!marks_.empty() && marks_.back() == stack_.size()) {
      marks_.pop_back();
      return {};
    }
    NEEDLE_TRY(Pop());
    return {};
  }
  Status Remember(uint64_t index) {
    NEEDLE_ASSIGN(Value* const top, Top());
    if (memo_.size() >= kMaxValues) return Fail("stores too many items");
    memo_[index] = top;
    return {};
  }

  // ---- plain values ----------------------------------------------------------------------------
  Status PushBool(bool value) {
    NEEDLE_ASSIGN(Value* const out, New(Kind::kBool));
    out->boolean_ = value;
    return Push(out);
  }
  Status PushInt(int64_t value) {
    NEEDLE_ASSIGN(Value* const out, New(Kind::kInt));
    out->integer_ = value;
    return Push(out);
  }
  Status PushUnsigned(int size) {
    NEEDLE_ASSIGN(const uint64_t value, Little(size));
    return PushInt(static_cast<int64_t>(value));
  }
  Status PushLong(int size_bytes) {
    NEEDLE_ASSIGN(const uint64_t size, Little(size_bytes));
    if (size > kMaxIntBytes)
      return Fail(StrCat("an integer of ", size, " bytes; at most ", kMaxIntBytes, " are read"));
    NEEDLE_ASSIGN(const Bytes little, Take(size));
    if (size <= 8) {
      uint64_t bits = size && (little.back() & 0x80) ? ~uint64_t{0} : 0;
      for (size_t i = little.size(); i-- > 0;) bits = bits << 8 | little[i];
      return PushInt(static_cast<int64_t>(bits));
    }
    NEEDLE_ASSIGN(Value* const out, New(Kind::kInt));
    NEEDLE_ASSIGN(out->text_, Keep(DecimalOf(little)));
    return Push(out);
  }
  Status PushFloat() {
    NEEDLE_ASSIGN(const Bytes big, Take(8));
    uint64_t bits = 0;
    for (const uint8_t b : big) bits = bits << 8 | b;
    NEEDLE_ASSIGN(Value* const out, New(Kind::kFloat));
    out->number_ = std::bit_cast<double>(bits);
    return Push(out);
  }
  Status PushText(int size_bytes) {
    NEEDLE_ASSIGN(const uint64_t size, Little(size_bytes));
    NEEDLE_ASSIGN(const Bytes text, Take(size));
    if (!IsValidUtf8(TextOf(text))) return Fail("text that is not UTF-8");
    return PushData(Kind::kString, TextOf(text));
  }
  Status PushBytes(int size_bytes) {
    NEEDLE_ASSIGN(const uint64_t size, Little(size_bytes));
    NEEDLE_ASSIGN(const Bytes data, Take(size));
    return PushData(Kind::kBytes, TextOf(data));
  }
  Status PushData(Kind kind, std::string_view data) {
    NEEDLE_ASSIGN(Value* const out, New(kind));
    out->text_ = data;
    return Push(out);
  }

  // ---- containers ------------------------------------------------------------------------------
  Status FromMark(Kind kind) {
    NEEDLE_ASSIGN(auto items, PopMark());
    NEEDLE_ASSIGN(Value* const out, New(kind));
    NEEDLE_TRY(Push(out));
    if (kind == Kind::kDict) return SetItems(items);
    out->items_ = std::move(items);
    return {};
  }
  Status SmallTuple(int count) {
    NEEDLE_ASSIGN(Value* const out, New(Kind::kTuple));
    for (int i = 0; i < count; ++i) {
      NEEDLE_ASSIGN(Value* const item, Pop());
      out->items_.insert(out->items_.begin(), item);
    }
    return Push(out);
  }
  Status Append(const std::vector<const Value*>& items) {
    NEEDLE_ASSIGN(Value* const list, Top());
    if (!list->is(Kind::kList))
      return Fail(StrCat("appends to ", Describe(list->kind()), ", not to a list"));
    list->items_.insert(list->items_.end(), items.begin(), items.end());
    return {};
  }
  Status SetItems(const std::vector<const Value*>& items) {
    NEEDLE_ASSIGN(Value* const dict, Top());
    if (!dict->is(Kind::kDict))
      return Fail(StrCat("sets entries of ", Describe(dict->kind()), ", not of a dict"));
    if (items.size() % 2) return Fail("a dict key without a value");
    for (size_t i = 0; i < items.size(); i += 2)
      dict->entries_.emplace_back(items[i], items[i + 1]);
    return {};
  }

  // ---- names -----------------------------------------------------------------------------------
  Status GlobalLines() {
    NEEDLE_ASSIGN(const std::string_view module, Line());
    NEEDLE_ASSIGN(const std::string_view name, Line());
    return PushGlobal(module, name);
  }
  Status GlobalFromStack() {
    NEEDLE_ASSIGN(Value* const name, Pop());
    NEEDLE_ASSIGN(Value* const module, Pop());
    if (!name->is(Kind::kString) || !module->is(Kind::kString))
      return Fail("a name that is not text");
    return PushGlobal(module->text(), name->text());
  }
  Status PushGlobal(std::string_view module, std::string_view name) {
    for (const KnownGlobal& known : kKnownGlobals) {
      if (known.module != module || known.name != name) continue;
      NEEDLE_ASSIGN(Value* const out, New(Kind::kGlobal));
      out->global_ = known.global;
      return Push(out);
    }
    const std::string asked =
        StrCat(origin_, ": asks for ", Printable(module), ".", Printable(name), " at byte ", at_);
    if (module == "jax" || module.starts_with("jax.") || module.starts_with("jaxlib"))
      return Error(
          Code::kCorruptFile,
          StrCat(asked, ": it holds JAX arrays; convert each with numpy.asarray before saving"));
    return Error(Code::kCorruptFile, StrCat(asked, "; only arrays and plain values are read"));
  }
  /// A name from a file that nobody vouches for, fit for a message.
  static std::string Printable(std::string_view text) {
    std::string out;
    for (const char c : text.substr(0, 80)) out.push_back(c >= 0x20 && c < 0x7F ? c : '?');
    return text.size() > 80 ? out + "..." : out;
  }
  static bool IsGlobal(const Value* value, Global global) {
    return value->is(Kind::kGlobal) && value->global_ == global;
  }

  // ---- what the known names make ---------------------------------------------------------------
  Status Reduce() {
    NEEDLE_ASSIGN(Value* const arguments, Pop());
    NEEDLE_ASSIGN(Value* const callable, Pop());
    if (!callable->is(Kind::kGlobal)) return Fail(StrCat("calls ", Describe(callable->kind())));
    if (!arguments->is(Kind::kTuple)) return Fail("a call whose arguments are no tuple");
    const std::vector<const Value*>& args = arguments->items();
    switch (callable->global_) {
      case kReconstruct:
        if (args.size() != 3 || !IsGlobal(args[0], kNdArray))
          return Fail("an array of a class that is not numpy.ndarray");
        return PushNew(Kind::kBlankArray);
      case kScalar:
        return Scalar(args);
      case kFromBuffer:
        return FromBuffer(args);
      case kNumpyDType:
        return MakeDType(args);
      case kEncode:
        return Encode(args);
      case kBytesType:
      case kByteArrayType:
        return MakeBytes(args);
      case kConfigClass:
        return args.empty() ? PushNew(Kind::kObject) : Status(Fail("a config with unnamed fields"));
      case kReconstructor:
        if (args.size() != 3 || !IsGlobal(args[1], kObjectType))
          return Fail("an object of an unexpected base class");
        return MakeObject(args[0]);
      case kNewObj:
        return args.size() == 1 ? MakeObject(args[0])
                                : Status(Fail("an object with unnamed fields"));
      default:
        return Fail("calls a name that cannot be called");
    }
  }
  Status MakeObject(const Value* type) {
    if (!IsGlobal(type, kConfigClass)) return Fail("an object that is not a TransformerConfig");
    return PushNew(Kind::kObject);
  }
  Status NewObject(bool keywords) {
    const Value* fields = nullptr;
    if (keywords) {
      NEEDLE_ASSIGN(fields, Pop());
      if (!fields->is(Kind::kDict)) return Fail("an object whose named fields are no dict");
    }
    NEEDLE_ASSIGN(Value* const args, Pop());
    NEEDLE_ASSIGN(Value* const type, Pop());
    if (!args->is(Kind::kTuple) || !args->items().empty())
      return Fail("an object with unnamed fields");
    NEEDLE_TRY(MakeObject(type));
    return fields ? AddAttributes(stack_.back(), fields) : Status();
  }
  Status MakeBytes(const std::vector<const Value*>& args) {
    if (args.empty()) return PushData(Kind::kBytes, {});
    if (args.size() != 1 || !args[0]->is(Kind::kBytes)) return Fail("bytes made of something else");
    return PushData(Kind::kBytes, args[0]->text());
  }
  /// Protocol 2 writes bytes as text: code points 0 to 255, to be encoded as latin1.
  Status Encode(const std::vector<const Value*>& args) {
    if (args.size() != 2 || !args[0]->is(Kind::kString) || !args[1]->is(Kind::kString) ||
        (args[1]->text() != "latin1" && args[1]->text() != "latin-1"))
      return Fail("an encoding other than latin1");
    const std::string_view text = args[0]->text();
    if (text.size() > storage_left_) return Fail("the file's shared bytes grow beyond its size");
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      const uint8_t b = static_cast<uint8_t>(text[i]);
      if (b > 0xC3) return Fail("bytes written as text hold a character above 255");
      out.push_back(b < 0x80 ? text[i] : static_cast<char>((b & 3) << 6 | (text[++i] & 0x3F)));
    }
    NEEDLE_ASSIGN(const std::string_view kept, Keep(std::move(out)));
    return PushData(Kind::kBytes, kept);
  }

  // ---- arrays ----------------------------------------------------------------------------------
  Status MakeDType(const std::vector<const Value*>& args) {
    if (args.empty()) return Fail("a number type without a name");
    std::string_view code = args[0]->text();
    if (IsGlobal(args[0], kBfloat16)) {
      code = "bfloat16";
    } else if (!args[0]->is(Kind::kString)) {
      return Fail(StrCat("a number type named by ", Describe(args[0]->kind())));
    }
    if (!code.empty() && code[0] == '>') return BigEndian();
    if (!code.empty() && (code[0] == '<' || code[0] == '|' || code[0] == '='))
      code.remove_prefix(1);
    NEEDLE_ASSIGN(Value* const out, New(Kind::kDType));
    out->array_.type = FindElementType(code);
    if (!out->array_.type)
      return Fail(StrCat("arrays of type \"", Printable(code),
                         "\"; float16, float32, float64, bfloat16, integers and bools are read"));
    return Push(out);
  }
  Error BigEndian() const {
    return Fail(
        "big-endian numbers; convert the arrays with .astype(\"<f4\") (or <f2) and save again");
  }
  Status BuildDType(const Value* state) {
    const auto& items = state->items();
    if (!state->is(Kind::kTuple) || items.size() < 8 || !items[1]->is(Kind::kString))
      return Fail("a number type of an unknown make");
    if (items[1]->text() == ">") return BigEndian();
    for (size_t i = 2; i < 5; ++i)
      if (!items[i]->is(Kind::kNone))
        return Fail("arrays of records; only arrays of plain numbers are read");
    return {};
  }

  Result<Shape> ReadShape(const Value* value) {
    if (!value->is(Kind::kTuple))
      return Fail(StrCat("an array shape that is ", Describe(value->kind())));
    if (value->items().size() > kMaxDims)
      return Fail(StrCat("an array of ", value->items().size(), " dimensions"));
    Shape shape;
    int64_t elements = 1;  // of the dimensions that are not 0, so that a 0 hides no overflow
    for (const Value* item : value->items()) {
      const std::optional<int64_t> n = item->is(Kind::kInt) ? item->AsInt() : std::nullopt;
      if (!n || *n < 0) return Fail("an array dimension that is no size");
      if (*n > kMaxElements / elements) return Fail("an array too large to be true");
      elements *= std::max<int64_t>(*n, 1);
      shape.push_back(*n);
    }
    return shape;
  }
  /// Fills `out` once type, shape and axes are known; the bytes must fit exactly.
  Status Fill(Value* out, const Value* type, const Value* bytes) {
    if (!type->is(Kind::kDType))
      return Fail(StrCat("an array whose number type is ", Describe(type->kind())));
    if (!bytes->is(Kind::kBytes))
      return Fail(StrCat("an array whose data are ", Describe(bytes->kind())));
    Array& array = out->array_;
    array.type = type->array_.type;
    array.bytes = BytesOf(bytes->text());
    const uint64_t wanted =
        static_cast<uint64_t>(ElementCount(array.stored_shape)) * array.type->size;
    if (array.bytes.size() != wanted)
      return Fail(StrCat("an array of shape ", ToText(array.shape()), " and type ",
                         array.type->code, " needs ", wanted, " bytes, but ", array.bytes.size(),
                         " are there"));
    out->kind_ = Kind::kArray;
    return {};
  }
  static void MakeFortran(Array& array) {  // column-major is row-major with the axes backwards
    std::reverse(array.stored_shape.begin(), array.stored_shape.end());
    for (size_t i = array.stored_shape.size(); i-- > 0;) array.axes.push_back(i);
  }
  Status BuildArray(Value* out, const Value* state) {
    const auto& items = state->items();
    if (!state->is(Kind::kTuple) || items.size() != 5) return Fail("an array of an unknown make");
    if (!items[3]->is(Kind::kBool) && !items[3]->is(Kind::kInt))
      return Fail("an array whose order is neither C nor Fortran");
    const bool fortran = items[3]->is(Kind::kBool) ? items[3]->as_bool() : items[3]->AsInt() != 0;
    NEEDLE_ASSIGN(out->array_.stored_shape, ReadShape(items[1]));
    if (fortran) MakeFortran(out->array_);
    return Fill(out, items[2], items[4]);
  }
  Status Scalar(const std::vector<const Value*>& args) {
    if (args.size() != 2) return Fail("a NumPy scalar of an unknown make");
    NEEDLE_TRY(PushNew(Kind::kBlankArray));
    return Fill(stack_.back(), args[0], args[1]);
  }
  Status FromBuffer(const std::vector<const Value*>& args) {
    if (args.size() < 4 || !args[3]->is(Kind::kString)) return Fail("an array of an unknown make");
    NEEDLE_TRY(PushNew(Kind::kBlankArray));
    Array& array = stack_.back()->array_;
    NEEDLE_ASSIGN(array.stored_shape, ReadShape(args[2]));
    const std::string_view order = args[3]->text();
    if (order == "F") {
      MakeFortran(array);
    } else if (order == "K" && args.size() == 5) {
      NEEDLE_TRY(ReadAxes(args[4], array));
    } else if (order != "C") {
      return Fail("an array order other than C, F and K");
    }
    return Fill(stack_.back(), args[1], args[0]);
  }
  Status ReadAxes(const Value* value, Array& array) {
    std::vector<bool> seen(array.stored_shape.size());
    if (!value->is(Kind::kTuple) || value->items().size() != seen.size())
      return Fail("an axis order that does not fit the array");
    for (const Value* item : value->items()) {
      const std::optional<int64_t> axis = item->AsInt();
      if (!axis || *axis < 0 || static_cast<size_t>(*axis) >= seen.size() ||
          seen[static_cast<size_t>(*axis)])
        return Fail("an axis order that is no permutation");
      seen[static_cast<size_t>(*axis)] = true;
      array.axes.push_back(static_cast<size_t>(*axis));
    }
    return {};
  }

  Status Build() {
    NEEDLE_ASSIGN(Value* const state, Pop());
    NEEDLE_ASSIGN(Value* const target, Top());
    if (target->is(Kind::kBlankArray)) return BuildArray(target, state);
    if (target->is(Kind::kDType)) return BuildDType(state);
    if (target->is(Kind::kObject)) return BuildObject(target, state);
    return Fail(StrCat("sets the state of ", Describe(target->kind())));
  }
  /// State is the attribute dict, or a pair of it and the slots.
  Status BuildObject(Value* target, const Value* state) {
    std::vector<const Value*> parts = {state};
    if (state->is(Kind::kTuple) && state->items().size() == 2) parts = state->items();
    for (const Value* part : parts) {
      if (part->is(Kind::kNone)) continue;
      NEEDLE_TRY(AddAttributes(target, part));
    }
    return {};
  }
  /// Copies entries, which a file could ask for again and again: they count as storage.
  Status AddAttributes(Value* target, const Value* from) {
    if (!from->is(Kind::kDict))
      return Fail(StrCat("object attributes that are ", Describe(from->kind())));
    const size_t cost = from->entries_.size() * sizeof(from->entries_[0]);
    if (cost > storage_left_) return Fail("the file's shared attributes grow beyond its size");
    storage_left_ -= cost;
    target->entries_.insert(target->entries_.end(), from->entries_.begin(), from->entries_.end());
    return {};
  }

  // ---- the finished tree -----------------------------------------------------------------------
  struct Visit {
    const Value* value;
    size_t next = 0;  // child to look at
    uint64_t weight = 0;
  };
  static size_t ChildCount(const Value& v) { return v.items_.size() + 2 * v.entries_.size(); }
  static const Value* Child(const Value& v, size_t i) {
    if (i < v.items_.size()) return v.items_[i];
    i -= v.items_.size();
    const auto& entry = v.entries_[i / 2];
    return i % 2 ? entry.second : entry.first;
  }
  Status CheckOne(const Value& v) const {
    if (v.kind() >= Kind::kGlobal)
      return Fail(v.offset(), StrCat(Describe(v.kind()), " where a value belongs"));
    std::unordered_set<std::string_view> keys;
    for (const auto& entry : v.entries_)
      if (entry.first->is(Kind::kString) && !keys.insert(entry.first->text()).second)
        return Fail(entry.first->offset(), StrCat("the key \"", Printable(entry.first->text()),
                                                  "\" comes twice in one dict"));
    return {};
  }
  static uint64_t OwnWeight(const Value& v) { return 64 + v.text_.size() + v.array_.bytes.size(); }

  /// Depth first without recursion. A value that is shared counts as often as it is reached, so
  /// that whoever walks the tree does bounded work; one that contains itself is refused.
  Status CheckTree() const {
    const uint64_t limit = (uint64_t{1} << 26) + 4 * static_cast<uint64_t>(bytes_.size());
    enum : uint8_t { kNew, kOpen, kDone };
    std::vector<uint8_t> state(doc_.values_.size(), kNew);
    std::vector<uint64_t> weight(doc_.values_.size());
    std::vector<size_t> height(doc_.values_.size());
    std::vector<Visit> path = {{doc_.root_}};
    while (!path.empty()) {
      Visit& visit = path.back();
      const Value& v = *visit.value;
      if (state[v.index_] == kNew) {
        NEEDLE_TRY(CheckOne(v));
        state[v.index_] = kOpen;
        weight[v.index_] = OwnWeight(v);
      }
      if (visit.next == ChildCount(v)) {
        state[v.index_] = kDone;
        path.pop_back();
        continue;
      }
      const Value& child = *Child(v, visit.next);
      if (state[child.index_] == kOpen) return Fail(child.offset(), "a value that contains itself");
      if (state[child.index_] == kNew) {
        if (path.size() >= kMaxDepth)
          return Fail(child.offset(), StrCat("values nested more than ", kMaxDepth, " deep"));
        path.push_back({&child});
        continue;  // comes back to the same child, then done
      }
      weight[v.index_] += weight[child.index_];
      height[v.index_] = std::max(height[v.index_], height[child.index_] + 1);
      if (weight[v.index_] > limit || height[v.index_] > kMaxDepth)
        return Fail(v.offset(), "values shared so often that the whole outgrows the file");
      ++visit.next;
    }
    return {};
  }

  const Bytes bytes_;
  const std::string& origin_;
  size_t pos_ = 0;
  size_t at_ = 0;  // where the current opcode begins
  bool done_ = false;
  size_t storage_left_;
  Document doc_;
  std::vector<Value*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, Value*> memo_;
};

Result<Document> Document::Parse(std::span<const uint8_t> bytes, const std::string& origin) {
  return Reader(bytes, origin).Run();
}

}  // namespace needle::pickle
