#include <algorithm>
#include <utility>

#include "backend/pjrt/client_core.h"
#include "base/str_cat.h"

namespace needle::pjrt {
namespace {

abi::LoadedExecutable* HandleOf(void* handle) {
  return static_cast<abi::LoadedExecutable*>(handle);
}

Error BadArgument(size_t replica, size_t argument, const std::string& what) {
  return Error(Code::kInvalidArgument,
               StrCat("argument ", argument, " of replica ", replica, " ", what));
}

/// The program as an object that can be asked about; destroys itself.
class Asked {
 public:
  static Result<Asked> Of(const ClientCore& core, abi::LoadedExecutable* loaded) {
    auto args = abi::Args<abi::LoadedExecutableGetExecutableArgs>();
    args.loaded_executable = loaded;
    NEEDLE_TRY(Check(core.api(), core.plugin->Path(),
                     core.api().loaded_executable_get_executable(&args), "asking about a program"));
    return Asked(core, args.executable);
  }
  Asked(Asked&& other) noexcept
      : core_(other.core_), executable_(std::exchange(other.executable_, nullptr)) {}
  Asked& operator=(Asked&&) = delete;
  ~Asked() {
    if (executable_ == nullptr) return;
    auto args = abi::Args<abi::ExecutableDestroyArgs>();
    args.executable = executable_;
    (void)Check(core_.api(), core_.plugin->Path(), core_.api().executable_destroy(&args),
                "freeing");
  }

  Result<size_t> Outputs() const {
    auto args = abi::Args<abi::ExecutableNumOutputsArgs>();
    args.executable = executable_;
    NEEDLE_TRY(Check(core_.api(), core_.plugin->Path(), core_.api().executable_num_outputs(&args),
                     "asking for a program's outputs"));
    return args.num_outputs;
  }

  MemoryStats Memory() const {
    MemoryStats stats;
    if (!abi::HasSlot(core_.api(), &abi::Api::executable_get_compiled_memory_stats)) return stats;
    auto args = abi::Args<abi::ExecutableGetCompiledMemoryStatsArgs>();
    args.executable = executable_;
    if (!Check(core_.api(), core_.plugin->Path(),
               core_.api().executable_get_compiled_memory_stats(&args), "asking for memory")
             .ok())
      return stats;  // a plugin need not know
    stats.temp_bytes = args.temp_size;
    stats.argument_bytes = args.argument_size;
    stats.output_bytes = args.output_size;
    stats.alias_bytes = args.alias_size;
    stats.code_bytes = args.generated_code_size;
    return stats;
  }

