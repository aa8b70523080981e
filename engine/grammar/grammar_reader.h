#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace llm {

/// A grammar in EBNF as users write it (docs/structured_output.md), in the spelling of rules.h: of
/// xgrammar's reader it meets nothing but that, neither its macros and attributes nor its way with
/// numbers and escapes.
/// Errors: kUsage naming the line, or the rule: what is no grammar; what derives itself twice and
/// nothing else (`a ::= a a`), so that a text has more readings than can be followed.
Result<std::string> read_grammar(std::string_view text);

}  // namespace llm
