needle_link_rapidcheck(exec_test)

# Minutes each: a program and a label of their own.
file(GLOB exec_slow_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/exec/slow/*_test.cc")
add_executable(exec_slow_test ${exec_slow_sources})
target_link_libraries(exec_slow_test PRIVATE needle_test_support needle_exec needle_format needle_data)
gtest_discover_tests(exec_slow_test DISCOVERY_TIMEOUT 60 PROPERTIES LABELS "slow" TIMEOUT 3600)
