# Downloads: cpp-httplib and OpenSSL, seen by this folder alone. Without them the folder still
# finds files that are in the cache, and says how to build the rest.
if(NEEDLE_HTTP)
  find_package(PkgConfig REQUIRED)
  pkg_check_modules(NEEDLE_HTTPLIB REQUIRED IMPORTED_TARGET cpp-httplib)
  find_package(OpenSSL REQUIRED)
  target_link_libraries(${name} PRIVATE PkgConfig::NEEDLE_HTTPLIB OpenSSL::SSL OpenSSL::Crypto)
  target_compile_definitions(${name} PRIVATE NEEDLE_HTTP)
  if(NEEDLE_HTTPLIB_VERSION VERSION_LESS 0.14)
    target_compile_definitions(${name} PRIVATE NEEDLE_HTTPLIB_UNENCODES)  # see http.cc
  endif()
endif()
