// The restricted pickle reader and writer. The files of tests/golden/pickle were written by NumPy
// 1.26 and 2.4 in protocols 2 to 5 (make.py beside them).
#include "format/pickle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "support/npz.h"

namespace needle::pickle {
namespace {

using namespace std::string_literals;  // NOLINT: bytes with zeros inside

std::vector<uint8_t> Bytes(const std::string& text) { return {text.begin(), text.end()}; }

std::vector<uint8_t> GoldenBytes(const std::string& name) {
  Result<std::vector<uint8_t>> bytes = ReadFile(test::Golden("pickle/" + name));
  EXPECT_TRUE(bytes.ok()) << name;
  return bytes.ok() ? *std::move(bytes) : std::vector<uint8_t>();
}

/// The reader's sentence about bytes that it must refuse.
std::string ErrorOf(const std::vector<uint8_t>& bytes) {
  const Result<Document> document = Document::Parse(bytes, "file.pkl");
  if (document.ok()) return "was read";
  EXPECT_EQ(document.error().code(), Code::kCorruptFile);
  return document.error().message();
}
std::string ErrorOf(const std::string& text) { return ErrorOf(Bytes(text)); }

#define EXPECT_ERROR(text, part)                                     \
  do {                                                               \
    const std::string error_text = ErrorOf(text);                    \
    EXPECT_NE(error_text.find(part), error_text.npos) << error_text; \
  } while (false)

std::vector<float> Floats(const Value& root, std::string_view name) {
  const Value* value = root.Find(name);
  if (!value) {
    ADD_FAILURE() << name << " is missing";
    return {};
  }
  Result<Tensor> tensor = ToTensor(*value, "file", name);
  if (!tensor.ok()) {
    ADD_FAILURE() << tensor.error().message();
    return {};
  }
  return tensor->ToFloats();
}

template <class N>
std::vector<int64_t> Integers(const Value& root, std::string_view name, DType want) {
  const Result<Tensor> tensor = ToTensor(*root.Find(name), "file", name);
  EXPECT_TRUE(tensor.ok()) << name;
  EXPECT_EQ(tensor->dtype, want) << name;
  std::vector<int64_t> out;
  for (size_t i = 0; i < tensor->size(); ++i) {
    N n;
    std::memcpy(&n, &tensor->bytes[i * sizeof(N)], sizeof(N));
    out.push_back(static_cast<int64_t>(n));
  }
  return out;
}

std::vector<float> Counting() {
  std::vector<float> out(24);
  std::iota(out.begin(), out.end(), 0.0f);
  return out;
}

class NumpyPickle : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    bytes_ = GoldenBytes(GetParam());
    Result<Document> document = Document::Parse(bytes_, GetParam());
    ASSERT_TRUE(document.ok()) << document.error().message();
    document_.emplace(*std::move(document));
  }
  const Value& root() const { return document_->root(); }
  const Value& at(std::string_view key) const { return *root().Find(key); }
  Shape ShapeOf(std::string_view key) const { return at(key).array().shape(); }

  std::vector<uint8_t> bytes_;
  std::optional<Document> document_;
};

TEST_P(NumpyPickle, PlainValuesReadAsPythonWroteThem) {
  EXPECT_TRUE(at("none").is(Kind::kNone));
  EXPECT_TRUE(at("true").as_bool());
  EXPECT_TRUE(at("false").is(Kind::kBool));
  EXPECT_FALSE(at("false").as_bool());
  const std::vector<int64_t> want = {0,  255,           256,          65535,     65536,
                                     -1, -2147483648LL, 2147483648LL, INT64_MAX, INT64_MIN};
  const auto& ints = at("ints").items();
  ASSERT_EQ(ints.size(), want.size() + 3);
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(ints[i]->AsInt(), want[i]);
  EXPECT_EQ(ints[10]->AsInt(), std::nullopt);
  EXPECT_EQ(ints[10]->text(), "9223372036854775808");
  EXPECT_EQ(ints[11]->text(), "-1180591620717411303424");
  EXPECT_EQ(ints[12]->text(), "1000000000000000000000000000000");
  ASSERT_EQ(at("floats").items().size(), 3u);
  EXPECT_EQ(at("floats").items()[0]->AsDouble(), 0.5);
  EXPECT_EQ(at("floats").items()[1]->AsDouble(), -1e300);
  EXPECT_EQ(at("floats").items()[2]->AsDouble(), INFINITY);
  EXPECT_EQ(at("text").text(),
            "n\xC3\xA4"
            "del \xE9\x87\x9D \xF0\x9F\xA7\xB5");
  EXPECT_EQ(at("long_text").text(), std::string(300, 'x'));
}

