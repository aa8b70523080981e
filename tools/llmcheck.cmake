llm_tool(llmcheck
  SOURCES
    llmcheck_arguments.cpp
    llmcheck_load.cpp
    llmcheck_main.cpp
    llmcheck_quality.cpp
    llmcheck_verify.cpp
    llmtok_check.cpp
  DEPENDS llm_tools_common llm_validate spdlog::spdlog nlohmann_json::nlohmann_json)
