#pragma once

#include "tools/common/options.h"

namespace llm {

/// Adds the options of llama.cpp's programs, and a few of vLLM's, that the tool does not have: with
/// a warning those that would change no result, with advice those that have another name or no
/// counterpart (the names are those of llama.cpp's --help). run_tool calls it for every tool.
void add_foreign_options(OptionTable& table);

/// Adds -hf's advice to the error of a file that is not there and whose name is a model's on a hub:
/// "owner/repo", "owner/repo:QUANT", "name:tag". run_tool calls it for every error.
Error with_download_hint(Error error);

}  // namespace llm
