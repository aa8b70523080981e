#pragma once

#include <string_view>

#include "base/json.h"

namespace llm {

/// What values an argument may have, as far as its schema says so.
struct ArgumentTypes {
  bool string = true;
  bool other = true;
};
/// @param parameters  the function's schema, which references are of. @param key  the argument
ArgumentTypes argument_types(const OrderedJson& parameters, std::string_view key);
/// The same of a value's schema, which may be null. @param root  what its references are of
ArgumentTypes value_types(const OrderedJson& root, const OrderedJson* schema);
/// The schema that it refers to, or itself.
const OrderedJson* referred(const OrderedJson& root, const OrderedJson* schema);

/// Of an object that may not be there; null where it has no such member.
const OrderedJson* member_of(const OrderedJson* object, std::string_view name);
/// What OpenAI's list of tools says of a function; null: there is none of that name.
const OrderedJson* function_of(const OrderedJson& tools, std::string_view name);

}  // namespace llm
