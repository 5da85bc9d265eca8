#include "needle/command.h"

int main(int argc, char** argv) {
  using namespace needle::cli;  // NOLINT(google-build-using-namespace)
  Command command;
  if (const std::optional<int> status = ParseCommandLine(argc, argv, &command)) return *status;
  const needle::Status status = command();
  return status.ok() ? 0 : Fail(status.error().message(), ExitStatus(status.error().code()));
}
