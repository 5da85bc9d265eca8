// The process that the fault tests kill: writes Pattern(size) to the file of its argument.
// Exit status: 0 written, 28 (ENOSPC's number) when the disk is said to be full, 1 otherwise.
#include <string_view>

#include "base/file.h"
#include "base/pattern.h"

int main(int argc, char** argv) {
  if (argc != 2) return 1;
  const std::string text = needle::test::Pattern(5 * 65536 + 100);
  const needle::Status status = needle::WriteFileAtomically(argv[1], std::string_view(text));
  if (status.ok()) return 0;
  return status.error().message().find("No space left") != std::string::npos ? 28 : 1;
}
