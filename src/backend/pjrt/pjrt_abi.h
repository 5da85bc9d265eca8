// The part of the PJRT C interface (major version 0) that this program speaks: layouts of the
// argument structs, numbers of the enumerations, and the order of the function table. Written from
// the interface's facts; a test compares every offset with the published header.
//
// Conventions of the interface. Each struct begins with its size, so that either side may be older:
// the size ends with the last field that the caller knows (kStructSize, without trailing padding),
// and what the callee fills in is below the marker "out". All is zeroed first (Args). A call
// returns nullptr or an Error that the caller destroys. Text has a length and no final zero. The
// table has grown only at its end: before a late slot is read, `struct_size` must cover it
// (HasSlot).
// Source: OpenXLA's PJRT C interface, versions 0.81 to 0.117. Thread-safety: declarations only.
#pragma once

#include <cstddef>
#include <cstdint>

namespace needle::pjrt::abi {

// Owned by the plugin; known by their addresses alone.
struct Error;
struct Event;
struct Client;
struct Device;
struct DeviceDescription;
struct Memory;
struct Executable;
struct LoadedExecutable;
struct SerializedExecutable;
struct Buffer;
struct ExecuteContext;

struct Extension {  // a list of what a plugin can do beyond the table; only walked, never called
  size_t struct_size;
  int type;
  Extension* next;
};

struct Version {
  size_t struct_size;
  Extension* extension;
  int major_version, minor_version;
};

// ------------------------------------------------------------------ numbers

enum ErrorCode : int {
  kErrorUnknown = 2,
  kErrorInvalidArgument = 3,
  kErrorNotFound = 5,
  kErrorResourceExhausted = 8,
  kErrorUnimplemented = 12,
  kErrorInternal = 13,
  kErrorUnavailable = 14,
};

enum NamedValueType : int {
  kNamedString = 0,
  kNamedInt64 = 1,
  kNamedInt64List = 2,
  kNamedFloat = 3,
  kNamedBool = 4,
};

enum BufferType : int {
  kTypePred = 1,
  kTypeS32 = 4,
  kTypeU32 = 8,
  kTypeF16 = 10,
  kTypeF32 = 11,
  kTypeF64 = 12,
  kTypeBf16 = 13,
};

enum HostBufferSemantics : int { kImmutableUntilTransferCompletes = 1 };

enum LayoutType : int { kLayoutTiled = 0, kLayoutStrides = 1 };

// ------------------------------------------------------------------ arguments

struct ErrorDestroyArgs {
  size_t struct_size;
  Extension* extension;
  Error* error;
};
struct ErrorMessageArgs {
  size_t struct_size;
  Extension* extension;
  const Error* error;
  const char* message;  // out, lives as long as the error
  size_t message_size;
};
struct ErrorGetCodeArgs {
  size_t struct_size;
  Extension* extension;
  const Error* error;
  int code;  // out
};

struct NamedValue {
  size_t struct_size;
  Extension* extension;
  const char* name;
  size_t name_size;
  int type;
  union {
    const char* string_value;
    int64_t int64_value;
    const int64_t* int64_list;
    float float_value;
    bool bool_value;
  };
  size_t value_size;  // characters, elements of a list, else 1
};

struct PluginInitializeArgs {
  size_t struct_size;
  Extension* extension;
};
struct PluginAttributesArgs {
  size_t struct_size;
  Extension* extension;
  const NamedValue* attributes;  // out
  size_t num_attributes;
};

struct EventDestroyArgs {
  size_t struct_size;
  Extension* extension;
  Event* event;
};
struct EventAwaitArgs {
  size_t struct_size;
  Extension* extension;
  Event* event;
};

struct ClientCreateArgs {
  size_t struct_size;
  Extension* extension;
  const NamedValue* create_options;
  size_t num_options;
  void* kv_get_callback;  // the store that machines of one cluster share; unused
  void* kv_get_user_arg;
  void* kv_put_callback;
  void* kv_put_user_arg;
  Client* client;  // out
  void* kv_try_get_callback;
  void* kv_try_get_user_arg;
};
struct ClientDestroyArgs {
  size_t struct_size;
  Extension* extension;
  Client* client;
};
struct ClientPlatformNameArgs {
  size_t struct_size;
  Extension* extension;
  Client* client;
  const char* platform_name;  // out, lives as long as the client
  size_t platform_name_size;
};
struct ClientPlatformVersionArgs {
  size_t struct_size;
  Extension* extension;
  Client* client;
  const char* platform_version;  // out, lives as long as the client
  size_t platform_version_size;
};
struct ClientAddressableDevicesArgs {
  size_t struct_size;
  Extension* extension;
  Client* client;
  Device* const* devices;  // out
  size_t num_devices;
};

struct Program {
  size_t struct_size;
  Extension* extension;
  char* code;
  size_t code_size;
  const char* format;  // "mlir"
  size_t format_size;
};
struct ClientCompileArgs {
  size_t struct_size;
  Extension* extension;
  Client* client;
  const Program* program;
  const char* compile_options;  // CompileOptionsProto, serialised
  size_t compile_options_size;
  LoadedExecutable* executable;  // out
};

struct TiledLayout {
  size_t struct_size;
  Extension* extension;
  const int64_t* minor_to_major;
  size_t minor_to_major_size;
  const int64_t* tile_dims;
  const size_t* tile_dim_sizes;
  size_t num_tiles;
};
struct StridesLayout {
  size_t struct_size;
  Extension* extension;
  const int64_t* byte_strides;
  size_t num_byte_strides;
};
struct MemoryLayout {
  size_t struct_size;
  Extension* extension;
  union {
    TiledLayout tiled;
    StridesLayout strides;
  };
  int type;  // LayoutType
};

struct ClientBufferFromHostBufferArgs {
  size_t struct_size;
  Extension* extension;
  Client* client;
  const void* data;
  int type;  // BufferType
  const int64_t* dims;
  size_t num_dims;
  const int64_t* byte_strides;  // nullptr: dense, row-major
  size_t num_byte_strides;
  int host_buffer_semantics;
  Device* device;
  Memory* memory;                // nullptr: the device's own
  MemoryLayout* device_layout;   // nullptr: the device's own
  Event* done_with_host_buffer;  // out
  Buffer* buffer;
};

struct DeviceDescriptionIdArgs {
  size_t struct_size;
  Extension* extension;
  DeviceDescription* description;
  int id;  // out
};
struct DeviceDescriptionAttributesArgs {
  size_t struct_size;
  Extension* extension;
  DeviceDescription* description;
  size_t num_attributes;  // out
  const NamedValue* attributes;
};
struct DeviceDescriptionKindArgs {
  size_t struct_size;
  Extension* extension;
  DeviceDescription* description;
  const char* kind;  // out
  size_t kind_size;
};
struct DeviceDescriptionDebugStringArgs {
  size_t struct_size;
  Extension* extension;
  DeviceDescription* description;
  const char* debug_string;  // out
  size_t debug_string_size;
};
struct DeviceGetDescriptionArgs {
  size_t struct_size;
  Extension* extension;
  Device* device;
  DeviceDescription* description;  // out
};
struct DeviceLocalHardwareIdArgs {
  size_t struct_size;
  Extension* extension;
  Device* device;
  int local_hardware_id;  // out
};
// The ABI fixes the order.  NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding)
struct DeviceMemoryStatsArgs {
  size_t struct_size;
  Extension* extension;
  Device* device;
  int64_t bytes_in_use;  // out, as all that follow
  int64_t peak_bytes_in_use;
  bool peak_bytes_in_use_is_set;
  int64_t num_allocs;
  bool num_allocs_is_set;
  int64_t largest_alloc_size;
  bool largest_alloc_size_is_set;
  int64_t bytes_limit;
  bool bytes_limit_is_set;
  int64_t bytes_reserved;
  bool bytes_reserved_is_set;
  int64_t peak_bytes_reserved;
  bool peak_bytes_reserved_is_set;
  int64_t bytes_reservable_limit;
  bool bytes_reservable_limit_is_set;
  int64_t largest_free_block_bytes;
  bool largest_free_block_bytes_is_set;
  int64_t pool_bytes;
  bool pool_bytes_is_set;
  int64_t peak_pool_bytes;
  bool peak_pool_bytes_is_set;
};

struct ExecutableDestroyArgs {
  size_t struct_size;
  Extension* extension;
  Executable* executable;
};
struct ExecutableNumOutputsArgs {
  size_t struct_size;
  Extension* extension;
  Executable* executable;
  size_t num_outputs;  // out
};
struct ExecutableSerializeArgs {
  size_t struct_size;
  Extension* extension;
  const Executable* executable;
  const char* bytes;  // out, lives as long as `serialized`
  size_t bytes_size;
  SerializedExecutable* serialized;
  void (*deleter)(SerializedExecutable*);
};
struct ExecutableGetCompiledMemoryStatsArgs {
  size_t struct_size;
  Extension* extension;
  Executable* executable;
  int64_t generated_code_size;  // out, as all that follow; bytes
  int64_t argument_size;
  int64_t output_size;
  int64_t alias_size;
  int64_t temp_size;
  int64_t host_generated_code_size;
  int64_t host_argument_size;
  int64_t host_output_size;
  int64_t host_alias_size;
  int64_t host_temp_size;
  int64_t peak_memory;
};

struct LoadedExecutableDestroyArgs {
  size_t struct_size;
  Extension* extension;
  LoadedExecutable* executable;
};
struct LoadedExecutableGetExecutableArgs {
  size_t struct_size;
  Extension* extension;
  LoadedExecutable* loaded_executable;
  Executable* executable;  // out
};
struct LoadedExecutableAddressableDevicesArgs {
  size_t struct_size;
  Extension* extension;
  LoadedExecutable* executable;
  Device* const* devices;  // out
  size_t num_devices;
};
struct ExecuteOptions {
  size_t struct_size;
  Extension* extension;
  void** send_callbacks;
  void** recv_callbacks;
  size_t num_send_ops;
  size_t num_recv_ops;
  int launch_id;
  const int64_t* non_donatable_input_indices;
  size_t num_non_donatable_input_indices;
  ExecuteContext* context;
  const char* call_location;
  size_t num_tasks;
  int* task_ids;
  int64_t* incarnation_ids;
  // This struct has grown since. A plugin that reads on without asking for the size finds zeros.
  void* later[8];
};
struct LoadedExecutableExecuteArgs {
  size_t struct_size;
  Extension* extension;
  LoadedExecutable* executable;
  ExecuteOptions* options;
  Buffer* const* const* argument_lists;  // [device][argument]
  size_t num_devices;
  size_t num_args;
  Buffer** const* output_lists;    // out, in arrays of the caller: [device][output]
  Event** device_complete_events;  // out, in an array of the caller: [device]
  Device* execute_device;          // nullptr: as compiled
};
struct ExecutableDeserializeAndLoadArgs {
  size_t struct_size;
  Extension* extension;
  Client* client;
  const char* serialized_executable;
  size_t serialized_executable_size;
  LoadedExecutable* loaded_executable;  // out
  const char* overridden_compile_options;
  size_t overridden_compile_options_size;
};

struct BufferDestroyArgs {
  size_t struct_size;
  Extension* extension;
  Buffer* buffer;
};
struct BufferElementTypeArgs {
  size_t struct_size;
  Extension* extension;
  Buffer* buffer;
  int type;  // out, BufferType
};
struct BufferDimensionsArgs {
  size_t struct_size;
  Extension* extension;
  Buffer* buffer;
  const int64_t* dims;  // out
  size_t num_dims;
};
struct BufferToHostBufferArgs {
  size_t struct_size;
  Extension* extension;
  Buffer* src;
  MemoryLayout* host_layout;  // nullptr: the device's
  void* dst;                  // nullptr: only asks for dst_size
  size_t dst_size;            // in, and out when dst is nullptr
  Event* event;               // out
};

// ------------------------------------------------------------------ the table

template <class Args>
using Call = Error* (*)(Args*);
using Unused = void (*)();

struct Api {
  size_t struct_size;
  Extension* extension;
  Version version;

