# Highway gives its headers only; nothing links it.
find_path(NEEDLE_HIGHWAY_INCLUDE hwy/highway.h REQUIRED)
target_include_directories(${name} SYSTEM PRIVATE "${NEEDLE_HIGHWAY_INCLUDE}")
# Register tiles need their loops unrolled and their arrays in registers, also in the dev build.
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_options(${name} PRIVATE -O3)
endif()
