llm_tool(llmgguf
  SOURCES
    llmgguf_diff.cpp
    llmgguf_hash.cpp
    llmgguf_main.cpp
    llmgguf_show.cpp
    llmgguf_verify.cpp
  DEPENDS llm_tools_common llm_model nlohmann_json::nlohmann_json)
