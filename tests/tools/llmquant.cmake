# llmquant's recipes, and its binary.
llm_test(llmquant_test
  SOURCES
    llmquant_recipe_test.cpp
    llmquant_test.cpp
  DEPENDS tiny_gguf llm_quant_tool llm_model)
add_dependencies(llmquant_test llmquant)
