# fmt by its headers alone, for foreign builds; this file lies in <prefix>/lib/cmake/fmt.
if(NOT TARGET fmt::fmt)
  get_filename_component(fmt_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
  add_library(fmt::fmt INTERFACE IMPORTED)
  set_target_properties(fmt::fmt PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${fmt_prefix}/include"
    INTERFACE_COMPILE_DEFINITIONS FMT_HEADER_ONLY)
endif()
