# libneedle (the engine, needs the C++ standard library only) and libneedle_train (data, training,
# scoring, weights; needs libneedle), made from the objects of the folders, and how they are
# installed: headers, find_package(needle) with needle::needle and needle::train, pkg-config.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

function(needle_shared target output)
  set(objects "")
  foreach(folder IN LISTS ARGN)
    get_target_property(type needle_${folder} TYPE)
    if(type STREQUAL "STATIC_LIBRARY")  # a folder of headers alone has no objects
      list(APPEND objects $<TARGET_OBJECTS:needle_${folder}>)
    endif()
  endforeach()
  add_library(${target} SHARED ${objects})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${output} LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
  target_compile_features(${target} INTERFACE cxx_std_20)
  target_include_directories(${target} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  if(NEEDLE_SANITIZE)
    target_link_options(${target} PRIVATE -fsanitize=${NEEDLE_SANITIZE})
  endif()
endfunction()

needle_shared(needle needle base tensor json text ops quant grammar model kernels exec format
  runtime api_engine)
needle_shared(needle_train_shared needle_train data backend backend_cpu backend_pjrt train eval hub api)
target_link_libraries(needle PRIVATE Threads::Threads)
target_link_libraries(needle_train_shared PUBLIC needle PRIVATE Threads::Threads)
if(NEEDLE_HTTP)
  target_link_libraries(needle_train_shared PRIVATE PkgConfig::NEEDLE_HTTPLIB OpenSSL::SSL OpenSSL::Crypto)
endif()
set_target_properties(needle_train_shared PROPERTIES EXPORT_NAME train INSTALL_RPATH "$ORIGIN")
add_library(needle::needle ALIAS needle)
add_library(needle::train ALIAS needle_train_shared)

install(TARGETS needle needle_train_shared EXPORT needleTargets
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/needle" DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
# needle.hpp includes "base/result.h", which the compiler looks for beside it first.
install(FILES "${PROJECT_SOURCE_DIR}/src/base/result.h"
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/needle/base)
install(EXPORT needleTargets NAMESPACE needle:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/needle)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/needleConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/needleConfig.cmake"
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/needle)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/needleConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/needleConfig.cmake" "${PROJECT_BINARY_DIR}/needleConfigVersion.cmake"
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/needle)

# From the folder of the .pc files up to the prefix, so that an installed tree may be moved.
file(RELATIVE_PATH NEEDLE_PC_UP "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" NEEDLE_PC_UP "${NEEDLE_PC_UP}")
set(NEEDLE_PC_REQUIRES "")
foreach(library IN ITEMS needle needle_train)
  set(NEEDLE_PC_NAME ${library})
  if(library STREQUAL "needle_train")
    set(NEEDLE_PC_REQUIRES needle)
  endif()
  configure_file("${PROJECT_SOURCE_DIR}/cmake/needle.pc.in" "${PROJECT_BINARY_DIR}/${library}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/${library}.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
