#ifndef LLM_TOOLS_LLMRUN_CHAT_H_
#define LLM_TOOLS_LLMRUN_CHAT_H_

#include "base/result.h"
#include "engine/engine.h"
#include "engine/generate/generate.h"
#include "tools/common/tool.h"
#include "tools/llmrun/arguments.h"

namespace llm {

/// The conversation's format: as asked for, or recognized from the file's template.
/// Errors: kUsage when there is neither.
Result<ChatFormat> choose_chat_format(const RunArguments& arguments, const Model& model);

/// Makes a reply end where the format ends it: at its special tokens, or at their spelling where
/// the vocabulary has no such token.
void add_reply_ends(ChatFormat format, const Tokenizer& tokenizer, GenerateOptions& options);

/// The messages a conversation opens with: the system message, if any, and the user's.
std::vector<ChatMessage> opening_messages(const RunArguments& arguments, std::string user_message);

/// -i: reads messages from stdin until its end and prints the replies. SIGINT ends a reply; at the
/// prompt it ends the program.
/// @return the exit code
Result<int> run_chat(const RunArguments& arguments, const ToolContext& context, Sequence& session,
                     const GenerateOptions& generation, double load_seconds);

}  // namespace llm

#endif  // LLM_TOOLS_LLMRUN_CHAT_H_