TEST_P(NumpyPickle, BytesComeBackWhateverTheProtocolDidToThem) {
  std::string all(256, '\0');
  std::iota(all.begin(), all.end(), '\0');
  EXPECT_TRUE(at("bytes").is(Kind::kBytes));
  EXPECT_EQ(at("bytes").text(), all);
  EXPECT_TRUE(at("no_bytes").is(Kind::kBytes));
  EXPECT_EQ(at("no_bytes").text(), "");
  EXPECT_EQ(at("bytearray").text(), "needle");
}

TEST_P(NumpyPickle, ContainersKeepOrderAndNesting) {
  const Value& nested = at("nested");
  ASSERT_EQ(nested.entries().size(), 2u);
  EXPECT_EQ(nested.entries()[0].first->text(), "list");
  const auto& list = nested.Find("list")->items();
  ASSERT_EQ(list.size(), 4u);
  EXPECT_TRUE(list[0]->is(Kind::kList));
  EXPECT_TRUE(list[1]->is(Kind::kTuple));
  EXPECT_TRUE(list[2]->is(Kind::kDict));
  EXPECT_EQ(list[3]->items()[0]->AsInt(), 1);
  EXPECT_EQ(nested.Find("twice")->items()[1]->text(), "same");
  EXPECT_EQ(nested.Find("absent"), nullptr);
}

TEST_P(NumpyPickle, FloatArraysOfEveryWidth) {
  const Shape shape = {2, 3, 4};
  for (const char* name : {"f2", "f4", "f8", "bf16"}) EXPECT_EQ(ShapeOf(name), shape) << name;
  EXPECT_EQ(Floats(root(), "f2"), Counting());
  EXPECT_EQ(Floats(root(), "bf16"), Counting());
  std::vector<float> sevenths = Counting(), sevenths64 = Counting();
  for (float& f : sevenths) f /= 7.0f;
  for (float& f : sevenths64) f = static_cast<float>(double{f} / 7.0);
  EXPECT_EQ(Floats(root(), "f4"), sevenths);
  EXPECT_EQ(Floats(root(), "f8"), sevenths64);
}

TEST_P(NumpyPickle, IntegerArraysWidenToWhatATensorHolds) {
  EXPECT_EQ(Integers<int32_t>(root(), "i1", DType::kI32), (std::vector<int64_t>{-128, 127}));
  EXPECT_EQ(Integers<int32_t>(root(), "i2", DType::kI32), (std::vector<int64_t>{-32768, 32767}));
  EXPECT_EQ(Integers<int32_t>(root(), "i4", DType::kI32)[23], 23);
  EXPECT_EQ(Integers<int64_t>(root(), "i8", DType::kI64)[22], 22);
  EXPECT_EQ(Integers<uint8_t>(root(), "u1", DType::kU8), (std::vector<int64_t>{0, 255}));
  EXPECT_EQ(Integers<int32_t>(root(), "u2", DType::kI32), std::vector<int64_t>{65535});
  EXPECT_EQ(Integers<uint32_t>(root(), "u4", DType::kU32), std::vector<int64_t>{4294967295});
  EXPECT_EQ(Integers<int64_t>(root(), "u8", DType::kI64), std::vector<int64_t>{int64_t{1} << 62});
  EXPECT_EQ(Integers<uint8_t>(root(), "bools", DType::kBool), (std::vector<int64_t>{1, 0, 1}));
}

TEST_P(NumpyPickle, OtherAxisOrdersBecomeRowMajor) {
  EXPECT_EQ(ShapeOf("fortran"), (Shape{2, 3, 4}));
  EXPECT_EQ(Floats(root(), "fortran"), Counting());
  EXPECT_EQ(Integers<int32_t>(root(), "fortran_i2", DType::kI32)[5], 5);
  EXPECT_EQ(ShapeOf("axes"), (Shape{2, 4, 3}));
  std::vector<float> swapped, slice;
  for (int i = 0; i < 2; ++i)
    for (int k = 0; k < 4; ++k)
      for (int j = 0; j < 3; ++j) swapped.push_back(static_cast<float>(12 * i + 4 * j + k));
  EXPECT_EQ(Floats(root(), "axes"), swapped);
  EXPECT_EQ(ShapeOf("slice"), (Shape{2, 2, 2}));
  EXPECT_EQ(Floats(root(), "slice"), (std::vector<float>{1, 2, 9, 10, 13, 14, 21, 22}));
}

