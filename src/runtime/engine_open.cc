// Engine::Open and Engine::FromCheckpoint: from files' contents to a model factory.
#include <utility>

#include "base/str_cat.h"
#include "format/cact.h"
#include "runtime/decoder_model.h"
#include "runtime/engine.h"

namespace needle {
namespace {

Status CheckTokenizer(const Tokenizer& tokenizer, const ModelConfig& config) {
  if (tokenizer.size() == static_cast<size_t>(config.vocab_size)) return {};
  return Error(Code::kInvalidArgument,
               StrCat("the tokenizer has ", tokenizer.size(), " pieces, but the model has ",
                      config.vocab_size, "; give the tokenizer that the model was trained with"));
}

Engine::ModelFactory FactoryOf(std::shared_ptr<const RunModel> model, int threads) {
  return [model = std::move(model), threads] {
    return std::make_unique<DecoderModel>(model, threads);
  };
}

}  // namespace

Result<std::shared_ptr<const Engine>> Engine::Open(const std::string& path,
                                                   const EngineOptions& options) {
  NEEDLE_ASSIGN(const CactModel archive, CactModel::Open(path));
  NEEDLE_ASSIGN(Tokenizer tokenizer, Tokenizer::FromBlob(archive.tokenizer_blob(), path));
  NEEDLE_TRY(CheckTokenizer(tokenizer, archive.config));
  return Make(std::move(tokenizer),
              FactoryOf(RunArchive(archive, options.threads), options.threads));
}

Result<std::shared_ptr<const Engine>> Engine::FromCheckpoint(const Checkpoint& checkpoint,
                                                             const Tokenizer& tokenizer,
                                                             const EngineOptions& options) {
  NEEDLE_TRY(CheckTokenizer(tokenizer, checkpoint.config));
  return Make(tokenizer, FactoryOf(RunInFloat(checkpoint, options.threads), options.threads));
}

}  // namespace needle
