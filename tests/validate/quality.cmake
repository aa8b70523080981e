llm_test(quality_test
  SOURCES
    quality_likelihood_test.cpp
    quality_signals_test.cpp
    quality_sweep_test.cpp
    quality_windows_test.cpp
  DEPENDS llm_validate)
# GCC 12 warns falsely about inlined std::string operators (GCC bug 105651).
target_compile_options(quality_test PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