TEST_P(NumpyPickle, ScalarsAndArraysWithoutDimensionsOrElements) {
  EXPECT_EQ(ShapeOf("zero_d"), Shape{});
  EXPECT_EQ(Floats(root(), "zero_d"), std::vector<float>{2.5f});
  EXPECT_EQ(at("zero_d").AsDouble(), 2.5);
  EXPECT_EQ(ShapeOf("empty"), (Shape{0, 4}));
  EXPECT_EQ(Floats(root(), "empty"), std::vector<float>{});
  EXPECT_EQ(at("scalar_f4").AsDouble(), 1.5);
  EXPECT_EQ(at("scalar_f8").AsDouble(), 0.1);
  EXPECT_EQ(at("scalar_i8").AsInt(), -7);
  EXPECT_EQ(at("scalar_i8").AsDouble(), -7.0);
  EXPECT_EQ(at("scalar_bool").AsInt(), std::nullopt);
}

INSTANTIATE_TEST_SUITE_P(AllProtocols, NumpyPickle,
                         ::testing::Values("numpy1_p2.pkl", "numpy1_p3.pkl", "numpy1_p4.pkl",
                                           "numpy1_p5.pkl", "numpy2_p2.pkl", "numpy2_p3.pkl",
                                           "numpy2_p4.pkl", "numpy2_p5.pkl"),
                         [](const auto& file) { return file.param.substr(0, 9); });

TEST(Pickle, ReadsAConfigObjectHoweverItWasPickled) {
  for (const char* name : {"config_p2.pkl", "config_reconstructor.pkl", "config_reduce.pkl",
                           "config_newobj.pkl", "config_newobj_ex.pkl"}) {
    const std::vector<uint8_t> bytes = GoldenBytes(name);
    const Result<Document> document = Document::Parse(bytes, name);
    ASSERT_TRUE(document.ok()) << document.error().message();
    const Value& root = document->root();
    EXPECT_TRUE(root.is(Kind::kObject)) << name;
    ASSERT_TRUE(root.Find("d_model")) << name;
    EXPECT_EQ(root.Find("d_model")->AsInt(), 32);
    EXPECT_EQ(root.Find("engram_layers")->items().size(), 1u);
  }
}

TEST(Pickle, RefusesAGlobalThatIsNotAnArrayByNameAndPlace) {
  EXPECT_ERROR("cos\nsystem\n(S'true'\ntR."s, "asks for os.system at byte 0; only arrays");
  EXPECT_ERROR("\x80\x02(X\x01\0\0\0acos\nsystem\n"s, "asks for os.system at byte 9; only arrays");
  EXPECT_ERROR("\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R."s,
               "asks for posix.system at byte 17");
  EXPECT_ERROR(
      "\x80\x02"
      "cbuiltins\neval\n."s,
      "asks for builtins.eval at byte 2");
  EXPECT_ERROR(
      "\x80\x02"
      "cnumpy\nload\n."s,
      "asks for numpy.load");
  EXPECT_ERROR(
      "\x80\x02"
      "cjax._src.array\n_reconstruct_array\n."s,
      "JAX arrays");
  EXPECT_ERROR(
      "\x80\x02"
      "cneedle.model.architecture\nOther\n."s,
      "asks for needle.model.architecture.Other");
  EXPECT_ERROR(GoldenBytes("bad_function.pkl"), "asks for builtins.len");
}

TEST(Pickle, RefusesArraysThatATensorCannotHold) {
  EXPECT_ERROR(GoldenBytes("bad_big_endian.pkl"), "big-endian");
  EXPECT_ERROR(GoldenBytes("bad_objects.pkl"), "arrays of type \"O8\"");
  EXPECT_ERROR(GoldenBytes("bad_text_array.pkl"), "arrays of type \"U1\"");
  EXPECT_ERROR(GoldenBytes("bad_records.pkl"), "arrays of type \"V4\"");
  EXPECT_ERROR(GoldenBytes("bad_complex.pkl"), "arrays of type \"c8\"");
  EXPECT_ERROR(GoldenBytes("bad_datetime.pkl"), "arrays of type \"M8\"");
  EXPECT_ERROR(GoldenBytes("bad_set.pkl"), "opcode 0x8f");
}

