llm_test(options_test SOURCES options_test.cpp DEPENDS llm_tools_common)
llm_test(llmrun_test SOURCES llmrun_test.cpp DEPENDS tiny_gguf nlohmann_json::nlohmann_json)
add_dependencies(llmrun_test llmrun)
