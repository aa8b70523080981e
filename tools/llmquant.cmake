# Recipes, plan and conversion are a library of their own, so that tests can link them.
llm_library(llm_quant_tool
  SOURCES
    llmquant/convert.cpp
    llmquant/plan.cpp
    llmquant/recipe.cpp
    llmquant/report.cpp
  DEPENDS llm_gguf llm_quant llm_base fmt::fmt)
llm_tool(llmquant SOURCES llmquant_main.cpp DEPENDS llm_quant_tool llm_tools_common spdlog::spdlog)