TEST(Pickle, RefusesTrailingBytesAndTruncationWithTheOffset) {
  EXPECT_ERROR("\x80\x04N.x"s, "at byte 4: 1 bytes follow the end");
  EXPECT_ERROR("\x80\x04N"s, "the file ends at byte 3");
  EXPECT_ERROR(
      "\x80\x04\x8c\x05"
      "abc"s,
      "begins at byte 2 needs 5 bytes from byte 4");
  EXPECT_ERROR("\x80\x04\x95\xff\0\0\0\0\0\0\0N."s, "needs 255 bytes");
  EXPECT_ERROR(""s, "the file ends at byte 0");
  // A length of 2^63 must not wrap around.
  EXPECT_ERROR("\x80\x04\x8e\0\0\0\0\0\0\0\x80"s, "needs 9223372036854775808 bytes");
}

TEST(Pickle, RefusesAValueThatContainsItself) {
  EXPECT_ERROR("\x80\x04]\x94h\0a."s, "contains itself");
  EXPECT_ERROR("\x80\x04}\x94\x8c\x01kh\0s."s, "contains itself");
  EXPECT_ERROR("\x80\x04]\x94h\0\x85\x61."s, "contains itself");
}

TEST(Pickle, RefusesDeepNestingWithoutRecursion) {
  std::string deep = "\x80\x04";
  for (int i = 0; i < 100000; ++i) deep += "]";
  for (int i = 1; i < 100000; ++i) deep += "a";
  EXPECT_ERROR(deep + ".", "nested more than 64 deep");
  // The same with tuples that are finished from the inside out.
  std::string tuples = "\x80\x04N";
  for (int i = 0; i < 100000; ++i) tuples += "\x85";
  EXPECT_ERROR(tuples + ".", "nested more than 64 deep");
}

TEST(Pickle, RefusesSharingThatGrowsBeyondTheFile) {
  // Each list holds the one before twice: 2^60 values to whoever walks it.
  std::string laughs = "\x80\x04]\x94";
  for (char i = 0; i < 60; ++i) laughs += "0](h"s + i + "h" + i + "e\x94";
  EXPECT_ERROR(laughs + ".", "shared so often");
  // One text of 64 kB decoded again and again.
  std::string encoded = "\x80\x02(c_codecs\nencode\nq\0X\0\0\1\0"s + std::string(65536, 'a') +
                        "q\1X\6\0\0\0latin1q\2"s;
  for (int i = 0; i < 1000; ++i) encoded += "h\0h\1h\2\x86R"s;
  EXPECT_ERROR(encoded + "l.", "beyond its size");
}

TEST(Pickle, RefusesAnArrayWhoseBytesDoNotFitItsShape) {
  Writer w;
  w.Array(Tensor(DType::kF32, {2, 3}));
  std::vector<uint8_t> bytes = w.Finish();
  const std::string_view shape = "K\2K\3t";
  const auto at = std::search(bytes.begin(), bytes.end(), shape.begin(), shape.end());
  ASSERT_NE(at, bytes.end());
  at[1] = 5;
  EXPECT_ERROR(bytes, "shape [5, 3] and type f4 needs 60 bytes, but 24 are there");
}

TEST(Pickle, RefusesShapesWhoseProductOverflows) {
  // (2^40, 2^40) and, hidden behind a zero, (0, 2^40, 2^40): numbers as LONG1.
  for (const std::string& zero : {""s, "K\0"s}) {
    const std::string big = "\x8a\6\0\0\0\0\0\1"s;
    const std::string file =
        "\x80\x04"
        "cnumpy._core.multiarray\n_reconstruct\ncnumpy\nndarray\n"s +
        "K\0\x85"
        "C\1b\x87R(K\1("s +
        zero + big + big +
        "tcnumpy\ndtype\n\x8c\2f4\x89\x88\x87R\x89"
        "C\0tb."s;
    EXPECT_ERROR(file, "too large to be true");
  }
}

TEST(Pickle, RefusesNamesAndUnfinishedArraysAsValues) {
  EXPECT_ERROR(
      "\x80\x02"
      "cnumpy\ndtype\n."s,
      "a name where a value belongs");
  EXPECT_ERROR(
      "\x80\x02"
      "cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85N\x87R."s,
      "an unfinished array where a value belongs");
}

