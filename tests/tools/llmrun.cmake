llm_test(options_test SOURCES options_test.cpp DEPENDS llm_tools_common)
llm_test(llmrun_test SOURCES llmrun_test.cpp DEPENDS tiny_gguf nlohmann_json::nlohmann_json)
add_dependencies(llmrun_test llmrun)

find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME cli_page_test
  COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/tools/common/cli_page.py --check
          ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
