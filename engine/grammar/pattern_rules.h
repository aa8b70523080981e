#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace llm {

/// An expression for the texts that `pattern` matches as a whole: `^` and `$` at its ends are taken
/// and change nothing. Of regular expressions there are characters, `.`, classes, `\d \w \s` and
/// their opposites, groups, `|`, and quantifiers, greedy or lazy, which match the same.
///
/// Shorthands, and negated classes that have some, are of ASCII alone, so that ECMAScript's and
/// Python's readings both hold.
/// @param in_json  the texts stand in a JSON string, escaped
/// Errors: kUsage for everything else, naming the byte; its field is empty.
Result<std::string> pattern_expression(std::string_view pattern, bool in_json);

}  // namespace llm
