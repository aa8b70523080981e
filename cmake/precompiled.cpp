// Nothing: for the targets that hold precompiled headers (llm_precompile in llm_targets.cmake).
