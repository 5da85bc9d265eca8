# Highway gives its headers only; nothing links it.
find_path(NEEDLE_HIGHWAY_INCLUDE hwy/highway.h REQUIRED)
target_include_directories(${name} SYSTEM PRIVATE "${NEEDLE_HIGHWAY_INCLUDE}")
# Register tiles need their loops unrolled and their arrays in registers, also in the dev build.
if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  target_compile_options(${name} PRIVATE -O3)
elseif(NEEDLE_SANITIZE)
  # At -O0 a kernel takes a hundred times as long, and with a check of every vector's address for
  # null and alignment, which the loads used here do not need, a file takes minutes to compile.
  # Options of a source stand behind -fsanitize=undefined, which would switch them on again.
  set(instead -O1)
  if(NEEDLE_SANITIZE MATCHES "undefined")
    list(APPEND instead -fno-sanitize=null,alignment)
  endif()
  set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "${instead}")
endif()
# GCC aligns the stack to 16 bytes only on Windows (its bug 54412), yet spills wide registers with
# moves that need 32 and 64. The assembler writes those moves as ones that need no alignment.
if(MINGW AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(${name} PRIVATE -Wa,-muse-unaligned-vector-move)
endif()
