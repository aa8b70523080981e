#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

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
  std::string text;
  int line = 1;
};

/// An error in a template. Field: "chat template".
Error template_error(ErrorCode code, int line, std::string_view message);

/// The tokens of a template, white space removed as jinja2 does with trim_blocks and lstrip_blocks
/// and without keep_trailing_newline. The last one is kEnd.
/// Errors: kMalformed naming the line.
/// Source: jinja2's documentation ("Whitespace Control") and what jinja2 3.1.6 does.
Result<std::vector<Token>> lex(std::string_view source);

}  // namespace llm::jinja
