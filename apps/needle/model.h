// What run and eval share: the model that answers, an archive or a checkpoint on a device.
#pragma once

#include <string>

#include "needle/command.h"

namespace needle::cli {

struct ModelArgs {
  std::string archive, lora, device = "auto";
  BaseArgs base;
  bool from_checkpoint = false;  // --checkpoint was given
};

/// --checkpoint, --lora, --tokenizer and --device. The first is given back.
Option AddModelOptions(Options& options, ModelArgs* args);

/// An archive or a checkpoint, not both, and nothing that an archive cannot take.
Status CheckModelArgs(const ModelArgs& args);

struct OpenedModel {
  Model model;
  std::string name;        // for reports: the archive; the checkpoint, " + " and its adapter
  bool on_device = false;  // false: the native engine
};
/// `threads`: of each session. A plugin's device is printed as finetune prints it.
Result<OpenedModel> OpenModel(const ModelArgs& args, int threads);
/// An archive, whatever the other options say.
Result<OpenedModel> OpenArchive(const std::string& path, int threads);

}  // namespace needle::cli
