// Test support for src/text: files of the goldens, small tokenizers.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "json/json.h"
#include "support/npz.h"
#include "text/tokenizer.h"

namespace needle::test {

inline std::string FileText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << "cannot open " << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<uint8_t> FileBytes(const std::string& path) {
  const std::string text = FileText(path);
  return {text.begin(), text.end()};
}

inline std::vector<std::string> FileLines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << "cannot open " << path;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

/// The files of one vocabulary size.
struct VocabularyFiles {
  std::string model, blob, edge_tokens, decode_random, edge = Golden("text/edge.jsonl");
};

/// `pieces`: 1024 or 8192.
inline VocabularyFiles FilesOf(int pieces) {
  const std::string n = std::to_string(pieces);
  return {Golden("text/tokenizer_" + n + ".model"), Golden("text/tokenizer_" + n + ".blob"),
          Golden("text/edge_tokens_" + n + ".jsonl"), Golden("text/decode_random_" + n + ".json")};
}

inline Tokenizer LoadModel(const std::string& path) {
  auto tokenizer = Tokenizer::FromModelProto(FileBytes(path), path);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  return std::move(tokenizer).value();
}

/// The special pieces, the 256 byte pieces, then `extra` as normal pieces with scores -0, -1, ...
inline std::vector<Piece> PiecesWith(const std::vector<std::string>& extra) {
  std::vector<Piece> pieces = {{"<pad>", 0, PieceType::kControl},
                               {"</s>", 0, PieceType::kControl},
                               {"<s>", 0, PieceType::kControl},
                               {"<unk>", 0, PieceType::kUnknown}};
  for (const std::string_view marker : kChatMarkers)
    pieces.push_back({std::string(marker), 0, PieceType::kUserDefined});
  for (int b = 0; b < 256; ++b) {
    const char* digits = "0123456789ABCDEF";
    pieces.push_back(
        {std::string("<0x") + digits[b / 16] + digits[b % 16] + ">", 0, PieceType::kByte});
  }
  for (size_t i = 0; i < extra.size(); ++i)
    pieces.push_back({extra[i], -static_cast<float>(i), PieceType::kNormal});
  return pieces;
}

inline std::vector<int32_t> Ints(const json::Value& array) {
  std::vector<int32_t> out;
  for (const json::Value& v : array.items())
    out.push_back(static_cast<int32_t>(v.as_int64().value()));
  return out;
}

}  // namespace needle::test
