// The safetensors reader and writer: the format's own rules, each broken once.
#include "format/safetensors.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "base/str_cat.h"

namespace needle {
namespace {

std::vector<uint8_t> File(const std::string& header, size_t data_bytes) {
  std::vector<uint8_t> out;
  for (size_t i = 0; i < 8; ++i) out.push_back(static_cast<uint8_t>(header.size() >> (8 * i)));
  out.insert(out.end(), header.begin(), header.end());
  for (size_t i = 0; i < data_bytes; ++i) out.push_back(static_cast<uint8_t>(i));
  return out;
}

std::string ErrorOf(const std::vector<uint8_t>& bytes) {
  const Result<SafeTensors> file = ParseSafeTensors(bytes, "m.safetensors");
  if (file.ok()) return "was read";
  EXPECT_EQ(file.error().code(), Code::kCorruptFile);
  return file.error().message();
}

#define EXPECT_ERROR(bytes, part)                                    \
  do {                                                               \
    const std::string error_text = ErrorOf(bytes);                   \
    EXPECT_NE(error_text.find(part), error_text.npos) << error_text; \
  } while (false)

TEST(SafeTensors, EveryTypeAndTheMetadataSurvive) {
  SafeTensors file;
  const std::vector<DType> types = {DType::kBool, DType::kF16, DType::kBF16,
                                    DType::kF32,  DType::kF64, DType::kI32,
                                    DType::kI64,  DType::kU8,  DType::kU32};
  for (const DType t : types) {
    Tensor& tensor = file.tensors[std::string(Name(t))] = Tensor(t, {3, 5});
    for (size_t i = 0; i < tensor.bytes.size(); ++i) tensor.bytes[i] = static_cast<uint8_t>(7 * i);
  }
  file.tensors["scalar"] = Tensor::FromFloats({}, {1.5f});
  file.tensors["empty"] = Tensor(DType::kF32, {0, 7});
  file.metadata = {{"config", "{\"a\":1}"},
                   {"note",
                    "n\xC3\xA4"
                    "del \"quoted\""}};
  const std::vector<uint8_t> bytes = WriteSafeTensors(file);
  const Result<SafeTensors> read = ParseSafeTensors(bytes, "file");
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_EQ(read->metadata, file.metadata);
  ASSERT_EQ(read->tensors.size(), file.tensors.size());
  for (const auto& entry : file.tensors) {
    EXPECT_EQ(read->tensors.at(entry.first).dtype, entry.second.dtype);
    EXPECT_EQ(read->tensors.at(entry.first).shape, entry.second.shape);
    EXPECT_EQ(read->tensors.at(entry.first).bytes, entry.second.bytes);
  }
}

TEST(SafeTensors, WritesAPaddedHeaderAndTheWidestTypesFirst) {
  SafeTensors file;
  file.tensors["a"] = Tensor(DType::kU8, {3});
  file.tensors["b"] = Tensor(DType::kF64, {1});
  file.tensors["c"] = Tensor(DType::kF16, {1});
  const std::vector<uint8_t> bytes = WriteSafeTensors(file);
  EXPECT_EQ(bytes[0] % 8, 0);
  const std::string text(bytes.begin() + 8, bytes.end());
  EXPECT_EQ(text.substr(0, text.find('}')),
            "{\"b\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[0,8]");
  EXPECT_LT(text.find("\"c\""), text.find("\"a\""));
}

TEST(SafeTensors, AcceptsAFileWithoutTensors) {
  const Result<SafeTensors> read = ParseSafeTensors(File("{}", 0), "file");
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_TRUE(read->tensors.empty());
}

TEST(SafeTensors, RefusesABrokenHeader) {
  EXPECT_ERROR(std::vector<uint8_t>(5), "only 5 bytes");
  EXPECT_ERROR(std::vector<uint8_t>(8, 0xFF), "header length at byte 0 is 18446744073709551615");
  EXPECT_ERROR(File("[1]", 0), "does not begin with {");
  EXPECT_ERROR(File("{\"a\":", 0), "header (from byte 8 on)");
  std::vector<uint8_t> cut = File("{}      ", 0);
  cut.pop_back();
  EXPECT_ERROR(cut, "cut short");
}

TEST(SafeTensors, RefusesANameThatComesTwiceInAnySpelling) {
  const std::string entry = "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}";
  EXPECT_ERROR(File("{\"a\":" + entry + ",\"a\":" + entry + "}", 1), "\"a\" comes twice");
  EXPECT_ERROR(File("{\"a\":" + entry + ",\"\\u0061\":" + entry + "}", 1), "comes twice");
  EXPECT_ERROR(
      File("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1),
      "\"dtype\" comes twice");
}

TEST(SafeTensors, RefusesTensorsThatOverlapLeaveHolesOrReachOutside) {
  const auto two = [](int begin_a, int end_a, int begin_b, int end_b) {
    return StrCat("{\"a\":{\"dtype\":\"U8\",\"shape\":[", end_a - begin_a, "],\"data_offsets\":[",
                  begin_a, ",", end_a, "]},\"b\":{\"dtype\":\"U8\",\"shape\":[", end_b - begin_b,
                  "],\"data_offsets\":[", begin_b, ",", end_b, "]}}");
  };
  EXPECT_EQ(ErrorOf(File(two(0, 4, 4, 8), 8)), "was read");
  EXPECT_EQ(ErrorOf(File(two(4, 8, 0, 4), 8)), "was read");
  EXPECT_ERROR(File(two(0, 4, 3, 8), 8), "tensor \"b\": begins at data byte 3, inside");
  EXPECT_ERROR(File(two(0, 4, 0, 4), 4), "tensor \"b\": begins at data byte 0, inside");
  EXPECT_ERROR(File(two(0, 3, 4, 8), 8), "leaving a hole");
  EXPECT_ERROR(File(two(0, 4, 4, 8), 9), "belong to no tensor");
  EXPECT_ERROR(File(two(0, 4, 4, 8), 7), "outside the 7 data bytes");
}

TEST(SafeTensors, RefusesShapesAndTypesThatDoNotFit) {
  const auto one = [](const std::string& dtype, const std::string& shape,
                      const std::string& offsets) {
    return File("{\"w\":{\"dtype\":" + dtype + ",\"shape\":" + shape +
                    ",\"data_offsets\":" + offsets + "}}",
                8);
  };
  EXPECT_EQ(ErrorOf(one("\"F32\"", "[2]", "[0,8]")), "was read");
  EXPECT_ERROR(one("\"F32\"", "[3]", "[0,8]"), "needs 12 bytes, data_offsets hold 8");
  EXPECT_ERROR(one("\"F8_E4M3\"", "[8]", "[0,8]"), "type \"F8_E4M3\" is not read");
  EXPECT_ERROR(one("7", "[8]", "[0,8]"), "no \"dtype\"");
  EXPECT_ERROR(one("\"F32\"", "[-2]", "[0,8]"), "not a list of sizes");
  EXPECT_ERROR(one("\"F32\"", "[1.5]", "[0,8]"), "not a list of sizes");
  EXPECT_ERROR(one("\"F32\"", "[0,4611686018427387904,4611686018427387904]", "[0,0]"),
               "not a list of sizes");
  EXPECT_ERROR(one("\"F32\"", "2", "[0,8]"), "no \"shape\" list");
  EXPECT_ERROR(one("\"F32\"", "[2]", "[8,0]"), "outside");
  EXPECT_ERROR(one("\"F32\"", "[2]", "[0]"), "no \"data_offsets\" pair");
  EXPECT_ERROR(one("\"F32\"", "[2]", "[-1,7]"), "outside");
  EXPECT_ERROR(File("{\"w\":3}", 0), "no \"dtype\"");
  EXPECT_ERROR(File("{\"__metadata__\":{\"a\":1}}", 0), "\"a\" is not text");
  EXPECT_ERROR(File("{\"__metadata__\":[]}", 0), "not an object");
}

}  // namespace
}  // namespace needle
