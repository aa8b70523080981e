# docs/bad_input.md, row by row, through the real binaries.
llm_test(bad_input_test
  SOURCES
    bad_input_files_test.cpp
    bad_input_format_test.cpp
    bad_input_model_test.cpp
    bad_input_support.cpp
  DEPENDS tiny_gguf llm_model)
add_dependencies(bad_input_test llmgguf)
if(TARGET llmrun)
  add_dependencies(bad_input_test llmrun)
  target_compile_definitions(bad_input_test PRIVATE LLM_HAVE_LLMRUN)
endif()
