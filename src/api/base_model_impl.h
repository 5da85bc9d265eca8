// What stands behind needle::BaseModel.
#pragma once

#include <string>

#include "model/params.h"
#include "needle/needle.hpp"
#include "text/tokenizer.h"

namespace needle {

struct BaseModel::Impl {
  std::string name, file, tokenizer_file;
  Checkpoint checkpoint;
  Tokenizer tokenizer;
};

}  // namespace needle
