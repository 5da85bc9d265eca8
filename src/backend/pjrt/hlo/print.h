// A graph as the text of a StableHLO module with one function, @main. Values that no result needs
// are left out. Thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/pjrt/hlo/graph.h"

namespace needle::hlo {

/// A program with the names of its inputs and outputs, in order.
struct NamedProgram {
  pjrt::Program program;
  std::vector<std::string> inputs, outputs;
};

/// `reused`: inputs (by name) whose storage a result (by name) takes over.
NamedProgram Print(const Graph& graph, const std::map<std::string, std::string>& reused = {});

}  // namespace needle::hlo
