#pragma once

#include <optional>

#include "engine/grammar/grammar.h"
#include "tools/llmserve/conversations.h"

namespace llm {

/// What a reply must be for its calls to be right: one of the functions that must be called, with
/// arguments of its schema; else, where a function is `strict`, free text with calls of that kind.
/// Nothing: the text is free, as no more was asked for, or as the format's calls have no JSON
/// between texts that mark them.
/// Errors: kUsage where a call is demanded of a format that does not let it be enforced.
Result<std::optional<GrammarSource>> call_grammar(const ReplyFormat& format,
                                                  const RequestedChat& chat);

}  // namespace llm
