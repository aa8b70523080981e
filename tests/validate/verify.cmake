llm_test(verify_test
  SOURCES
    verify_gate_test.cpp
    verify_reference_test.cpp
    verify_verdict_test.cpp
  DEPENDS llm_validate nlohmann_json::nlohmann_json)
# GCC 12 warns falsely about inlined std::string operators (GCC bug 105651).
target_compile_options(verify_test PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
