# llmbench's plan, figures and output, and its binary. No test looks at a time.
llm_test(llmbench_test
  SOURCES
    llmbench_figures_test.cpp
    llmbench_test.cpp
  DEPENDS tiny_gguf llm_bench_tool nlohmann_json::nlohmann_json)
add_dependencies(llmbench_test llmbench)
