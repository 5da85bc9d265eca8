# The published header, when the plugins' wheel is there (scripts/pjrt_plugins.sh).
set(pjrt_header_dir "${PROJECT_SOURCE_DIR}/build/pjrt/xla_plugins/xla_cpu_pjrt/include")
if(EXISTS "${pjrt_header_dir}/pjrt_c_api.h")
  target_sources(backend_pjrt_test PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/backend/pjrt/published_abi.c")
  target_include_directories(backend_pjrt_test SYSTEM PRIVATE "${pjrt_header_dir}")
  target_compile_definitions(backend_pjrt_test PRIVATE NEEDLE_PJRT_HEADER)
endif()

# The model on real plugins: a program of its own, since it compares with the CPU backend too.
file(GLOB pjrt_model_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/backend/pjrt/model/*_test.cc")
add_executable(pjrt_model_test ${pjrt_model_sources})
target_link_libraries(pjrt_model_test PRIVATE needle_test_support needle_backend_pjrt needle_backend_cpu
  needle_train needle_format needle_data)
gtest_discover_tests(pjrt_model_test DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "pjrt" TIMEOUT 600)
