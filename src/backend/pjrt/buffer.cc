#include <numeric>
#include <utility>

#include "backend/pjrt/client_core.h"
#include "base/str_cat.h"

namespace needle::pjrt {
namespace {

abi::Buffer* HandleOf(void* handle) { return static_cast<abi::Buffer*>(handle); }

Error WrongDType(const ArraySpec& spec, const char* wanted) {
  return Error(Code::kInvalidArgument,
               StrCat("an array of ", Describe(spec), " cannot be read as ", wanted));
}

}  // namespace

Buffer::Buffer() = default;

Buffer::Buffer(Buffer&& other) noexcept
    : core_(std::move(other.core_)),
      handle_(std::exchange(other.handle_, nullptr)),
      spec_(std::move(other.spec_)),
      device_(other.device_),
      donated_(other.donated_) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  Free();
  core_ = std::move(other.core_);
  handle_ = std::exchange(other.handle_, nullptr);
  spec_ = std::move(other.spec_);
  device_ = other.device_;
  donated_ = other.donated_;
  return *this;
}

Buffer::~Buffer() { Free(); }

bool Buffer::valid() const { return handle_ != nullptr; }

void Buffer::Free() {
  if (handle_ == nullptr) return;
  auto args = abi::Args<abi::BufferDestroyArgs>();
  args.buffer = HandleOf(handle_);
  // Nobody could do anything about an error here; Check frees it.
  (void)Check(core_->api(), core_->plugin->Path(), core_->api().buffer_destroy(&args), "freeing");
  handle_ = nullptr;
}

Status Buffer::CopyTo(void* out) const {
  if (!valid()) return Error(Code::kInvalidArgument, "an empty buffer cannot be read");
  if (donated_)
    return Error(Code::kInvalidArgument,
                 StrCat("the array of ", Describe(spec_),
                        " was given away to a program; read that program's output instead"));
  const std::string& where = core_->plugin->Path();
  // Asked for row-major: the device may keep another order.
  std::vector<int64_t> minor_to_major(spec_.shape.size());
  std::iota(minor_to_major.rbegin(), minor_to_major.rend(), int64_t{0});
  auto layout = abi::Args<abi::MemoryLayout>();
  layout.type = abi::kLayoutTiled;
  layout.tiled = abi::Args<abi::TiledLayout>();
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  auto args = abi::Args<abi::BufferToHostBufferArgs>();
  args.src = HandleOf(handle_);
  args.host_layout = &layout;
  args.dst = out;
  args.dst_size = spec_.bytes();
  NEEDLE_TRY(
      Check(core_->api(), where, core_->api().buffer_to_host_buffer(&args), "reading an array"));
  NEEDLE_TRY(Await(core_->api(), where, args.event, "reading an array"));
  core_->bytes_to_host += static_cast<int64_t>(spec_.bytes());
  return {};
}

Result<std::vector<float>> Buffer::Floats() const {
  if (valid() && dtype() != DType::kF32) return WrongDType(spec_, "f32");
  std::vector<float> out(static_cast<size_t>(spec_.elements()));
  NEEDLE_TRY(CopyTo(out.data()));
  return out;
}

Result<std::vector<int32_t>> Buffer::Ints() const {
  if (valid() && dtype() != DType::kS32 && dtype() != DType::kU32) return WrongDType(spec_, "i32");
  std::vector<int32_t> out(static_cast<size_t>(spec_.elements()));
  NEEDLE_TRY(CopyTo(out.data()));
  return out;
}

}  // namespace needle::pjrt