 private:
  Asked(const ClientCore& core, abi::Executable* executable)
      : core_(core), executable_(executable) {}
  const ClientCore& core_;
  abi::Executable* executable_;
};

Result<std::vector<int>> DevicesOf(const ClientCore& core, abi::LoadedExecutable* loaded) {
  auto args = abi::Args<abi::LoadedExecutableAddressableDevicesArgs>();
  args.executable = loaded;
  NEEDLE_TRY(Check(core.api(), core.plugin->Path(),
                   core.api().loaded_executable_addressable_devices(&args),
                   "asking for a program's devices"));
  std::vector<int> devices;
  for (size_t i = 0; i < args.num_devices; ++i) devices.push_back(core.IndexOf(args.devices[i]));
  return devices;
}

Result<ArraySpec> DeviceSpecOf(const ClientCore& core, abi::Buffer* buffer, DType wanted) {
  const std::string& where = core.plugin->Path();
  auto type = abi::Args<abi::BufferElementTypeArgs>();
  type.buffer = buffer;
  NEEDLE_TRY(Check(core.api(), where, core.api().buffer_element_type(&type), "asking for a type"));
  auto dims = abi::Args<abi::BufferDimensionsArgs>();
  dims.buffer = buffer;
  NEEDLE_TRY(Check(core.api(), where, core.api().buffer_dimensions(&dims), "asking for a shape"));
  ArraySpec spec{wanted, {dims.dims, dims.dims + dims.num_dims}};
  if (type.type != TypeOf(wanted))
    return Error(Code::kInternal, StrCat("element type ", type.type, " where ", TypeOf(wanted),
                                         " (", Name(wanted), ") was declared"));
  return spec;
}

}  // namespace

Executable::Executable(Executable&& other) noexcept { *this = std::move(other); }

Executable& Executable::operator=(Executable&& other) noexcept {
  if (this == &other) return *this;
  Free();
  core_ = std::move(other.core_);
  handle_ = std::exchange(other.handle_, nullptr);
  inputs_ = std::move(other.inputs_);
  outputs_ = std::move(other.outputs_);
  donates_ = std::move(other.donates_);
  devices_ = std::move(other.devices_);
  outputs_checked_ = other.outputs_checked_;
  memory_ = other.memory_;
  from_cache_ = other.from_cache_;
  seconds_ = other.seconds_;
  return *this;
}

Executable::~Executable() { Free(); }

void Executable::Free() {
  if (handle_ == nullptr) return;
  auto args = abi::Args<abi::LoadedExecutableDestroyArgs>();
  args.executable = HandleOf(handle_);
  (void)Check(core_->api(), core_->plugin->Path(), core_->api().loaded_executable_destroy(&args),
              "freeing");
  handle_ = nullptr;
}

Result<Executable> Executable::Adopt(std::shared_ptr<ClientCore> core, void* handle,
                                     const Program& program) {
  Executable made;
  made.core_ = std::move(core);
  made.handle_ = handle;
  made.inputs_ = program.inputs;
  made.outputs_ = program.outputs;
  made.donates_.assign(program.inputs.size(), false);
  for (const int input : program.donates) {
    assert(input >= 0 && static_cast<size_t>(input) < program.inputs.size());
    made.donates_[static_cast<size_t>(input)] = true;
  }
  NEEDLE_ASSIGN(made.devices_, DevicesOf(*made.core_, HandleOf(handle)));
  NEEDLE_ASSIGN(const Asked asked, Asked::Of(*made.core_, HandleOf(handle)));
  NEEDLE_ASSIGN(const size_t outputs, asked.Outputs());
  if (outputs != program.outputs.size())
    return Error(Code::kInvalidArgument, StrCat("the program gives ", outputs, " arrays; ",
                                                program.outputs.size(), " were declared"));
  made.memory_ = asked.Memory();
  return made;
}

Status Executable::CheckArguments(const std::vector<std::vector<Buffer*>>& args) const {
  if (args.size() != devices_.size())
    return Error(Code::kInvalidArgument,
                 StrCat("the program runs on ", devices_.size(), " devices; arguments for ",
                        args.size(), " were given"));
  for (size_t r = 0; r < args.size(); ++r) {
    if (args[r].size() != inputs_.size())
      return Error(Code::kInvalidArgument, StrCat("the program takes ", inputs_.size(),
                                                  " arrays; replica ", r, " got ", args[r].size()));
    for (size_t i = 0; i < args[r].size(); ++i) {
      const Buffer* b = args[r][i];
      if (b == nullptr || !b->valid()) return BadArgument(r, i, "is empty");
      if (b->core_ != core_) return BadArgument(r, i, "belongs to another client");
      if (b->donated_) return BadArgument(r, i, "was given away to an earlier program");
      if (b->spec_ != inputs_[i])
        return BadArgument(
            r, i, StrCat("is ", Describe(b->spec_), "; the program takes ", Describe(inputs_[i])));
      if (b->device_ != devices_[r])
        return BadArgument(
            r, i, StrCat("lies on device ", b->device_, "; the program runs on ", devices_[r]));
      if (donates_[i] && std::count(args[r].begin(), args[r].end(), b) > 1)
        return BadArgument(r, i, "is given away, so it cannot be another argument too");
    }
  }
  return {};
}

Status Executable::CheckOutput(const Buffer& buffer, size_t output) const {
  const ArraySpec& wanted = outputs_[output];
  const Result<ArraySpec> got =
      DeviceSpecOf(*core_, static_cast<abi::Buffer*>(buffer.handle_), wanted.dtype);
  if (!got.ok()) return got.error().In(StrCat("output ", output));
  if (*got == wanted) return {};
  return Error(Code::kInternal, StrCat("output ", output, " is ", Describe(*got), "; ",
                                       Describe(wanted), " was declared"));
}

Result<std::vector<std::vector<Buffer>>> Executable::Run(
    const std::vector<std::vector<Buffer*>>& args) {
  NEEDLE_TRY(CheckArguments(args));
  const abi::Api& api = core_->api();
  const std::string& where = core_->plugin->Path();
  const size_t replicas = args.size();
  std::vector<std::vector<abi::Buffer*>> in(replicas), out(replicas);
  std::vector<abi::Buffer* const*> in_lists;
  std::vector<abi::Buffer**> out_lists;
  for (size_t r = 0; r < replicas; ++r) {
    for (const Buffer* b : args[r]) in[r].push_back(static_cast<abi::Buffer*>(b->handle_));
    out[r].resize(outputs_.size());
    in_lists.push_back(in[r].data());
    out_lists.push_back(out[r].data());
  }
  std::vector<abi::Event*> done(replicas);
  auto options = abi::Args<abi::ExecuteOptions>();
  auto execute = abi::Args<abi::LoadedExecutableExecuteArgs>();
  execute.executable = HandleOf(handle_);
  execute.options = &options;
  execute.argument_lists = in_lists.data();
  execute.num_devices = replicas;
  execute.num_args = inputs_.size();
  execute.output_lists = out_lists.data();
  execute.device_complete_events = done.data();
  NEEDLE_TRY(Check(api, where, api.loaded_executable_execute(&execute), "running a program"));

  // From here on the plugin has the donated arguments, and the outputs are ours to free.
  std::vector<std::vector<Buffer>> results(replicas);
  for (size_t r = 0; r < replicas; ++r) {
    for (size_t i = 0; i < inputs_.size(); ++i)
      if (donates_[i]) args[r][i]->donated_ = true;
    for (size_t k = 0; k < outputs_.size(); ++k) {
      Buffer& b = results[r].emplace_back();
      b.core_ = core_;
      b.handle_ = out[r][k];
      b.spec_ = outputs_[k];
      b.device_ = devices_[r];
    }
  }
  Status status;
  for (abi::Event* event : done) {
    Status one = Await(api, where, event, "running a program");
    if (status.ok()) status = std::move(one);
  }
  NEEDLE_TRY(status);
  if (!outputs_checked_) {
    for (size_t k = 0; k < outputs_.size(); ++k) NEEDLE_TRY(CheckOutput(results[0][k], k));
    outputs_checked_ = true;
  }
  return results;
}

}  // namespace needle::pjrt
