# The generator is a library, so that tests can make models in memory or in a temporary directory.
llm_library(llm_synthetic
  SOURCES
    synthetic/synthetic_model.cpp
    synthetic/synthetic_vocab.cpp
  DEPENDS llm_quant_tool llm_gguf llm_quant llm_base)
llm_tool(llmsynth SOURCES llmsynth_main.cpp DEPENDS llm_synthetic llm_tools_common)
