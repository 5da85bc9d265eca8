// A model on a device that a plugin reaches, for the engine: backend/pjrt/pjrt_decoder.h as
// LanguageModels. Errors: the plugin's, as sentences.
// Thread-safety: the models that one factory made may be used by different threads; they take
// turns.
#pragma once

#include <memory>

#include "backend/pjrt/client.h"
#include "model/params.h"
#include "runtime/engine.h"

namespace needle {

/// Models in float32 without a window, as Engine::FromCheckpoint has them on the processor. The
/// first one's weights are on the device when this returns; each model used at the same time holds
/// weights of its own there. `checkpoint`: with its adapter merged. `unroll`: as MakePjrtDecoder
/// has it.
Result<Engine::ModelFactory> DeviceModels(std::shared_ptr<pjrt::Client> client,
                                          Checkpoint checkpoint, bool unroll);

}  // namespace needle
