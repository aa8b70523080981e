# llmtok through its binary.
llm_test(llmtok_test
  SOURCES
    llmtok_test.cpp
  DEPENDS tiny_gguf llm_model nlohmann_json::nlohmann_json fmt::fmt)
add_dependencies(llmtok_test llmtok)
