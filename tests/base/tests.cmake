# The process that the fault tests start and kill.
add_executable(write_file_child "${CMAKE_CURRENT_SOURCE_DIR}/base/write_file_child.cc")
target_include_directories(write_file_child PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}")
target_link_libraries(write_file_child PRIVATE needle_base)
add_dependencies(base_test write_file_child)
target_compile_definitions(base_test PRIVATE
  NEEDLE_WRITE_FILE_CHILD="$<TARGET_FILE:write_file_child>")
