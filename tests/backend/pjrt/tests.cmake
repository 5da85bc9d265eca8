# The published header, when the plugins' wheel is there (scripts/pjrt_plugins.sh).
set(pjrt_header_dir "${PROJECT_SOURCE_DIR}/build/pjrt/xla_plugins/xla_cpu_pjrt/include")
if(EXISTS "${pjrt_header_dir}/pjrt_c_api.h")
  target_sources(backend_pjrt_test PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/backend/pjrt/published_abi.c")
  target_include_directories(backend_pjrt_test SYSTEM PRIVATE "${pjrt_header_dir}")
  target_compile_definitions(backend_pjrt_test PRIVATE NEEDLE_PJRT_HEADER)
endif()
