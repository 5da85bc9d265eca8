// The PJRT host: loads a plugin (the libraries that JAX itself uses for its devices), compiles
// StableHLO text, keeps arrays on the device and runs programs. Nothing of it is needed to build
// or to compute on the CPU engine; a plugin is a file that is found and opened at run time.
//
//   auto plugin = Plugin::Load(path);
//   auto client = Client::Create(*plugin, {});
//   auto program = (*client)->Compile({.text = ..., .inputs = ..., .outputs = ...}, {});
//   auto x = (*client)->Upload(data, {DType::kF32, {4, 8}});
//   auto y = program->Run({{&*x}});                     // y[device][output]
//
// Arrays are dense and row-major. Sizes in bytes, times in seconds.
// Errors: sentences that hold the plugin's own message. kNotFound: no such library; kUnavailable:
// the plugin or its device cannot be used, or has no memory left; kInvalidArgument: a program,
// option or argument that cannot be; kInternal: the plugin broke its own interface.
// Thread-safety: a Plugin may be shared by threads; a Client and all that it made belong to one
// thread at a time. Buffers and executables keep their client alive.
// Source: the PJRT C API, see pjrt_abi.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace needle::pjrt {

// ------------------------------------------------------------------ plain values

enum class DType { kF32, kS32, kU32, kPred, kF64, kBf16, kF16 };

/// Bytes of one element.
size_t SizeOf(DType dtype);
/// As StableHLO spells it: "f32", "i32", "ui32", "i1", "f64", "bf16", "f16".
std::string_view Name(DType dtype);

/// What an argument or a result is.
struct ArraySpec {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // empty: a scalar

  int64_t elements() const;
  size_t bytes() const;
  bool operator==(const ArraySpec&) const = default;
};
/// "f32[4,8]", for messages.
std::string Describe(const ArraySpec& spec);

/// An option of a client, or an attribute of a plugin or device.
struct NamedValue {
  std::string name;
  std::variant<std::string, int64_t, std::vector<int64_t>, float, bool> value;
  bool operator==(const NamedValue&) const = default;
};
/// The value as text: "abc", 3, [1,2], 0.75, true.
std::string Describe(const NamedValue& value);

using FlagValue = std::variant<std::string, bool, int64_t, double>;

struct CompileOptions {
  int replicas = 1;
  /// The id (DeviceInfo::id) of each replica's device; empty: the client's devices 0, 1, ...
  std::vector<int64_t> devices;
  /// XLA flags for this program, without the leading "--": {"xla_cpu_enable_fast_math", false}. The
  /// plugin refuses a name it does not know (kInvalidArgument).
  std::map<std::string, FlagValue> overrides;
};

struct Program {
  std::string text;                        // StableHLO, a module with @main
  std::vector<ArraySpec> inputs, outputs;  // @main's signature, in order
  /// Inputs whose storage an output takes over; the text says which output with
  /// {tf.aliasing_output = k : i32}. Such a buffer may not be used after Run.
  std::vector<int> donates;
};

/// Of one program and device, as the plugin's compiler planned it; nullopt where it does not say.
struct MemoryStats {
  std::optional<int64_t> temp_bytes, argument_bytes, output_bytes, alias_bytes, code_bytes;
};

struct DeviceMemory {
  std::optional<int64_t> bytes_in_use, peak_bytes, limit_bytes;
};

struct DeviceInfo {
  int64_t id = 0;        // the plugin's own
  int64_t hardware = 0;  // its number on this machine
  std::string kind;      // "NVIDIA H200", "cpu"
  std::string debug;     // the plugin's long name of it
  std::vector<NamedValue> attributes;
};

// ------------------------------------------------------------------ the library

namespace abi {
struct Api;  // pjrt_abi.h
}

/// A loaded library. It is never unloaded (plugins start threads that outlive their clients); the
/// same path loaded twice is one plugin.
class Plugin {
 public:
  /// Opens, checks the version and starts the plugin. Errors name the path and the reason: no such
  /// file, a missing library it needs, no GetPjrtApi in it, a version that cannot be spoken.
  static Result<std::shared_ptr<Plugin>> Load(const std::string& path);

  const std::string& Path() const { return path_; }
  int ApiMajor() const { return major_; }
  int ApiMinor() const { return minor_; }
  /// Whether its version lies in the range that we have run or compared, kTestedFrom..kTestedTo.
  bool Tested() const;
  /// "xla_version", "stablehlo_current_version" and so on; may be empty.
  const std::vector<NamedValue>& Attributes() const { return attributes_; }

  const abi::Api& api() const { return *api_; }

 private:
  Plugin() = default;
  std::string path_;
  int major_ = 0, minor_ = 0;
  std::vector<NamedValue> attributes_;
  const abi::Api* api_ = nullptr;
};

/// API versions (the minor number; the major is 0): the oldest that is spoken at all, and the range
/// that was compared with the published headers and run.
inline constexpr int kOldestApi = 40, kTestedFrom = 81, kTestedTo = 117;

// ------------------------------------------------------------------ arrays and programs

struct ClientCore;  // client_core.h: what buffers, executables and the client share

