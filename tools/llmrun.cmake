# The table of options is a library of its own: the test of docs/cli.md and of the parser links it.
llm_library(llm_run_tool
  SOURCES
    llmrun/arguments.cpp
    llmrun/chat.cpp
    llmrun/output.cpp
  DEPENDS llm_generate llm_engine llm_tools_common spdlog::spdlog nlohmann_json::nlohmann_json)
llm_tool(llmrun SOURCES llmrun_main.cpp DEPENDS llm_run_tool llm_validate)
