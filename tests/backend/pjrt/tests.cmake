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

# Plugins that misbehave, and the child that tries them.
add_library(fake_pjrt_plugin MODULE "${CMAKE_CURRENT_SOURCE_DIR}/backend/pjrt/fake_plugin.cc")
target_link_libraries(fake_pjrt_plugin PRIVATE needle_options ${CMAKE_DL_LIBS})
add_library(fake_pjrt_no_symbol MODULE "${CMAKE_CURRENT_SOURCE_DIR}/backend/pjrt/no_symbol.cc")
target_link_libraries(fake_pjrt_no_symbol PRIVATE needle_options)
add_executable(probe_child "${CMAKE_CURRENT_SOURCE_DIR}/backend/pjrt/probe_child.cc")
target_link_libraries(probe_child PRIVATE needle_backend_pjrt)
add_dependencies(backend_pjrt_test fake_pjrt_plugin fake_pjrt_no_symbol probe_child)
target_compile_definitions(backend_pjrt_test PRIVATE
  NEEDLE_FAKE_PLUGIN="$<TARGET_FILE:fake_pjrt_plugin>"
  NEEDLE_NO_SYMBOL="$<TARGET_FILE:fake_pjrt_no_symbol>"
  NEEDLE_PROBE_CHILD="$<TARGET_FILE:probe_child>")

# What takes more than a few seconds of compiling: a program and a label of their own.
file(GLOB pjrt_slow_sources CONFIGURE_DEPENDS
  "${CMAKE_CURRENT_SOURCE_DIR}/backend/pjrt/model/slow/*_test.cc")
add_executable(pjrt_model_slow_test ${pjrt_slow_sources})
target_link_libraries(pjrt_model_slow_test PRIVATE needle_test_support needle_backend_pjrt
  needle_backend_cpu needle_train needle_format needle_data)
add_dependencies(pjrt_model_slow_test fake_pjrt_plugin)
target_compile_definitions(pjrt_model_slow_test PRIVATE
  NEEDLE_FAKE_PLUGIN="$<TARGET_FILE:fake_pjrt_plugin>")
gtest_discover_tests(pjrt_model_slow_test DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "slow" TIMEOUT 1200)
