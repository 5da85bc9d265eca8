# The plain loops of the reference in double take minutes without any optimisation.
if(NEEDLE_SANITIZE AND CMAKE_BUILD_TYPE STREQUAL "Debug")
  set_source_files_properties("${CMAKE_CURRENT_SOURCE_DIR}/model/reference_test.cc" PROPERTIES COMPILE_OPTIONS -O1)
endif()
