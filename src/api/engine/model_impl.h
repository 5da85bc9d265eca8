// What stands behind needle::Model: an engine that others may share.
#pragma once

#include <memory>

#include "needle/needle.hpp"
#include "runtime/engine.h"

namespace needle {

struct Model::Impl {
  std::shared_ptr<const Engine> engine;
};

}  // namespace needle