TEST(Pickle, RefusesADictThatNamesAKeyTwice) {
  EXPECT_ERROR("\x80\x04}(\x8c\1aN\x8c\1aNu."s, "the key \"a\" comes twice");
}

TEST(Pickle, RefusesWhatAStackMachineCannotDo) {
  EXPECT_ERROR("\x80\x04."s, "empty stack");
  EXPECT_ERROR("\x80\x04(."s, "empty stack");
  EXPECT_ERROR("\x80\x04NN."s, "left over");
  EXPECT_ERROR("\x80\x04h\5."s, "recalls item 5");
  EXPECT_ERROR("\x80\x04NNR."s, "calls None");
  EXPECT_ERROR("\x80\x04NNb."s, "sets the state of None");
  EXPECT_ERROR("\x80\x04t."s, "never opened");
  EXPECT_ERROR("\x80\x04}(Nu."s, "without a value");
  EXPECT_ERROR("\x80\x04NNa."s, "appends to None");
  EXPECT_ERROR("\x80\x06N."s, "protocol 6");
  EXPECT_ERROR("\x80\x04\x80\x04N."s, "second pickle");
  EXPECT_ERROR("\x80\x04\x8c\1\xff."s, "not UTF-8");
  EXPECT_ERROR("\x80\x04\x8b\0\0\1\0"s + std::string(65536, 'a') + ".",
               "an integer of 65536 bytes");
  EXPECT_ERROR("\x80\x02P1\n."s, "persistent id");
  EXPECT_ERROR("\x80\x05\x97."s, "out-of-band");
}

TEST(PickleWriter, WhatItWritesReadsBackEqual) {
  Writer w;
  w.BeginDict();
  const std::vector<int64_t> ints = {
      0,         1,        255, 256, 65535, 65536, -1, INT32_MIN, INT32_MAX, int64_t{INT32_MAX} + 1,
      INT64_MIN, INT64_MAX};
  for (const int64_t i : ints) {
    w.String(std::to_string(i));
    w.Int(i);
  }
  w.String("pi");
  w.Float(3.14159);
  w.String("none");
  w.None();
  w.String("yes");
  w.Bool(true);
  w.String("tuple");
  w.Ints({3, 1, 2, 70000});
  w.String("nothing");
  w.Ints({});
  w.String("long");
  w.String(std::string(1000, 'y'));
  const std::vector<DType> types = {DType::kF16, DType::kBF16, DType::kF32,
                                    DType::kF64, DType::kI32,  DType::kI64,
                                    DType::kU8,  DType::kU32,  DType::kBool};
  for (const DType t : types) {
    for (const int round : {0, 1}) {
      Tensor tensor(t, {2, 3});
      std::iota(tensor.bytes.begin(), tensor.bytes.end(), static_cast<uint8_t>(round));
      w.String(StrCat(Name(t), round));
      w.Array(tensor);
    }
  }
  w.EndDict();
  const std::vector<uint8_t> bytes = w.Finish();
  // The golden file was loaded by NumPy 1.26 and 2.4 (check_written.py beside it).
  EXPECT_EQ(bytes, GoldenBytes("written.pkl"));
  const Result<Document> document = Document::Parse(bytes, "written");
  ASSERT_TRUE(document.ok()) << document.error().message();
  const Value& root = document->root();
  for (const int64_t i : ints) EXPECT_EQ(root.Find(std::to_string(i))->AsInt(), i);
  EXPECT_EQ(root.Find("pi")->AsDouble(), 3.14159);
  EXPECT_TRUE(root.Find("none")->is(Kind::kNone));
  EXPECT_TRUE(root.Find("yes")->as_bool());
  ASSERT_EQ(root.Find("tuple")->items().size(), 4u);
  EXPECT_EQ(root.Find("tuple")->items()[3]->AsInt(), 70000);
  EXPECT_TRUE(root.Find("nothing")->is(Kind::kTuple));
  EXPECT_EQ(root.Find("long")->text(), std::string(1000, 'y'));
  for (const DType t : types) {
    const Result<Tensor> tensor = ToTensor(*root.Find(StrCat(Name(t), 1)), "written", "x");
    ASSERT_TRUE(tensor.ok());
    EXPECT_EQ(tensor->dtype, t);
    EXPECT_EQ(tensor->shape, (Shape{2, 3}));
    EXPECT_EQ(tensor->bytes.back(), tensor->bytes.size());
  }
}

}  // namespace
}  // namespace needle::pickle
