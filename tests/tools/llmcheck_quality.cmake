llm_test(llmcheck_quality_test
  SOURCES llmcheck_quality_test.cpp
  DEPENDS nlohmann_json::nlohmann_json)
add_dependencies(llmcheck_quality_test llmcheck)
# GCC 12 warns falsely about inlined std::string operators (GCC bug 105651).
target_compile_options(llmcheck_quality_test PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
