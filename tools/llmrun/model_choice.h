#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "base/result.h"

namespace llm {

/// Where the program itself is; empty when the system does not say.
std::filesystem::path own_directory();

/// The model file that `named` means: itself, or the one GGUF in it when it is a directory, where
/// the parts of a split model count as one and the first part stands for them.
/// Errors: kIo for a directory without a GGUF; kUsage for one with several, which it lists.
Result<std::string> resolve_model(const std::string& named);

/// The model of those who name none: the environment's LLM_MODEL, else the one that comes with the
/// program (in the checkout it was built in, or installed beside it), which it says on stderr.
/// Errors: kUsage when there is none; as resolve_model.
Result<std::string> default_model();

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
