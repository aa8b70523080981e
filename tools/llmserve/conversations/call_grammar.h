#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/grammar.h"
#include "tools/llmserve/conversations/conversations.h"

namespace llm {

/// What a reply must be for its calls to be right.
struct CallGrammar {
  std::optional<GrammarSource> source = {};  ///< nothing: the text is free
  /// Places in the request of keywords that calls are not kept to.
  std::vector<std::string> dropped = {};
};

/// One of the functions that must be called, with arguments of its schema; else, where a function
/// is `strict`, free text with calls of that kind. The text is free where no more was asked for, or
/// the format's calls cannot be told from text. Keywords that cannot be enforced are left out, but
/// for a function that is `strict`.
/// @param schema_at  the place of a function's schema in its tool: "/function/parameters"
/// Errors: kUsage where a call is demanded of a format that does not let it be enforced, or naming
/// a keyword of a `strict` function.
Result<CallGrammar> call_grammar(const ReplyFormat& format, const RequestedChat& chat,
                                 const std::string& schema_at);

}  // namespace llm
