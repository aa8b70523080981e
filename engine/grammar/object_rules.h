#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/grammar/rules.h"
#include "engine/grammar/schema_keywords.h"

namespace llm {

/// Documents are written on one line, ", " and ": " between values, and no other white space.
std::string any_value(RuleText& rules);
std::string any_object(RuleText& rules);
std::string any_string(RuleText& rules);
/// A character of any string.
std::string string_character(RuleText& rules);
/// `body` in quotation marks.
std::string quoted(const std::string& body);

struct ArrayParts {
  std::vector<std::string> first;  ///< items of their own, one after the other; at most counts.most
  std::optional<std::string> rest;  ///< each further one; nothing: there are none
  Counts counts;
};
/// @pre counts.least <= counts.most, and items enough for them
std::string array_expression(const ArrayParts& parts, RuleText& rules);

struct ObjectParts {
  struct Property {
    std::string name;
    std::string value;
    bool is_required;
  };
  std::vector<Property> properties;  ///< declared ones, in the order in which they come
  std::optional<std::string> extra;  ///< the value of each further one; nothing: there are none
  std::optional<std::string> extra_name;  ///< its name, where no property is declared
  Counts counts;
};
/// What stands around the parts of an object.
struct ObjectStyle {
  std::string open = "{";
  std::string close = "}";
  std::string separator = ", ";
  std::string name_begin = {};  ///< empty: a name is JSON
  std::string name_end = ": ";
  std::string value_end = {};
  bool names_end = false;  ///< behind each value_end stand the name and name_end
};
/// Where counts.least asks for more than is required, the first of the others are required, too;
/// where counts.most allows less, the last ones do not come. Further properties have names of
/// letters, digits, "_" and "-" beside declared ones, so that none comes twice. Errors: kUsage
/// naming the keyword for counts that cannot be kept.
Result<std::string> object_expression(ObjectParts parts, RuleText& rules,
                                      const ObjectStyle& style = {}, bool has_bare_names = false);

/// Text in which `mark` does not come, nor the part of it from which on its first character does
/// not come again.
std::string text_without(std::string_view mark, RuleText& rules);

}  // namespace llm
