llm_test(oracle_test
  SOURCES oracle_test.cpp
  DEPENDS llm_validate)
