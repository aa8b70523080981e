# All but main is a library, so that tests can link the plan, the figures and the output.
llm_library(llm_bench_tool
  SOURCES
    llmbench/arguments.cpp
    llmbench/baseline.cpp
    llmbench/measurement.cpp
    llmbench/plan.cpp
    llmbench/report.cpp
    llmbench/runner.cpp
    llmbench/synthetic_file.cpp
  DEPENDS llm_engine llm_model llm_peaks llm_quant_tool llm_synthetic llm_tools_common
          spdlog::spdlog nlohmann_json::nlohmann_json fmt::fmt)
llm_tool(llmbench SOURCES llmbench_main.cpp DEPENDS llm_bench_tool)
