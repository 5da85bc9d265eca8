#include "api/device_model.h"

#include <cassert>
#include <mutex>
#include <utility>
#include <vector>

#include "backend/pjrt/pjrt_decoder.h"

namespace needle {
namespace {

/// The decoders of one checkpoint, those at hand and those that models have borrowed. Everything
/// that reaches the client runs under `mutex`: a client is one thread's at a time.
class Decoders {
 public:
  Decoders(std::shared_ptr<pjrt::Client> client, Checkpoint checkpoint, bool unroll)
      : client_(std::move(client)), checkpoint_(std::move(checkpoint)), unroll_(unroll) {}

  const ModelConfig& config() const { return checkpoint_.config; }
  std::mutex& mutex() { return mutex_; }
  /// Under the mutex: an empty decoder.
  Result<std::unique_ptr<PjrtDecoder>> Take() {
    if (free_.empty()) return MakePjrtDecoder(client_, checkpoint_, unroll_);
    std::unique_ptr<PjrtDecoder> decoder = std::move(free_.back());
    free_.pop_back();
    return decoder;
  }
  /// Under the mutex.
  void GiveBack(std::unique_ptr<PjrtDecoder> decoder) {
    decoder->Truncate(0);
    free_.push_back(std::move(decoder));
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<pjrt::Client> client_;
  const Checkpoint checkpoint_;
  const bool unroll_;
  std::vector<std::unique_ptr<PjrtDecoder>> free_;
};

class DeviceModel final : public LanguageModel {
 public:
  explicit DeviceModel(std::shared_ptr<Decoders> decoders) : decoders_(std::move(decoders)) {}
  ~DeviceModel() override {
    const std::lock_guard<std::mutex> lock(decoders_->mutex());
    if (decoder_) decoders_->GiveBack(std::move(decoder_));
  }

  size_t vocab_size() const override { return static_cast<size_t>(decoders_->config().vocab_size); }
  size_t max_length() const override {
    return static_cast<size_t>(decoders_->config().max_seq_len);
  }
  size_t length() const override { return decoder_ ? decoder_->length() : 0; }

  Result<std::span<const float>> Append(std::span<const int32_t> ids) override {
    const std::lock_guard<std::mutex> lock(decoders_->mutex());
    if (!decoder_) {
      NEEDLE_ASSIGN(decoder_, decoders_->Take());
    }
    Result<std::span<const float>> logits = decoder_->Append(ids);
    if (!logits.ok()) decoder_.reset();  // its caches may hold anything now
    return logits;
  }
  void Truncate(size_t length) override {
    assert(length <= this->length());
    if (decoder_) decoder_->Truncate(length);
  }
  void SetSinks(size_t) override {}  // a row sees all rows before it

 private:
  std::shared_ptr<Decoders> decoders_;
  std::unique_ptr<PjrtDecoder> decoder_;  // taken by the first Append
};

}  // namespace

Result<Engine::ModelFactory> DeviceModels(std::shared_ptr<pjrt::Client> client,
                                          Checkpoint checkpoint, bool unroll) {
  auto decoders = std::make_shared<Decoders>(std::move(client), std::move(checkpoint), unroll);
  {
    const std::lock_guard<std::mutex> lock(decoders->mutex());
    NEEDLE_ASSIGN(std::unique_ptr<PjrtDecoder> first, decoders->Take());
    decoders->GiveBack(std::move(first));
  }
  return Engine::ModelFactory([decoders] { return std::make_unique<DeviceModel>(decoders); });
}

}  // namespace needle
