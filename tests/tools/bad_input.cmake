# docs/bad_input.md, row by row, through the real binaries; and llmgguf itself.
add_library(bad_input_support STATIC bad_input_support.cpp)
target_link_libraries(bad_input_support PUBLIC tiny_gguf llm_model)
target_compile_definitions(bad_input_support
  PRIVATE LLM_BIN_DIR="${CMAKE_RUNTIME_OUTPUT_DIRECTORY}")
add_dependencies(bad_input_support llmgguf)

llm_test(bad_input_test
  SOURCES
    bad_input_files_test.cpp
    bad_input_format_test.cpp
    bad_input_model_test.cpp
  DEPENDS bad_input_support)
if(TARGET llmrun)
  add_dependencies(bad_input_test llmrun)
  target_compile_definitions(bad_input_test PRIVATE LLM_HAVE_LLMRUN)
endif()

llm_test(llmgguf_test
  SOURCES llmgguf_test.cpp
  DEPENDS bad_input_support nlohmann_json::nlohmann_json)
