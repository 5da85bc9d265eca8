#include <exception>
#include <new>

#include "needle/command.h"

namespace {

/// The command's exit status. Nothing that the program itself does throws, but memory may run out.
int RunCommand(const needle::cli::Command& command) {
  using needle::cli::Fail;
  try {
    const needle::Status status = command();
    if (!status.ok())
      return Fail(status.error().message(), needle::cli::ExitStatus(status.error().code()));
  } catch (const std::bad_alloc&) {
    return Fail("there is not enough memory for this; a smaller batch, rank or model may fit", 1);
  } catch (const std::exception& error) {
    return Fail(std::string("an error that should not happen: ") + error.what(), 1);
  }
  if (needle::cli::OutputLost()) return Fail("the output could not be written whole", 1);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  needle::cli::Command command;
  if (const std::optional<int> status = needle::cli::ParseCommandLine(argc, argv, &command))
    return *status;
  return RunCommand(command);
}
