llm_tool(llmtok
  SOURCES
    llmtok_main.cpp
    llmtok_check.cpp
  DEPENDS llm_tools_common llm_model llm_tokenizer nlohmann_json::nlohmann_json fmt::fmt)
