#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/grammar/rules.h"

namespace llm {

/// An expression for JSON documents, on one line, that `schema` takes: all that the rules of
/// docs/structured_output.md give, each of which is valid. A keyword that is not enforced is
/// refused.
/// @param schema  JSON, its properties in the order in which they are to come
/// Errors: kUsage, whose field is the JSON pointer of the keyword ("/properties/a/not").
Result<std::string> schema_expression(std::string_view schema, RuleText& rules);

/// The same for any JSON object.
std::string any_object_expression(RuleText& rules);

}  // namespace llm
