#include <utility>

#include "api/adapted.h"
#include "api/base_model_impl.h"
#include "api/bundled.h"
#include "api/device_impl.h"
#include "api/device_model.h"
#include "api/device_tuning.h"
#include "api/engine/model_impl.h"
#include "base/file.h"
#include "base/str_cat.h"
#include "format/adapter.h"
#include "format/checkpoint.h"
#include "hub/download.h"
#include "kernels/isa.h"

namespace needle {
namespace {

constexpr std::string_view kBundledFile = "bundled in the program";
constexpr std::string_view kHubTokenizer = "tokenizer/tokenizer.model";

Error WithoutPublishedBase(const Error& why) {
  return Error(why.code(),
               StrCat("there is no ", kDefaultCheckpoint,
                      " here, and the published base cannot be had: ", why.message(),
                      ". Two ways on: give a base of your own with --checkpoint FILE, or use the "
                      "small one inside this program with --checkpoint bundled"));
}

HubOptions HubFor(const LoadOptions& options) {
  HubOptions hub = HubOptions::FromEnvironment();
  hub.notice = options.notice;
  if (!options.download) hub.offline = true;
  return hub;
}

Result<std::string> Fetch(std::string_view path, const LoadOptions& options) {
  const HubOptions hub = HubFor(options);
  HubFile file;
  file.repo = hub.repo;
  file.path = path;
  return FetchFile(file, hub, options.progress);
}

/// Where the checkpoint is to be read: the path itself, or the download of the published one.
Result<std::string> CheckpointFile(const LoadOptions& options) {
  const std::string& path = options.checkpoint;
  if (FileExists(path) || path != kDefaultCheckpoint) return path;
  Result<std::string> file = Fetch(kDefaultCheckpoint, options);
  if (!file) return WithoutPublishedBase(file.error());
  return file;
}

Result<std::string> TokenizerFile(const std::string& checkpoint_file, const LoadOptions& options) {
  if (!options.tokenizer.empty()) return options.tokenizer;
  std::string beside = JoinPath(DirName(checkpoint_file), "tokenizer.model");
  if (FileExists(beside)) return beside;
  const HubOptions hub = HubFor(options);
  HubFile file;
  file.repo = hub.repo;
  file.path = kHubTokenizer;
  if (Result<std::string> cached = FindInCache(file, hub); cached) return cached;
  Result<std::string> fetched = FetchFile(file, hub, options.progress);
  if (fetched) return fetched;
  return Error(fetched.error().code(),
               StrCat("no tokenizer: there is no ", beside,
                      ", none in the cache, and it cannot be "
                      "downloaded: ",
                      fetched.error().message(), ". Give one with --tokenizer FILE"));
}

Status CheckFit(const BaseModel::Impl& base) {
  const auto pieces = static_cast<int>(base.tokenizer.size());
  if (pieces == base.checkpoint.config.vocab_size) return {};
  return Error(Code::kInvalidArgument,
               StrCat(base.tokenizer_file, ": the tokenizer has ", pieces, " pieces, but ",
                      base.file, " has a vocabulary of ", base.checkpoint.config.vocab_size,
                      "; give the tokenizer that this checkpoint was trained with (--tokenizer)"));
}

Result<Checkpoint> ReadBundled() {
  if (!HasBundledBase())
    return Error(Code::kNotFound,
                 "this program was built without a bundled base (data/bundled was missing); give a "
                 "checkpoint of your own with --checkpoint FILE");
  return ParseCheckpoint(BundledCheckpoint(), std::string(kBundledFile));
}

Result<BaseModel> LoadBundled(const LoadOptions& options) {
  NEEDLE_ASSIGN(Checkpoint checkpoint, ReadBundled());
  const bool own = !options.tokenizer.empty();
  const std::string file(own ? options.tokenizer : std::string(kBundledFile));
  NEEDLE_ASSIGN(Tokenizer tokenizer, own ? Tokenizer::Load(options.tokenizer)
                                         : Tokenizer::FromModelProto(BundledTokenizer(), file));
  BaseModel::Impl base{options.checkpoint, std::string(kBundledFile), file, std::move(checkpoint),
                       std::move(tokenizer)};
  NEEDLE_TRY(CheckFit(base));
  return BaseModel(std::make_shared<const BaseModel::Impl>(std::move(base)));
}

}  // namespace

Result<BaseModel> BaseModel::Load(const LoadOptions& options) {
  if (options.checkpoint == kBundledCheckpoint) return LoadBundled(options);
  NEEDLE_ASSIGN(const std::string file, CheckpointFile(options));
  NEEDLE_ASSIGN(Checkpoint checkpoint, LoadCheckpoint(file));
  NEEDLE_ASSIGN(const std::string tokenizer_file, TokenizerFile(file, options));
  NEEDLE_ASSIGN(Tokenizer tokenizer, Tokenizer::Load(tokenizer_file));
  Impl base{options.checkpoint, file, tokenizer_file, std::move(checkpoint), std::move(tokenizer)};
  NEEDLE_TRY(CheckFit(base));
  return BaseModel(std::make_shared<const Impl>(std::move(base)));
}

const std::string& BaseModel::name() const { return impl_->name; }
const std::string& BaseModel::file() const { return impl_->file; }
const std::string& BaseModel::tokenizer_file() const { return impl_->tokenizer_file; }
int BaseModel::vocab_size() const { return impl_->checkpoint.config.vocab_size; }
int BaseModel::max_seq_len() const { return impl_->checkpoint.config.max_seq_len; }
int BaseModel::window() const { return impl_->checkpoint.config.EffectiveWindow(); }
size_t BaseModel::parameters() const {
  size_t total = 0;
  for (const auto& [path, tensor] : impl_->checkpoint.params) total += tensor.size();
  return total;
}

Result<AdaptedModel> Adapt(const BaseModel& base, const std::string& lora) {
  AdaptedModel out;
  if (lora.empty()) {
    out.merged = base.impl().checkpoint;
    return out;
  }
  NEEDLE_ASSIGN(out.adapter.emplace(), LoadAdapter(lora));
  Result<Checkpoint> merged = Merge(base.impl().checkpoint, *out.adapter);
  if (!merged) return merged.error().In(lora);
  out.merged = std::move(merged).value();
  return out;
}

namespace {

Result<std::shared_ptr<const Engine>> EngineOf(Checkpoint merged, const Tokenizer& tokenizer,
                                               const OpenOptions& options) {
  if (!options.device || !options.device->impl().client) {
    EngineOptions engine_options;
    engine_options.threads = options.threads;
    return Engine::FromCheckpoint(merged, tokenizer, engine_options);
  }
  const Device::Impl& device = options.device->impl();
  const bool unroll = PjrtOptionsFor(device.kind, /*found=*/1, {}).unroll;
  NEEDLE_ASSIGN(Engine::ModelFactory models,
                DeviceModels(device.client, std::move(merged), unroll));
  return Engine::Make(tokenizer, std::move(models));
}

}  // namespace

Result<Model> OpenBase(const BaseModel& base, const std::string& lora, const OpenOptions& options) {
  NEEDLE_ASSIGN([[maybe_unused]] const Isa isa, ChooseIsa());
  NEEDLE_ASSIGN(AdaptedModel adapted, Adapt(base, lora));
  NEEDLE_ASSIGN(std::shared_ptr<const Engine> engine,
                EngineOf(std::move(adapted.merged), base.impl().tokenizer, options));
  return Model(std::make_shared<Model::Impl>(Model::Impl{std::move(engine)}));
}

}  // namespace needle
