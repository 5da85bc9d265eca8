// make_corpus: writes the synthetic rows on which the bundled base model is trained.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>

#include "corpus/rows.h"

namespace {

int Run(int argc, char** argv) {
  needle::corpus::CorpusOptions options;
  size_t rows = 1000;
  std::string out, part = "train";
  CLI::App app{"Write synthetic tool-calling examples as JSON lines."};
  app.add_option("--rows", rows, "Number of lines")->capture_default_str();
  app.add_option("--seed", options.seed, "Same seed, same bytes")->capture_default_str();
  app.add_option("--out", out, "File to write")->required();
  app.add_option("--part", part, "train, or valid: other tool shapes and other words")
      ->check(CLI::IsMember({"train", "valid"}))
      ->capture_default_str();
  app.add_option("--queries-per-toolset", options.queries_per_toolset,
                 "Lines in a row that share their tools")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--tools-chars", options.mean_tools_chars, "Mean length of the tools' JSON")
      ->check(CLI::Range(150, 20000))
      ->capture_default_str();
  app.add_option("--reasoning", options.reasoning, "Share of lines with reasoning")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--refusals", options.refusals, "Share of lines that no tool serves")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--drills", options.drills,
                 "Share of tool sets that only drill copying: a short prompt, long random texts")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  if (part == "valid") options.part = needle::corpus::Part::kValid;

  std::ofstream file(out, std::ios::binary);
  size_t written = 0;
  for (uint64_t group = 0; written < rows && file; ++group)
    for (const std::string& line : needle::corpus::MakeGroup(options, group)) {
      if (written == rows) break;
      file << line << '\n';
      ++written;
    }
  file.close();
  if (!file) {
    std::fprintf(stderr, "%s: cannot be written; check the folder and the free space\n",
                 out.c_str());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (const std::exception& error) {  // of the standard library: no memory
    std::fprintf(stderr, "make_corpus: %s\n", error.what());
    return 1;
  }
}
