#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/chat/mark_lexer.h"
#include "engine/chat/reply_format.h"

namespace llm {

/// What of a format's texts a reader looks for.
struct CallMarks {
  MarkLexer lexer;
  std::vector<std::string> words = {};  ///< that may stand between marks and a name
  bool has_lines = false;               ///< values of pairs are lines of their own
};

/// @param has_tools  calls are looked for
CallMarks call_marks(const ReplyFormat& format, bool has_tools);

}  // namespace llm
