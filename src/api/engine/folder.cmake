target_compile_definitions(${name} PRIVATE NEEDLE_VERSION="${PROJECT_VERSION}")
target_include_directories(${name} PUBLIC "${CMAKE_CURRENT_SOURCE_DIR}/include")
