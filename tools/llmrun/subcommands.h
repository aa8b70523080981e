#pragma once

namespace llm {

/// `llmrun run|serve|list|pull|show|rm ...`: what Ollama's users type, over the cache of the hub
/// (tools/hub). A file of that name in the current directory is a model, as with llmrun alone.
/// @return the exit code; -1: the command line is not one of those. `run` changes argc and argv to
/// what llmrun takes, and is not one of those then
int run_subcommand(int& argc, char**& argv) noexcept;

}  // namespace llm