  void (*error_destroy)(ErrorDestroyArgs*);
  void (*error_message)(ErrorMessageArgs*);
  Call<ErrorGetCodeArgs> error_get_code;

  Call<PluginInitializeArgs> plugin_initialize;
  Call<PluginAttributesArgs> plugin_attributes;

  Call<EventDestroyArgs> event_destroy;
  Unused event_is_ready, event_error;
  Call<EventAwaitArgs> event_await;
  Unused event_on_ready;

  Call<ClientCreateArgs> client_create;
  Call<ClientDestroyArgs> client_destroy;
  Call<ClientPlatformNameArgs> client_platform_name;
  Unused client_process_index;
  Call<ClientPlatformVersionArgs> client_platform_version;
  Unused client_devices;
  Call<ClientAddressableDevicesArgs> client_addressable_devices;
  Unused client_lookup_device, client_lookup_addressable_device, client_addressable_memories;
  Call<ClientCompileArgs> client_compile;
  Unused client_default_device_assignment;
  Call<ClientBufferFromHostBufferArgs> client_buffer_from_host_buffer;

  Call<DeviceDescriptionIdArgs> device_description_id;
  Unused device_description_process_index;
  Call<DeviceDescriptionAttributesArgs> device_description_attributes;
  Call<DeviceDescriptionKindArgs> device_description_kind;
  Call<DeviceDescriptionDebugStringArgs> device_description_debug_string;
  Unused device_description_to_string;

