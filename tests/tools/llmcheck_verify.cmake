llm_test(llmcheck_verify_test
  SOURCES llmcheck_verify_test.cpp
  DEPENDS llm_model nlohmann_json::nlohmann_json)
add_dependencies(llmcheck_verify_test llmcheck)
# GCC 12 warns falsely about inlined std::string operators (GCC bug 105651).
target_compile_options(llmcheck_verify_test PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
