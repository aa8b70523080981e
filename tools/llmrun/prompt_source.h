#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace llm {

/// Where a prompt may come from. docs/cli.md says when standard input is read.
struct PromptSource {
  std::optional<std::string> text;  ///< PROMPT or -p
  std::optional<std::string> file;  ///< -f; "-" is standard input
  bool add_stdin = false;           ///< a - beside the text or the file
  bool may_read_stdin = true;       ///< without text and file: not in a chat

  bool is_given() const { return text || file; }
};

/// The prompt. Standard input that was asked for (-) is read to its end, as is a pipe, socket or
/// file on it when there is neither text nor file. Behind a prompt it follows after a blank line.
/// Errors: kIo; kResource with both numbers above Tokenizer::kMaxTextBytes.
Result<std::string> read_prompt(const PromptSource& source);

}  // namespace llm
