needle_link_rapidcheck(text_test)

# SentencePiece is an oracle: used when it is there, needed by nothing that ships.
find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h)
find_library(SENTENCEPIECE_LIBRARY sentencepiece)
if(SENTENCEPIECE_INCLUDE_DIR AND SENTENCEPIECE_LIBRARY)
  target_include_directories(text_test SYSTEM PRIVATE "${SENTENCEPIECE_INCLUDE_DIR}")
  target_link_libraries(text_test PRIVATE "${SENTENCEPIECE_LIBRARY}")
  target_compile_definitions(text_test PRIVATE NEEDLE_TEST_SENTENCEPIECE)
endif()
