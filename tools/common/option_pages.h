#pragma once

#include <string>
#include <string_view>

#include "tools/common/options.h"

namespace llm {

/// "llmrun 0.1.0".
std::string version_line(const OptionTable& table);
/// The engine's version alone, for JSON and receipts.
std::string version();

/// --help: usage, options by group, examples, wrapped at 100 columns.
std::string help_page(const OptionTable& table);
/// `text` with a backslash before each of `characters`.
std::string escaped(std::string_view text, std::string_view characters);
/// --completion: a script that offers options, their words, positional words and file names.
enum class Shell { kBash, kZsh, kFish };
std::string completion(const OptionTable& table, Shell shell);
/// --help-markdown: a section of docs/cli.md, one table a group.
std::string markdown_page(const OptionTable& table);

}  // namespace llm
