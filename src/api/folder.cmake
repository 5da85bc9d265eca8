# The small base inside the program. Without its two files the build goes on and says so at run time.
set(NEEDLE_BUNDLED_DIR "${CMAKE_CURRENT_SOURCE_DIR}/data/bundled" CACHE PATH
    "Folder of base.pkl and tokenizer.model, which the program carries inside")
if(EXISTS "${NEEDLE_BUNDLED_DIR}/base.pkl" AND EXISTS "${NEEDLE_BUNDLED_DIR}/tokenizer.model")
  set_source_files_properties("${CMAKE_CURRENT_SOURCE_DIR}/src/api/bundled.cc" PROPERTIES
    COMPILE_DEFINITIONS "NEEDLE_BUNDLED_CHECKPOINT=\"${NEEDLE_BUNDLED_DIR}/base.pkl\";NEEDLE_BUNDLED_TOKENIZER=\"${NEEDLE_BUNDLED_DIR}/tokenizer.model\""
    OBJECT_DEPENDS "${NEEDLE_BUNDLED_DIR}/base.pkl;${NEEDLE_BUNDLED_DIR}/tokenizer.model"
    COMPILE_OPTIONS "-fno-lto")  # the optimiser does not see labels of the assembler
else()
  message(STATUS "needle: ${NEEDLE_BUNDLED_DIR} has no base.pkl and tokenizer.model; no bundled base")
endif()
