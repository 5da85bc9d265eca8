// What ProbeInChild starts, for tests: probe_child probe-plugin REQUEST.
#include <cstdio>

#include "backend/pjrt/probe.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::fputs(needle::pjrt::ProbeFromText(argv[2]).c_str(), stdout);
  return 0;
}
