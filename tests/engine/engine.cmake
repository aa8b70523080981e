llm_test(engine_test
  SOURCES
    ${CMAKE_CURRENT_SOURCE_DIR}/invariance_test.cpp
    ${CMAKE_CURRENT_SOURCE_DIR}/nonfinite_test.cpp
  DEPENDS tiny_gguf llm_synthetic llm_engine)