  Call<DeviceGetDescriptionArgs> device_get_description;
  Unused device_is_addressable;
  Call<DeviceLocalHardwareIdArgs> device_local_hardware_id;
  Unused device_addressable_memories, device_default_memory;
  Call<DeviceMemoryStatsArgs> device_memory_stats;

  Unused memory_id, memory_kind, memory_debug_string, memory_to_string,
      memory_addressable_by_devices;

  Call<ExecutableDestroyArgs> executable_destroy;
  Unused executable_name, executable_num_replicas, executable_num_partitions;
  Call<ExecutableNumOutputsArgs> executable_num_outputs;
  Unused executable_size_of_generated_code, executable_get_cost_analysis,
      executable_output_memory_kinds, executable_optimized_program;
  Call<ExecutableSerializeArgs> executable_serialize;

  Call<LoadedExecutableDestroyArgs> loaded_executable_destroy;
  Call<LoadedExecutableGetExecutableArgs> loaded_executable_get_executable;
  Call<LoadedExecutableAddressableDevicesArgs> loaded_executable_addressable_devices;
  Unused loaded_executable_delete, loaded_executable_is_deleted;
  Call<LoadedExecutableExecuteArgs> loaded_executable_execute;
  Call<ExecutableDeserializeAndLoadArgs> executable_deserialize_and_load;
  Unused loaded_executable_fingerprint;

