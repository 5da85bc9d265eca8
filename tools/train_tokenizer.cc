// train_tokenizer: writes the tokenizer of the bundled base model (corpus/tokenizer_trainer.h).
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "corpus/tokenizer_trainer.h"

namespace {

/// Counts every line; a sentence if the file cannot be used, else empty.
std::string CountFile(const std::string& path, needle::corpus::RunCounts& counts) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return path + ": cannot be opened";
  std::string line;
  for (size_t number = 1; std::getline(file, line); ++number) {
    const needle::Status status = needle::corpus::CountLine(line, counts);
    if (!status.ok()) return fmt::format("{}:{}: {}", path, number, status.error().message());
  }
  return "";
}

bool WriteBytes(const std::string& path, const std::vector<uint8_t>& bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  return static_cast<bool>(file);
}

int Fail(const std::string& message, int status) {
  fmt::print(stderr, "{}\n", message);
  return status;
}

int Run(int argc, char** argv) {
  std::string corpus, out;
  size_t vocabulary = 2048;
  CLI::App app{"Train the tokenizer of the bundled base model on a corpus of JSON lines."};
  app.add_option("corpus", corpus, "JSON lines, as make_corpus writes them")->required();
  app.add_option("--out", out, "SentencePiece model to write")->required();
  app.add_option("--vocabulary", vocabulary, "Number of pieces")
      ->check(CLI::Range(600, 65536))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  needle::corpus::RunCounts counts;
  if (const std::string problem = CountFile(corpus, counts); !problem.empty())
    return Fail(problem, 2);
  const auto tokenizer =
      needle::Tokenizer::FromPieces(needle::corpus::TrainPieces(counts, vocabulary));
  if (!tokenizer.ok()) return Fail(tokenizer.error().message(), 1);
  if (!WriteBytes(out, tokenizer->ToModelProto())) return Fail(out + ": cannot be written", 1);
  fmt::print("{}: {} pieces\n", out, tokenizer->size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {  // of the standard library: no memory
    return Fail(error.what(), 1);
  }
}
