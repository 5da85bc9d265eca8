# A separate project against the install tree.
if(TARGET needle_train_shared AND TARGET needle_cli)
  set(consumer_flags "")
  if(NEEDLE_SANITIZE)
    set(consumer_flags "-fsanitize=${NEEDLE_SANITIZE}")
  endif()
  add_test(NAME Install.ASeparateProjectBuildsAndRuns COMMAND ${CMAKE_COMMAND}
    "-DBUILD=${PROJECT_BINARY_DIR}" "-DCONSUMER=${CMAKE_CURRENT_SOURCE_DIR}/api/consumer"
    "-DGOLDEN=${CMAKE_CURRENT_SOURCE_DIR}/golden" "-DWORK=${PROJECT_BINARY_DIR}/install_test"
    "-DCXX=${CMAKE_CXX_COMPILER}" "-DFLAGS=${consumer_flags}"
    -P "${CMAKE_CURRENT_SOURCE_DIR}/api/install_test.cmake")
  set_tests_properties(Install.ASeparateProjectBuildsAndRuns PROPERTIES LABELS "api" TIMEOUT 600)
  # The same client inside this build: scripts/cross_check.sh runs it where nothing is installed.
  add_executable(needle_consumer EXCLUDE_FROM_ALL "${CMAKE_CURRENT_SOURCE_DIR}/api/consumer/main.cc")
  target_link_libraries(needle_consumer PRIVATE needle::train)
  # The engine's library needs the C++ and C libraries only.
  find_program(READELF readelf)
  if(READELF AND NOT NEEDLE_SANITIZE AND NOT APPLE AND NOT WIN32)
    add_test(NAME Install.TheEngineNeedsTheStandardLibrariesOnly COMMAND ${CMAKE_COMMAND}
      "-DREADELF=${READELF}" "-DLIBRARY=$<TARGET_FILE:needle>"
      -P "${CMAKE_CURRENT_SOURCE_DIR}/api/needed_test.cmake")
    set_tests_properties(Install.TheEngineNeedsTheStandardLibrariesOnly PROPERTIES LABELS "api")
  endif()
endif()
