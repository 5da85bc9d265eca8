// A base with its adapter merged, and the widths that an archive of it takes. Shared by build,
// verify and run. Thread-safe.
#pragma once

#include <optional>
#include <string>

#include "model/params.h"
#include "needle/needle.hpp"
#include "quant/cq.h"

namespace needle {

struct AdaptedModel {
  Checkpoint merged;  // in the checkpoint's number type, as upstream's build merges
  std::optional<Adapter> adapter;
};

/// `lora` "": the base itself. Errors: those of the adapter file, and one that does not fit.
Result<AdaptedModel> Adapt(const BaseModel& base, const std::string& lora);

struct ArchiveBits {
  BitMap bits = BitMap::Uniform(Bits::k4);
  std::string scheme;         // "W4", "mixed[...]"
  bool from_adapter = false;  // the adapter was trained for these
};

/// Upstream's choice: the adapter's map, else its width, else `asked`, else the checkpoint's map,
/// else 4. Errors: `asked` against what the adapter was trained for; a width that does not exist.
Result<ArchiveBits> ChooseBits(const AdaptedModel& model, const std::string& asked);

}  // namespace needle