  Call<BufferDestroyArgs> buffer_destroy;
  Call<BufferElementTypeArgs> buffer_element_type;
  Call<BufferDimensionsArgs> buffer_dimensions;
  Unused buffer_unpadded_dimensions, buffer_dynamic_dimension_indices, buffer_get_memory_layout,
      buffer_on_device_size, buffer_device, buffer_memory, buffer_delete, buffer_is_deleted,
      buffer_copy_to_device;
  Call<BufferToHostBufferArgs> buffer_to_host_buffer;
  Unused buffer_is_on_cpu, buffer_ready_event, buffer_unsafe_pointer,
      buffer_increase_external_reference_count, buffer_decrease_external_reference_count,
      buffer_opaque_device_memory_pointer;

  Unused copy_to_device_stream_destroy, copy_to_device_stream_add_chunk,
      copy_to_device_stream_total_bytes, copy_to_device_stream_granule_size,
      copy_to_device_stream_current_bytes;

  Unused topology_create, topology_destroy, topology_platform_name, topology_platform_version,
      topology_get_device_descriptions, topology_serialize, topology_attributes;

  Unused compile, executable_output_element_types, executable_output_dimensions,
      buffer_copy_to_memory, client_create_view_of_device_buffer, executable_fingerprint,
      client_topology_description;
  Call<ExecutableGetCompiledMemoryStatsArgs> executable_get_compiled_memory_stats;
};

/// Bytes up to the end of a struct's last field.
template <class Struct>
inline constexpr size_t kStructSize = sizeof(Struct);
// NOLINTBEGIN(bugprone-macro-parentheses): names of types and fields take no parentheses
#define NEEDLE_PJRT_LAST_FIELD(Struct, field)   \
  template <>                                   \
  inline constexpr size_t kStructSize<Struct> = \
      offsetof(Struct, field) + sizeof(static_cast<Struct*>(nullptr)->field)
// NOLINTEND(bugprone-macro-parentheses)
NEEDLE_PJRT_LAST_FIELD(Version, minor_version);
NEEDLE_PJRT_LAST_FIELD(ErrorGetCodeArgs, code);
NEEDLE_PJRT_LAST_FIELD(MemoryLayout, type);
NEEDLE_PJRT_LAST_FIELD(DeviceDescriptionIdArgs, id);
NEEDLE_PJRT_LAST_FIELD(DeviceLocalHardwareIdArgs, local_hardware_id);
NEEDLE_PJRT_LAST_FIELD(DeviceMemoryStatsArgs, peak_pool_bytes_is_set);
NEEDLE_PJRT_LAST_FIELD(ExecuteOptions, incarnation_ids);
NEEDLE_PJRT_LAST_FIELD(BufferElementTypeArgs, type);
#undef NEEDLE_PJRT_LAST_FIELD

/// A zeroed struct that knows its size: what every call begins with.
template <class Struct>
Struct Args() {
  Struct args = {};
  args.struct_size = kStructSize<Struct>;
  return args;
}

/// Whether the plugin's table reaches as far as `slot` and has something there.
template <class Slot>
bool HasSlot(const Api& api, Slot Api::*slot) {
  const auto* end = reinterpret_cast<const char*>(&(api.*slot) + 1);
  const auto* begin = reinterpret_cast<const char*>(&api);
  return static_cast<size_t>(end - begin) <= api.struct_size && api.*slot != nullptr;
}

}  // namespace needle::pjrt::abi
