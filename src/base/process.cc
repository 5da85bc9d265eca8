#include "base/process.h"

#include <cstring>

#include "base/str_cat.h"

namespace needle {

std::string Describe(const ChildOutcome& outcome) {
  if (outcome.timed_out) return "did not answer and was stopped";
  if (outcome.exit_code) return StrCat("exited with status ", *outcome.exit_code);
#ifdef _WIN32
  return "was ended from outside";
#else
  return StrCat("was ended by signal ", outcome.signal, " (", strsignal(outcome.signal), ")");
#endif
}

}  // namespace needle