/// An array on a device. Move-only; frees itself.
class Buffer {
 public:
  Buffer();  // holds nothing: no dtype, no shape
  Buffer(Buffer&&) noexcept;
  Buffer& operator=(Buffer&&) noexcept;
  ~Buffer();

  bool valid() const;
  const ArraySpec& spec() const { return spec_; }
  DType dtype() const { return spec_.dtype; }
  const std::vector<int64_t>& shape() const { return spec_.shape; }
  int device() const { return device_; }  // as in Client::Upload
  /// True once a program has taken its storage; what it held is then reachable through that
  /// program's output only.
  bool donated() const { return donated_; }

  /// The elements on the host, row-major. Floats: kF32 only; Ints: kS32, and kU32 as its bits.
  /// Errors: another dtype, a donated buffer, the plugin's.
  Result<std::vector<float>> Floats() const;
  Result<std::vector<int32_t>> Ints() const;
  /// The same bytes for any dtype; `out` has spec().bytes() of them.
  Status CopyTo(void* out) const;

 private:
  friend class Client;
  friend class Executable;
  void Free();
  std::shared_ptr<ClientCore> core_;
  void* handle_ = nullptr;
  ArraySpec spec_;
  int device_ = 0;
  bool donated_ = false;
};

/// A compiled program on its devices. Move-only; frees itself.
class Executable {
 public:
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;
  ~Executable();

  /// Runs and waits. args[replica][input]; the result is outputs[replica][output]. Count, dtype,
  /// shape and device of each argument are checked against the signature given at compile time
  /// (plugins take a wrong shape of the same size in silence). Donated arguments are marked so.
  Result<std::vector<std::vector<Buffer>>> Run(const std::vector<std::vector<Buffer*>>& args);

  MemoryStats Memory() const { return memory_; }
  /// Whether it came from the disk cache; and how long compiling, or loading from there, took.
  bool from_cache() const { return from_cache_; }
  double compile_seconds() const { return seconds_; }
  int replicas() const { return static_cast<int>(devices_.size()); }

 private:
  friend class Client;
  Executable() = default;
  static Result<Executable> Adopt(std::shared_ptr<ClientCore> core, void* handle,
                                  const Program& program);
  void Free();
  Status CheckArguments(const std::vector<std::vector<Buffer*>>& args) const;
  Status CheckOutput(const Buffer& buffer, size_t output) const;

  std::shared_ptr<ClientCore> core_;
  void* handle_ = nullptr;
  std::vector<ArraySpec> inputs_, outputs_;
  std::vector<bool> donates_;  // [inputs]
  std::vector<int> devices_;   // [replicas] as in Client::Upload
  bool outputs_checked_ = false;
  MemoryStats memory_;
  bool from_cache_ = false;
  double seconds_ = 0;
};

// ------------------------------------------------------------------ the client

/// A plugin's devices, opened. One a process and device choice: a GPU's plugin takes most of the
/// device's memory when its client is made.
class Client {
 public:
  static Result<std::unique_ptr<Client>> Create(std::shared_ptr<Plugin> plugin,
                                                std::span<const NamedValue> options);
  ~Client();

  const Plugin& plugin() const;
  const std::string& PlatformName() const;     // "cpu", "cuda", ...
  const std::string& PlatformVersion() const;  // many lines with some plugins
  /// The devices that this process may use; `device` in this interface is an index into them.
  const std::vector<DeviceInfo>& Devices() const;
  /// What the plugin says about a device's memory now; empty where it does not say.
  DeviceMemory Memory(int device) const;

  /// Compiles, or takes the program from the cache folder where there is one. The count of the
  /// program's outputs is checked.
  Result<Executable> Compile(const Program& program, const CompileOptions& options);

  /// Copies an array to a device; `data` may change as soon as this returns.
  Result<Buffer> Upload(const void* data, const ArraySpec& spec, int device = 0);

  /// Bytes that have crossed since the client was made.
  int64_t bytes_to_host() const;
  int64_t bytes_to_device() const;

  /// The same client with one of its devices alone, which is device 0 there. Both may be used, and
  /// either may end first. Error: no such device.
  Result<std::unique_ptr<Client>> Only(int device) const;

  /// XLA flags that every Compile gets; a program's own come on top.
  void SetOverrides(std::map<std::string, FlagValue> overrides);

  /// Keeps compiled programs in this folder (made when missing) and looks there first. An entry is
  /// for one text, options, platform version and plugin; entries that cannot be read or loaded are
  /// compiled again and replaced. "" turns it off, which is the default.
  void SetCache(const std::string& folder);

 private:
  explicit Client(std::shared_ptr<ClientCore> core);
  Result<Executable> CompileNow(const Program& program, const std::string& options);
  std::optional<Executable> LoadCached(const Program& program, const std::string& path);
  void StoreCached(const Executable& executable, const std::string& path);
  std::string CacheKey(const Program& program, const std::string& options) const;

  std::shared_ptr<ClientCore> core_;
  std::map<std::string, FlagValue> overrides_;
  std::string cache_;
};

}  // namespace needle::pjrt
