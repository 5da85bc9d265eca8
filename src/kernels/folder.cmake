# Highway gives its headers only; nothing links it.
find_path(NEEDLE_HIGHWAY_INCLUDE hwy/highway.h REQUIRED)
target_include_directories(${name} SYSTEM PRIVATE "${NEEDLE_HIGHWAY_INCLUDE}")
# Register tiles need their loops unrolled and their arrays in registers, also in the dev build.
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_options(${name} PRIVATE -O3)
endif()
# GCC aligns the stack to 16 bytes only on Windows (its bug 54412), yet spills wide registers with
# moves that need 32 and 64. The assembler writes those moves as ones that need no alignment.
if(MINGW AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(${name} PRIVATE -Wa,-muse-unaligned-vector-move)
endif()
