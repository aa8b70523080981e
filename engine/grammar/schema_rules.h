#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/rules.h"

namespace llm {

/// An expression for JSON documents, on one line, that `schema` takes: all that the rules of
/// docs/structured_output.md give, each of which is valid. A keyword that is not enforced is
/// refused.
/// @param schema  JSON, its properties in the order in which they are to come
/// Errors: kUsage, whose field is the JSON pointer of the keyword ("/properties/a/not").
Result<std::string> schema_expression(std::string_view schema, RuleText& rules);

/// An expression for the arguments that an object's schema describes, in that form.
/// Errors: as above.
Result<std::string> arguments_expression(std::string_view schema, const ArgumentForm& form,
                                         RuleText& rules);

/// A schema whose every keyword is enforced, one step wider where one of `schema`'s is not: without
/// it. Each step writes the rules anew; where the bytes for that do not last, any object is taken.
/// @param dropped  gets the JSON pointers of what was left out; "": all of it
/// @param bytes_left  of schemas that may be written anew, in this call and further ones
OrderedJson enforceable_schema(const OrderedJson& schema, const ArgumentForm& form,
                               std::vector<std::string>& dropped, std::size_t& bytes_left);

/// JSON of any object.
std::string any_object_expression(RuleText& rules);

}  // namespace llm
