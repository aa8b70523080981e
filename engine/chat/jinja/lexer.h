#pragma once

#include <deque>
#include <memory>
#include <string_view>

#include "base/result.h"
#include "engine/chat/jinja/meter.h"

namespace llm::jinja {

struct Token {
  enum class Kind {
    kText,  ///< what stands between tags
    kVariable,
    kVariableEnd,
    kBlock,
    kBlockEnd,
    kName,
    kString,  ///< without quotes and escapes
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };
  Kind kind = Kind::kEnd;
  int line = 1;
  std::string_view text;
};

/// The tokens of a template, the last one kEnd, and what their texts are part of.
struct Tokens {
  String source;
  std::deque<String, Counted<String>> strings;  ///< whose escapes are replaced
  Vector<Token> tokens;
};

/// An error in a template. Field: "chat template".
Error template_error(ErrorCode code, int line, std::string_view message);

/// Reads a template, white space removed as jinja2 does with trim_blocks and lstrip_blocks and
/// without keep_trailing_newline.
/// Errors: kMalformed naming the line.
/// Source: jinja2's documentation ("Whitespace Control") and what jinja2 3.1.6 does.
Result<std::unique_ptr<const Tokens>> lex(std::string_view source);

}  // namespace llm::jinja
