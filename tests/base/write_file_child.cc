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
  const std::string& message = status.error().message();
  for (const char* full : {"No space left", "not enough space", "isk full"})
    if (message.find(full) != std::string::npos) return 28;
  return 1;
}
