llm_test(options_test SOURCES options_test.cpp DEPENDS llm_tools_common)
llm_test(llmrun_test
  SOURCES
    llmrun_dump_test.cpp
    llmrun_nonfinite_test.cpp
    llmrun_test.cpp
  DEPENDS tiny_gguf llm_validate nlohmann_json::nlohmann_json)
# GCC 12 warns falsely about inlined std::string operators (GCC bug 105651).
target_compile_options(llmrun_test PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
add_dependencies(llmrun_test llmrun)

find_package(Python3 REQUIRED COMPONENTS Interpreter)
add_test(NAME cli_page_test
  COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/cli_page.py --check
          ${CMAKE_RUNTIME_OUTPUT_DIRECTORY})
