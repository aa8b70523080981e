#ifndef LLM_TOOLS_COMMON_FOREIGN_OPTIONS_H_
#define LLM_TOOLS_COMMON_FOREIGN_OPTIONS_H_

#include "tools/common/options.h"

namespace llm {

/// Adds advice for the options of llama.cpp's programs that have no counterpart here, or another
/// name (the names are those of llama.cpp's --help). run_tool calls it for every tool.
void add_foreign_options(OptionTable& table);

}  // namespace llm

#endif  // LLM_TOOLS_COMMON_FOREIGN_OPTIONS_H_
